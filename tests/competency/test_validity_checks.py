"""The validity checks on suites of which the truth is known.

What must hold:
- a merged group's effect is the mean effect of its members, and the rankings' ends are what a sort says;
- where concepts have effects, what one half finds holds on the other; where none has, held-out effects lie around 0, while the
  raw ranking still agrees with itself, and does so under permuted scores too;
- planted gaps lower only the scores of the items that carry them, and calibrated ones are found where raw ones are not;
- permuted scores give discoveries in no more than alpha of the analyses;
- a subsample of 80% varies half as much as a bootstrap; dropping items of bad concepts raises the mean;
- two calls give the same outcomes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from made_studies import made_study, strong_suite
from made_suites import confounded_suite, null_suite

from gapscope.competency.features import bag_of_words, item_words, metadata
from gapscope.competency.heldout import correlation, held_out, left_out
from gapscope.competency.inference import contrast
from gapscope.competency.intervals import reference
from gapscope.competency.other_sae import other_sae
from gapscope.competency.outcome import Outcome, averaged, columns, headline, mean_of_draws, share
from gapscope.competency.planted import carriers, permuted_null, plant, planted_gaps
from gapscope.competency.redundancy import redundancy
from gapscope.competency.resampling import ablation, subsampling
from gapscope.competency.study import Features, ends, merge, raw_chi, shuffled, view
from gapscope.competency.units import cell_means
from gapscope.competency.validity import Others, metrics_of, run_checks
from gapscope.params_validity import ValidityParams


def by_name(outcomes: list[Outcome]) -> dict[tuple[str, str, str], Outcome]:
    return {(one.ranking, one.group, one.quantity): one for one in outcomes}


@pytest.fixture(scope="module")
def strong():
    return made_study(strong_suite(0))


def test_a_merged_group_has_the_mean_effect_of_its_members(strong):
    one = view(strong, strong.concepts(), strong.subjects["one"])
    groups = [np.array([0, 3, 7]), np.array([11]), np.array([], dtype=np.int64)]
    merged = contrast(merge(one.suite, groups))
    assert merged.adjusted[:2] == pytest.approx([one.one.adjusted[group].mean() for group in groups[:2]])
    assert np.isnan(merged.adjusted[2])
    assert merged.low[1] == pytest.approx(one.one.low[11])


def test_ends_by_hand():
    order = np.array([3.0, np.nan, 1, 2, 1, 9, 8, 7, 6, 5, 4, 0.5] + [2.5] * 9)
    low, high = ends(order, 100)
    assert (low.tolist(), high.tolist()) == ([2, 11], [5, 6])
    assert [side.tolist() for side in ends(order, 1)] == [[11], [5]]
    assert [len(side) for side in ends(np.full(5, np.nan), 3)] == [0, 0]


def test_raw_chi_is_the_reference_column(strong):
    made = strong_suite(0)
    one = view(strong, strong.concepts(), strong.subjects["one"])
    chi = raw_chi(one.units, one.units.scores[:, None], 2)[:, 0]
    assert chi == pytest.approx(reference(made.saliency, made.scores, made.benchmarks, np.arange(len(made.scores))).chi_model[-1])


def test_shuffled_scores_stay_in_their_cells(strong):
    units = view(strong, strong.concepts(), strong.subjects["one"]).units
    table = shuffled(units, 3, 5)
    for draw in table.T:
        assert cell_means(draw, units.cells) == pytest.approx(cell_means(units.scores, units.cells), abs=1e-6)
    assert not np.allclose(table[:, 0], units.scores)
    assert np.array_equal(table, shuffled(units, 3, 5))


def test_halves_are_those_of_families_and_about_equal(strong):
    half = strong.half(0)
    assert 0.45 < half.mean() < 0.55
    assert not np.array_equal(half, strong.half(1))
    twins = replace(strong, items=[replace(item, family=f"f{k // 2}") for k, item in enumerate(strong.items)])
    pairs = twins.half(0).reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    fewer = replace(strong, items=strong.items[10:])
    assert np.array_equal(fewer.half(0), half[10:])


def test_what_one_half_finds_holds_on_the_other(strong):
    found = by_name(held_out(strong, strong.concepts(), "one", 2, 5))
    gap, typical, strength = (found["calibrated", group, "adjusted"] for group in ("gap", "typical", "strength"))
    assert gap.high < 0 < strength.low
    assert abs(typical.value) < 0.05
    rates = [found["calibrated", group, "success"].value for group in ("gap", "typical", "strength")]
    assert rates == sorted(rates)
    assert found["calibrated", "features", "r"].value > 0.6 > found["calibrated", "features", "r_shuffled"].high
    assert found["calibrated", "items", "item_r"].low > 0


def test_without_effects_only_the_raw_ranking_agrees_with_itself():
    rng = np.random.default_rng(3)
    made = confounded_suite(rng, n_items=2400, n_concepts=120, drop=0.0)
    found = by_name(held_out(made_study(made), made_study(made).concepts(), "one", 2, 10))
    # Strata are fifths of length, so a little of length is left over.
    assert found["calibrated", "features", "r"].value < 0.35
    raw, raw_shuffled = found["raw", "features", "r"], found["raw", "features", "r_shuffled"]
    assert raw.value > 0.3
    assert raw_shuffled.value > 0.1
    assert found["calibrated", "gap", "adjusted"].n == 0 or abs(found["calibrated", "gap", "adjusted"].value) < 0.1
    assert abs(found["calibrated", "lowest", "adjusted"].value) < 0.06


def test_each_benchmark_is_left_out_in_turn(strong):
    found = by_name(left_out(strong, strong.concepts(), "one", 5))
    assert {group for _ranking, group, _quantity in found} == {"b0", "b1"}
    assert all(found["calibrated", group, "lowest"].value < found["calibrated", group, "highest"].value for group in ("b0", "b1"))
    alone = made_study(replace(strong_suite(0), benchmarks=np.zeros(2400, dtype=np.int64)))
    assert all(one.n == 0 and np.isnan(one.value) for one in left_out(alone, alone.concepts(), "one", 5))


def test_planting_lowers_the_items_that_carry_it_and_no_other():
    study = made_study(null_suite(np.random.default_rng(1), n_items=900, n_concepts=40))
    one = view(study, study.concepts(), study.subjects["one"])
    scores = shuffled(one.units, 1, 2)[:, 0]
    made = plant(one, scores, 3, 1.0, np.random.default_rng(4))
    carried = np.stack([carriers(one.units, int(feature)) for feature in made.chosen]).any(axis=0)
    assert np.array_equal(made.scores[~carried], scores[~carried])
    assert (made.scores[carried] == one.units.floors[carried]).all()
    assert (made.effects[made.chosen] < -0.1).all()
    weight = one.units.saliency[:, [int(made.chosen[0])]].toarray().ravel()
    held = weight[carriers(one.units, int(made.chosen[0]))]
    assert held.sum() >= 0.5 * weight.sum() > held.sum() - held.min() - 1e-6


def test_planted_gaps_are_found_where_raw_ones_are_not():
    study = made_study(confounded_suite(np.random.default_rng(5), n_items=3000, n_concepts=200, drop=0.0), min_n_eff=30.0)
    found = by_name(planted_gaps(study, study.concepts(), 8, 4, 0.6))
    assert found["calibrated", "", "recall"].value > found["raw", "", "recall"].value + 0.2
    assert found["calibrated", "", "precision"].value > 0.85
    assert found["calibrated", "", "precision_planted"].value > found["raw", "", "precision_planted"].value + 0.2


def test_permuted_scores_give_few_discoveries_and_raw_intervals_many_claims():
    study = made_study(confounded_suite(np.random.default_rng(6), n_items=1500, n_concepts=100, drop=0.0))
    found = by_name(permuted_null(study, study.concepts(), "one", 100))
    assert found["calibrated", "", "any_discovery"].low <= 0.05
    assert found["raw", "", "outside_mean"].value > 0.04 > found["calibrated", "", "discoveries"].value / 100
    nothing = Features("nothing", study.suite.saliency, np.ones(100, dtype=bool))
    assert all(one.n == 0 for one in permuted_null(study, nothing, "one", 10))


def test_a_subsample_varies_half_as_much_as_a_bootstrap(strong):
    found = by_name(subsampling(strong, strong.concepts(), "one", 60, 0.8, 6))
    assert found["calibrated", "ratio", "subsample_to_bootstrap"].value == pytest.approx(0.5, abs=0.06)
    assert found["raw", "ratio", "subsample_to_bootstrap"].value == pytest.approx(0.5, abs=0.06)
    assert found["calibrated", "ratio", "null_to_bootstrap"].value == pytest.approx(1.0, abs=0.15)
    assert found["calibrated", "subsample", "lowest_stay"].value > found["calibrated", "bootstrap", "lowest_stay"].value > 0.5


def test_dropping_what_bad_concepts_are_on_raises_the_mean(strong):
    found = by_name(ablation(strong, strong.concepts(), "one", 50, 6))
    for quantity in ("same_items", "other_items"):
        random = found["", "random", quantity]
        assert found["calibrated", "lowest", quantity].value > random.high
        assert found["calibrated", "highest", quantity].value < random.low


def test_the_same_dictionary_agrees_and_another_one_less(strong):
    twin = Features.of("twin", sp.csr_matrix(strong.suite.saliency * 2.0))
    rng = np.random.default_rng(9)
    noise = Features.of("noise", sp.csr_matrix(np.where(rng.random((2400, 60)) < 0.08, rng.gamma(2.0, size=(2400, 60)), 0.0)))
    found = by_name(other_sae(strong, {"another": twin, "random": noise}))
    assert found["calibrated", "another", "rank_correlation"].value == pytest.approx(1.0)
    assert found["", "another", "likeness"].value == pytest.approx(1.0)
    assert found["calibrated", "another", "confirmed"].value == 1.0
    assert found["calibrated", "random", "rank_correlation"].value < 0.5
    assert [one.n for one in other_sae(strong, {})] == [0]


def test_benchmarks_of_the_same_concepts_have_the_same_results():
    """Six benchmarks in two worlds; a subject is good at one world or the other."""
    rng = np.random.default_rng(10)
    n_items, benchmarks = 1800, np.repeat(np.arange(6), 300)
    world = benchmarks % 2
    rates = np.where(np.arange(40)[None, :] % 2 == world[:, None], 0.2, 0.02)
    saliency = sp.csr_matrix(np.where(rng.random((n_items, 40)) < rates, rng.gamma(2.0, size=(n_items, 40)), 0.0))
    tastes = rng.normal(0, 0.2, 6)
    subjects = {f"s{k}": (rng.random(n_items) < 0.5 + taste * (2 * world - 1)).astype(float) for k, taste in enumerate(tastes)}
    made = replace(strong_suite(0), saliency=saliency, scores=subjects["s0"], benchmarks=benchmarks, lengths=np.full(n_items, 9))
    found = by_name(redundancy(made_study(made, subjects=subjects), made_study(made).concepts()))
    assert found["", "pairs", "agreement"].value > 0.5
    assert found["", "pairs", "agreement_p"].value < 0.1
    assert found["", "b0 in b2", "contained"].value > found["", "b0 in b1", "contained"].value
    few = by_name(redundancy(made_study(made), made_study(made).concepts()))
    assert few["", "pairs", "agreement"].n == 0


def test_outcomes_are_the_same_again(strong):
    first, second = (columns(held_out(strong, strong.concepts(), "one", 1, 5)) for _ in range(2))
    assert first.keys() == second.keys()
    assert all(np.array_equal(np.array(first[name]), np.array(second[name]), equal_nan=name in ("value", "low", "high")) for name in first)


def test_averages_leave_out_what_is_undefined_and_keep_the_width():
    one, two = (
        Outcome("concepts", name, "calibrated", "gap", "adjusted", value, value - 1, value + 1, 3)
        for name, value in (("a", 0.0), ("b", 2.0))
    )
    empty = Outcome("concepts", "c", "calibrated", "gap", "adjusted")
    (mean,) = averaged([one, two, empty], subject="")
    assert (mean.value, mean.low, mean.high, mean.n) == (1.0, 0.0, 2.0, 6)
    (nothing,) = averaged([empty], subject="")
    assert nothing.n == 0
    assert np.isnan(nothing.value)
    assert headline([one, empty]) == {"calibrated": {"gap": {"adjusted": {"value": 0.0, "low": -1.0, "high": 1.0, "n": 3}}}}
    assert headline([empty]) == {"calibrated": {"gap": {"adjusted": {"n": 0}}}}


def test_intervals_by_hand():
    assert share(0, 0)[0] != share(0, 0)[0]
    value, low, high = share(5, 10)
    assert (value, low + high) == (0.5, pytest.approx(1.0))
    assert share(0, 10)[:2] == (0.0, 0.0)
    value, low, high = mean_of_draws(np.array([1.0, 3.0, np.nan]))
    assert (value, high - value) == (2.0, pytest.approx(1.96 * np.sqrt(2) / np.sqrt(2)))
    assert np.isnan(correlation(np.array([1.0, 2]), np.array([1.0, 2])))
    assert correlation(np.array([1.0, 2, 4]), np.array([2.0, 4, 8])) == pytest.approx(1.0)


@pytest.mark.parametrize("case", ["constant", "tiny", "no scores in one benchmark", "families of two", "families across benchmarks"])
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_computed_is_undefined_and_the_rest_finite(case):
    made = null_suite(np.random.default_rng(0), n_items=12 if case == "tiny" else 300, n_concepts=20)
    if case == "constant":
        made.scores[:] = 0
    if case == "no scores in one benchmark":
        made.scores[made.benchmarks == 0] = np.nan
    study = made_study(made)
    if case.startswith("families"):
        codes = np.arange(300) // 2 if case == "families of two" else np.arange(300) % 150
        items = [replace(item, family=f"f{code}") for item, code in zip(study.items, codes, strict=True)]
        study = replace(study, suite=replace(study.suite, families=codes), items=items)
    few = ValidityParams(splits=1, null_draws=4, planted_draws=2, planted_concepts=2, resamples=4)
    others = Others([metadata(study.items, study.suite.rows.n_tokens), bag_of_words(item_words(study.items), 50)], {})
    tables = run_checks(study, others, list, few)
    for outcome in (outcome for outcomes in tables.values() for outcome in outcomes):
        assert outcome.n > 0 or np.isnan(outcome.value), outcome
    metrics = metrics_of(tables)
    assert metrics["other_sae"] == {"calibrated": {"another": {"rank_correlation": {"n": 0}}}}
    assert (metrics["controls"]["concepts"]["n_tested"] > 0) == (case != "tiny")


def test_two_processes_find_what_one_finds():
    study = made_study(null_suite(np.random.default_rng(1), n_items=200, n_concepts=20))
    few = ValidityParams(splits=1, null_draws=4, planted_draws=2, planted_concepts=2, resamples=4)
    others = Others([metadata(study.items, study.suite.rows.n_tokens)], {})
    one, two = (run_checks(study, others, list, few, threads) for threads in (1, 2))
    assert str(one) == str(two)  # Not ==: what is undefined is NaN.
    assert all(one[check] for check in ("held_out", "planted", "null", "subsampling", "ablation", "controls"))
