from __future__ import annotations

import numpy as np
import pytest
from made_suites import sparse_saliency

from gapscope.competency.inference import calibrate
from gapscope.competency.power import plan, smallest_gap, suite_support, support_needed
from gapscope.errors import InputError


def test_a_gap_of_the_planned_size_is_found_with_the_planned_power():
    rng = np.random.default_rng(0)
    level, accuracy, wanted, n_items, carrying = 0.01, 0.65, 0.8, 1500, 120
    shares = []
    for _ in range(5):
        firing = np.zeros((n_items, 60), dtype=bool)
        firing[:carrying] = rng.random((carrying, 60)) < 0.5
        saliency = sparse_saliency(rng, firing)
        codes = np.zeros(n_items, dtype=np.int64)
        support = suite_support(saliency, codes, codes, np.arange(n_items))
        gap = float(smallest_gap(np.array([np.median(support)]), accuracy, 0.0, level, wanted)[0])
        for _ in range(12):
            scores = (rng.random(n_items) < np.where(np.arange(n_items) < carrying, accuracy - gap, accuracy)).astype(float)
            found = calibrate(saliency, scores, np.zeros(n_items), codes, codes, np.arange(n_items), min_n_eff=5.0, alpha=0.05)
            shares.append(((found.p[-1] <= level) & (found.adjusted[-1] < 0)).mean())
    # The carrying items pull the mean down by their share, and the median stands for all supports.
    assert 0.65 <= np.mean(shares) <= 0.9


def test_smallest_gap_by_hand():
    # One trial at accuracy .9751: wrong has probability just below .05/2, and probability .8 where the accuracy is .2.
    assert smallest_gap(np.array([1.0]), 0.9751, 0.0, 0.05, 0.8)[0] == pytest.approx(0.7751, abs=0.003)
    # Five trials at .5 have probability 1/32 of all wrong: above .05/2, so nothing is ever found; six give 1/64.
    assert np.isnan(smallest_gap(np.array([5.0]), 0.5, 0.0, 0.05, 0.8)[0])
    assert smallest_gap(np.array([6.0]), 0.5, 0.0, 0.05, 0.8)[0] <= 0.5
    assert np.isnan(smallest_gap(np.array([0.0]), 0.5, 0.0, 0.05, 0.8)[0])


def test_more_support_shows_smaller_gaps():
    gaps = smallest_gap(np.arange(10, 500, 7.0), 0.6, 0.25, 0.001, 0.8)
    seen = gaps[~np.isnan(gaps)]
    assert (np.diff(seen) < 0).all()
    assert len(seen) > 60
    # In large samples it is near (z_level + z_power) standard deviations.
    large = smallest_gap(np.array([1e5]), 0.6, 0.0, 0.05, 0.8)[0]
    assert large == pytest.approx((1.96 + 0.8416) * np.sqrt(0.24 / 1e5), rel=0.02)


def test_support_needed_inverts_smallest_gap():
    needed = support_needed(0.2, 0.6, 0.25, 0.001, 0.8)
    assert smallest_gap(np.array([needed]), 0.6, 0.25, 0.001, 0.8)[0] == pytest.approx(0.2, abs=1e-3)
    assert np.isnan(support_needed(0.9, 0.6, 0.25, 0.001, 0.8))


def test_plan_counts_items_at_the_present_make_up():
    support = np.array([0.0, 12.0, 60.0, 4000.0])
    found = plan(support, 1000, accuracy=0.6, chance=0.2, gap=0.3, alpha=0.05, power=0.8, min_n_eff=20.0)
    assert found.level == 0.05 / 2
    assert np.isnan(found.smallest_gap[:2]).all()
    assert found.smallest_gap[2] > found.smallest_gap[3]
    assert np.isnan(found.items_more[0])
    assert found.items_more[1] == np.ceil(1000 * (found.support_needed / 12 - 1))
    assert found.items_more[3] == 0
    milder = plan(support, 1000, accuracy=0.6, chance=0.2, gap=0.3, alpha=0.05, power=0.8, min_n_eff=20.0, discoveries=2)
    assert milder.level == 0.05
    assert milder.support_needed < found.support_needed


def test_suite_support_adds_benchmarks_and_counts_families():
    saliency = sparse_saliency(np.random.default_rng(1), np.ones((8, 1), dtype=bool))
    saliency.data[:] = 1
    benchmarks = np.repeat([0, 1], 4)
    zeros = np.zeros(8, dtype=np.int64)
    assert suite_support(saliency, benchmarks, zeros, np.arange(8)).tolist() == [8]
    assert suite_support(saliency, benchmarks, zeros, np.arange(8) // 2).tolist() == [4]


@pytest.mark.parametrize("field", ["accuracy", "gap", "alpha", "power", "chance"])
def test_what_cannot_be_is_refused(field):
    values = {"accuracy": 0.6, "chance": 0.2, "gap": 0.3, "alpha": 0.05, "power": 0.8, "min_n_eff": 5.0, field: 1.0}
    with pytest.raises(InputError, match=field):
        plan(np.array([30.0]), 100, **values)
