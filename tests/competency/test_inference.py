from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from made_suites import Made, confounded_suite, null_suite, sparse_saliency

from gapscope.competency.inference import (
    GAP,
    STATUSES,
    STRENGTH,
    TYPICAL,
    UNDEFINED,
    UNSUPPORTED,
    Calibrated,
    benjamini_hochberg,
    calibrate,
    contrast,
    join_families,
    null_discoveries,
    of_benchmark,
    pooling_factors,
    shrinkage,
)
from gapscope.competency.intervals import reference
from gapscope.competency.units import length_strata, make_units
from gapscope.errors import InputError

ALPHA = 0.05


def run(made: Made, bins: int = 10, **kwargs) -> Calibrated:
    n_items = len(made.scores)
    kwargs = {"min_n_eff": 10.0, "alpha": ALPHA, **kwargs}
    strata = kwargs.pop("strata", length_strata(made.lengths, made.benchmarks, bins))
    families, chance = kwargs.pop("families", np.arange(n_items)), kwargs.pop("chance", np.zeros(n_items))
    return calibrate(made.saliency, made.scores, chance, made.benchmarks, strata, families, **kwargs)


def same(one: Calibrated, other: Calibrated, **tolerance: float) -> None:
    for name in ("adjusted", "low", "high", "shrunk", "p", "q", "support"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), nan_ok=True, **{"rel": 1e-6, "abs": 1e-9, **tolerance})
    assert (one.status == other.status).all()
    assert (one.finding == other.finding).all()


def monte_carlo_error(share: float, runs: int) -> float:
    return 3 * np.sqrt(share * (1 - share) / runs)


def test_adjusted_by_hand():
    # One stratum of four; chance 1/2 makes scores 1, 1, -1, -1 with mean 0. A second benchmark, chance 0, mean 1/3.
    saliency = sp.csr_matrix(np.array([[1, 0], [0, 1], [3, 0], [0, 0], [2, 0], [2, 0], [0, 4]], dtype=np.float32))
    scores = np.array([1.0, 1, 0, 0, 1, 0, 0])
    chance = np.array([0.5] * 4 + [0.0] * 3)
    codes = np.array([0, 0, 0, 0, 1, 1, 1])
    found = calibrate(saliency, scores, chance, codes, np.zeros(7, dtype=np.int64), np.arange(7), min_n_eff=1.0, alpha=ALPHA)
    first, second = (1 - 3) / 4, (2 * (1 - 1 / 3) + 2 * (0 - 1 / 3)) / 4
    assert found.adjusted[:2, 0] == pytest.approx([first, second])
    assert found.support[:, 0] == pytest.approx([1.6, 2, 3.6])
    assert found.adjusted[2, 0] == pytest.approx((1.6 * first + 2 * second) / 3.6)
    # Concept 1 is on one item of each: 1 - 0 and 0 - 1/3, each worth one.
    assert found.adjusted[2, 1] == pytest.approx((1 - 1 / 3) / 2)


def test_statuses():
    made = null_suite(np.random.default_rng(0), n_items=600, n_concepts=40)
    dense = made.saliency.tolil()
    dense[:, 3], dense[:, 4] = 0, 0
    dense[:2, 4] = 1
    made.saliency = sp.csr_matrix(dense)
    made.scores[made.saliency[:, [5]].toarray().ravel() > 0] = 0
    made.scores[made.saliency[:, [6]].toarray().ravel() > 0] = 1
    excluded = np.zeros(40, dtype=bool)
    excluded[7] = True
    found = run(made, min_n_eff=3.0, excluded=excluded)
    assert [STATUSES[found.status[-1, concept]] for concept in (3, 4, 5, 6, 7)] == [
        "undefined",
        "unsupported",
        "gap",
        "strength",
        "unsupported",
    ]
    assert np.isnan(found.q[-1, [3, 4, 7]]).all()
    assert np.isfinite(found.adjusted[-1, [4, 7]]).all()
    assert np.isnan(found.adjusted[-1, 3])
    assert (found.finding[-1] >= 0).tolist() == np.isin(found.status[-1], [GAP, STRENGTH]).tolist()
    assert {TYPICAL, UNDEFINED, UNSUPPORTED} <= set(found.status[-1].tolist())


def test_rows_and_concepts_in_another_order_change_nothing():
    made = confounded_suite(np.random.default_rng(1), n_items=600, n_concepts=50, n_planted=4)
    found = run(made)
    rows, columns = np.random.default_rng(2).permutation(600), np.random.default_rng(3).permutation(50)
    moved = Made(made.saliency[rows][:, columns], made.scores[rows], made.benchmarks[rows], made.lengths[rows], made.planted)
    again = run(moved)
    back = np.argsort(columns)
    names = ("adjusted", "low", "high", "shrunk", "p", "q", "support", "status")
    ordered = dataclasses.replace(again, **{name: getattr(again, name)[:, back] for name in names})
    lead = np.where(again.finding >= 0, columns[again.finding], -1)[:, back]
    same(found, dataclasses.replace(ordered, finding=lead))


def test_the_same_call_gives_the_same_bits():
    made = confounded_suite(np.random.default_rng(1), n_items=400, n_concepts=40, n_planted=3)
    one, other = run(made), run(made)
    for name in ("adjusted", "low", "high", "shrunk", "p", "q", "support", "finding", "status"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


def test_an_unscored_item_is_as_good_as_absent():
    made = null_suite(np.random.default_rng(4), n_items=300, n_concepts=30)
    strata = length_strata(made.lengths, made.benchmarks, 1)
    made.scores[::7] = np.nan
    kept = ~np.isnan(made.scores)
    fewer = Made(made.saliency[kept], made.scores[kept], made.benchmarks[kept], made.lengths[kept], made.planted)
    same(run(made, strata=strata), run(fewer, strata=strata[kept]))


def test_twins_in_one_family_are_no_more_evidence():
    made = confounded_suite(np.random.default_rng(5), n_items=500, n_concepts=40, n_planted=3)
    twice = Made(
        sp.csr_matrix(sp.vstack([made.saliency] * 2)), *(np.tile(x, 2) for x in (made.scores, made.benchmarks, made.lengths)), made.planted
    )
    strata = length_strata(made.lengths, made.benchmarks, 5)
    same(run(made, strata=strata), run(twice, strata=np.tile(strata, 2), families=np.tile(np.arange(500), 2)))


def test_a_family_in_two_benchmarks_is_one_piece_of_evidence_for_the_suite():
    made = null_suite(np.random.default_rng(6), n_items=400, n_concepts=30)
    made.benchmarks[:] = 0
    both = Made(
        sp.csr_matrix(sp.vstack([made.saliency] * 2)),
        np.tile(made.scores, 2),
        np.repeat([0, 1], 400),
        np.tile(made.lengths, 2),
        made.planted,
    )
    once, twice = run(made, bins=1), run(both, bins=1, families=np.tile(np.arange(400), 2))
    assert twice.adjusted[-1] == pytest.approx(once.adjusted[-1])
    assert twice.p[-1] == pytest.approx(once.p[-1], rel=1e-5)
    assert twice.support[-1] == pytest.approx(once.support[-1])


def test_families_of_other_sizes_do_not_change_places():
    """Families of four have middling scores, single items 0 or 1; concept 0 fires in single items, and no gap is seen for that."""
    rng = np.random.default_rng(7)
    family = np.concatenate([np.repeat(np.arange(100), 4), np.arange(100, 400)])
    scores = (rng.random(700) < 0.5).astype(float)
    firing = rng.random((700, 20)) < 0.1
    units = make_units(sparse_saliency(rng, firing), scores, np.zeros(700), np.zeros(700, int), np.zeros(700, int), family)
    sizes = np.bincount(family)[units.families]
    assert [set(sizes[units.cells == cell].tolist()) for cell in (0, 1)] in ([{1}, {4}], [{4}, {1}])
    assert len(units.scores) == 400


def test_a_unit_alone_in_its_cell_is_left_out_and_counted():
    saliency = sp.csr_matrix(np.ones((5, 1), dtype=np.float32))
    found = calibrate(
        saliency,
        np.array([1.0, 0, 1, 0, 1]),
        np.zeros(5),
        np.zeros(5, int),
        np.array([0, 0, 0, 0, 9]),
        np.arange(5),
        min_n_eff=1.0,
        alpha=ALPHA,
    )
    assert (found.n_alone, found.support[-1, 0]) == (1, 4)


def test_strata_hold_equal_lengths_together():
    codes = length_strata(np.array([1, 1, 1, 2, 3, 9, 9, 9]), np.array([0, 0, 0, 0, 0, 1, 1, 1]), 2)
    assert codes.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    crossed = length_strata(np.array([1, 1, 2, 2]), np.zeros(4, int), 2, np.array([0, 1, 0, 1]))
    assert len(set(crossed.tolist())) == 4
    even = length_strata(np.arange(100), np.zeros(100, int), 10)
    assert np.bincount(even).tolist() == [10] * 10


def test_benjamini_hochberg_by_hand():
    assert benjamini_hochberg(np.array([0.04, 0.001, 0.03, 0.5])) == pytest.approx([0.16 / 3, 0.004, 0.16 / 3, 0.5])
    assert benjamini_hochberg(np.empty(0)).shape == (0,)


def test_shrinkage_finds_the_spread_of_true_effects():
    rng = np.random.default_rng(8)
    error = rng.uniform(0.02, 0.2, 4000)
    truth = rng.normal(0, 0.1, 4000)
    seen = truth + rng.normal(0, error)
    kept = shrinkage(seen, error, np.ones(4000, dtype=bool))
    assert kept == pytest.approx(0.01 / (0.01 + error**2), abs=0.05)
    assert np.mean((kept * seen - truth) ** 2) < 0.8 * np.mean((seen - truth) ** 2)
    none = shrinkage(rng.normal(0, 0.5 * error), error, np.ones(4000, dtype=bool))
    assert none.max() < 1e-3


@pytest.mark.parametrize(("chance", "graded", "size"), [(0.0, False, 1), (0.25, False, 1), (0.0, True, 1), (0.0, False, 3)])
def test_adjusted_intervals_cover(chance, graded, size):
    """Concepts of their own items raise or lower the expected score by up to .35; coverage per band of support."""
    rng = np.random.default_rng([size, int(graded), int(100 * chance)])
    n_units, runs = 1800, 60
    benchmarks, strata = rng.integers(0, 3, n_units), rng.integers(0, 5, n_units)
    sizes = np.exp(rng.uniform(np.log(8), np.log(90), 40)).astype(int)
    rows = rng.permutation(n_units)[: sizes.sum()]
    columns = np.repeat(np.arange(40), sizes)[: len(rows)]
    expected = 0.55 + 0.1 * (benchmarks - 1)
    expected[rows] += rng.uniform(-0.35, 0.35, 40)[columns]
    expected = np.clip(expected, 0.03, 0.97)
    item = np.repeat(np.arange(n_units), size)
    covered, supports = [], []
    for _ in range(runs):
        unit_saliency = sp.csr_matrix((rng.gamma(0.7, size=len(rows)) + 1e-6, (rows, columns)), shape=(n_units, 40))
        ability = rng.beta(2 * expected, 2 * (1 - expected))[item] if size > 1 else expected
        scores = rng.beta(3 * expected, 3 * (1 - expected)) if graded else (rng.random(len(item)) < ability).astype(float)
        observed, truth = (
            contrast(join_families(units, pooling_factors(units, 3)))
            for units in (
                make_units(unit_saliency[item], values, np.full(len(item), chance), benchmarks[item], strata[item], item)
                for values in (scores, expected[item])
            )
        )
        covered.append((observed.low <= truth.adjusted) & (truth.adjusted <= observed.high))
        supports.append(observed.support)
    hit, support = np.array(covered).ravel(), np.array(supports).ravel()
    for low, high in ((4, 10), (10, 25), (25, 80)):
        band = (support >= low) & (support < high)
        assert band.sum() > 200
        assert 0.93 <= hit[band].mean() <= 0.985


def test_any_discovery_under_permuted_scores_is_no_more_frequent_than_alpha():
    runs = 400
    shares = []
    for seed, least in ((0, 5.0), (1, 10.0)):
        found = run(null_suite(np.random.default_rng(seed), n_items=1200, n_concepts=200), bins=1)
        discoveries = null_discoveries(found.contrasts[-1], found.support[-1] >= least, ALPHA, runs, seed)
        shares.append((discoveries > 0).mean())
    assert max(shares) <= ALPHA + monte_carlo_error(ALPHA, runs)
    assert max(shares) > 0.005


def test_null_discoveries_are_those_of_whole_analyses():
    made = null_suite(np.random.default_rng(3), n_items=300, n_concepts=40)
    found = run(made, bins=1, min_n_eff=5.0)
    null, tested = found.contrasts[-1].null, found.support[-1] >= 5
    # At alpha .6 many draws discover something, so that the two counts have something to agree on.
    counts = null_discoveries(found.contrasts[-1], tested, 0.6, 30, 5)
    from gapscope.competency.permutation import draw_statistics

    ((_, _, table),) = draw_statistics(null, 30, 5)
    q = [benjamini_hochberg(null.p(table[:, draw].astype(float))[tested]) for draw in range(30)]
    assert np.mean(counts > 0) == pytest.approx(np.mean([(row < 0.6).any() for row in q]), abs=0.2)
    assert all(count <= (row < 0.6).sum() for count, row in zip(counts, q, strict=True))


def test_whole_analyses_of_suites_without_effects_discover_nothing():
    rng, runs = np.random.default_rng(10), 150
    any_found = [bool((run(null_suite(rng, n_items=500, n_concepts=80), bins=1, min_n_eff=5.0).q[-1] < ALPHA).any()) for _ in range(runs)]
    assert np.mean(any_found) <= ALPHA + monte_carlo_error(ALPHA, runs)


def test_planted_gaps_are_recovered_where_length_and_benchmark_confound():
    rng = np.random.default_rng(11)
    recall, false_share, raw_precision, unadjusted_false = [], [], [], []
    for _ in range(12):
        made = confounded_suite(rng)
        found = run(made)
        gaps = np.flatnonzero(found.status[-1] == GAP)
        recall.append(np.isin(made.planted, gaps).mean())
        false_share.append(1 - np.isin(gaps, made.planted).mean() if len(gaps) else 0.0)
        chi = reference(made.saliency, made.scores, made.benchmarks, np.arange(len(made.scores))).chi_model[-1]
        worst = np.argsort(chi)[: len(made.planted)]
        raw_precision.append(np.isin(worst, made.planted).mean())
        plain = calibrate(
            made.saliency,
            made.scores,
            np.zeros(len(made.scores)),
            np.zeros_like(made.benchmarks),
            np.zeros_like(made.benchmarks),
            np.arange(len(made.scores)),
            min_n_eff=10.0,
            alpha=ALPHA,
        )
        unadjusted = np.flatnonzero(plain.status[-1] == GAP)
        unadjusted_false.append(1 - np.isin(unadjusted, made.planted).mean())
    assert np.mean(recall) > 0.7
    assert np.mean(false_share) <= ALPHA + 0.04
    assert np.mean(raw_precision) < 0.5
    assert np.mean(unadjusted_false) > 0.3


@pytest.mark.parametrize("chance", [1.0, -0.1, np.nan])
def test_an_impossible_chance_is_refused(chance):
    saliency = sp.csr_matrix(np.ones((2, 1), dtype=np.float32))
    codes = np.zeros(2, dtype=np.int64)
    with pytest.raises(InputError, match="chance"):
        calibrate(saliency, np.array([1.0, 0.0]), np.array([chance, 0.0]), codes, codes, np.arange(2), min_n_eff=1.0, alpha=ALPHA)


def test_one_benchmark_is_the_suite():
    made = null_suite(np.random.default_rng(12), n_items=300, n_concepts=30)
    made.benchmarks[:] = 0
    found = run(made)
    # Saliency is rescaled for the suite, which moves the last bits.
    assert found.adjusted[0] == pytest.approx(found.adjusted[1], nan_ok=True)
    assert found.p[0] == pytest.approx(found.p[1], rel=1e-5, nan_ok=True)
    assert of_benchmark(
        make_units(made.saliency, made.scores, np.zeros(300), made.benchmarks, made.benchmarks, np.arange(300)), 0
    ).scores.shape == (300,)


def test_a_benchmark_without_scores_is_undefined_and_leaves_the_suite_alone():
    made = null_suite(np.random.default_rng(13), n_items=300, n_concepts=30)
    made.scores[made.benchmarks == 0] = np.nan
    found = run(made)
    assert (found.status[0] == UNDEFINED).all()
    assert np.isnan(found.adjusted[0]).all()
    assert found.adjusted[1] == pytest.approx(found.adjusted[2], nan_ok=True)


def test_errors_whose_squares_are_zero_shrink_nothing_and_warn_of_nothing():
    adjusted, error = np.array([0.0, 0.0, 0.3, np.nan]), np.array([1e-200, 0.0, 0.1, np.nan])
    with np.errstate(all="raise", under="ignore"):
        for tested in (np.array([True, True, False, False]), np.array([True, True, True, False])):
            kept = shrinkage(adjusted, error, tested)
            assert list(kept[:2]) == [1.0, 1.0]
            assert np.isnan(kept[3])
    assert kept[2] == pytest.approx(1 - 0.1**2 / 0.3**2)
