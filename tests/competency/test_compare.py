from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from gapscope.artifacts import CHANGES, SUITE
from gapscope.competency.activations import Rows
from gapscope.competency.compare import compare, write_comparisons
from gapscope.competency.performance import SubjectScores, Suite
from gapscope.errors import InputError
from gapscope.params import PerformanceParams
from tests.competency.made_activations import write_scores
from tests.competency.made_suites import sparse_saliency

PARAMS = PerformanceParams(min_n_eff=5.0)


def make_suite(saliency: np.ndarray | sp.csr_matrix, codes: np.ndarray | None = None, families: np.ndarray | None = None) -> Suite:
    matrix = sp.csr_matrix(saliency)
    n = matrix.shape[0]
    codes = np.zeros(n, dtype=np.int64) if codes is None else codes
    names = [f"b{code}" for code in range(int(codes.max()) + 1)]
    rows = Rows([f"i{k:04d}" for k in range(n)], names, codes, np.full(n, 10), np.zeros(n, np.int64), np.zeros(n, np.int64))
    return Suite(rows, matrix, np.arange(n) if families is None else families, codes, np.zeros(matrix.shape[1], bool))


def subject(scores: np.ndarray) -> SubjectScores:
    return SubjectScores(scores.astype(float), np.zeros(len(scores)), 0)


def drawn(seed: int, n: int = 800, n_concepts: int = 60) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Saliency, and two subjects' scores that have nothing to do with any concept: the second is right more often."""
    rng = np.random.default_rng(seed)
    firing = rng.random((n, n_concepts)) < np.exp(rng.uniform(np.log(0.03), np.log(0.3), n_concepts))
    first = (rng.random(n) < 0.5).astype(float)
    second = np.where(rng.random(n) < 0.5, (rng.random(n) < 0.9).astype(float), first)
    return sparse_saliency(rng, firing), first, second


def test_differences_by_hand():
    saliency = np.array([[1, 1], [3, 0], [2, 2], [0, 4], [1, 0], [5, 5]])
    first, second = subject(np.array([0, 1, 0, 1, 1, np.nan])), subject(np.array([1, 1, 1, 0, 0, 1]))
    found = compare(make_suite(saliency), first, second, PARAMS)
    # Concept 0 over items 0 to 4, weights 1 3 2 0 1; the last item has no score of the first.
    assert found.first[-1] == pytest.approx([4 / 7, 4 / 7])
    assert found.second[-1] == pytest.approx([6 / 7, 3 / 7])
    assert found.difference[-1] == pytest.approx([2 / 7, -1 / 7])
    assert (found.n[-1].tolist(), found.n_gained[-1].tolist(), found.n_lost[-1].tolist()) == ([4, 3], [2, 2], [1, 1])
    assert (found.n_items, found.n_only_one) == (5, 1)
    assert found.total[:3] == pytest.approx((3 / 5, 3 / 5, 0.0))


def test_the_suites_difference_is_the_mean_over_benchmarks():
    codes = np.array([0, 0, 0, 1, 1])
    first, second = np.array([0, 0, 0, 0, 1]), np.array([1, 1, 0, 0, 0])
    found = compare(make_suite(np.ones((5, 1)), codes), subject(first), subject(second), PARAMS)
    assert found.difference[:, 0] == pytest.approx([2 / 3, -1 / 2, 1 / 12])


def test_swapping_the_subjects_turns_every_sign_and_nothing_else():
    saliency, first, second = drawn(1)
    there, back = (compare(make_suite(saliency), subject(a), subject(b), PARAMS) for a, b in ((first, second), (second, first)))
    assert there.difference == pytest.approx(-back.difference)
    assert there.low == pytest.approx(-back.high)
    assert there.p == pytest.approx(back.p)
    assert there.relative.adjusted == pytest.approx(-back.relative.adjusted)
    assert (there.n_gained == back.n_lost).all()


def test_a_subject_against_itself():
    saliency, first, _ = drawn(2)
    found = compare(make_suite(saliency), subject(first), subject(first), PARAMS)
    assert (found.difference[-1] == 0).all()
    assert (found.p[-1] == 1).all()
    assert not found.relative.findings(0)[-1]
    # None of 800 families differs: no more than about 2 in 800 do, whichever way.
    assert found.total[3] == pytest.approx(-found.total[4])
    assert 0.002 < found.total[4] < 0.0035
    assert (found.high[-1] < 3 / found.n_eff[-1]).all()
    relative = found.relative
    assert ((relative.low[-1] < 0) & (relative.high[-1] > 0) & (2 * relative.high[-1] < 3 / found.n_eff[-1])).all()


def test_better_everywhere_is_not_ahead_anywhere_and_a_planted_loss_is_found():
    saliency, first, second = drawn(3)
    plain = compare(make_suite(saliency), subject(first), subject(second), PARAMS)
    assert (plain.q[-1] < 0.05).sum() > 3, "the second is better overall, and many concepts show it"
    assert not (plain.relative.status[-1] < 2).any()
    carries = saliency[:, 40].toarray().ravel() > 0
    hurt = compare(make_suite(saliency), subject(first), subject(np.where(carries, 0.0, second)), PARAMS)
    assert hurt.relative.status[-1, 40] == 0
    assert hurt.difference[-1, 40] < 0
    assert hurt.q[-1, 40] < 1e-4


def test_few_false_discoveries_where_the_two_are_alike():
    discovered = 0
    for seed in range(40):
        saliency, first, _ = drawn(seed, n=300, n_concepts=40)
        other = np.random.default_rng([seed, 1]).permutation(first)
        found = compare(make_suite(saliency), subject(first), subject(other), PARAMS)
        discovered += bool((found.q[-1] < 0.05).any()) or bool((found.relative.status[-1] < 2).any())
    # Two procedures at 5% each: 4 of 40 are expected at most, 9 are three standard errors above.
    assert discovered <= 9


def test_a_family_is_one_piece_of_evidence():
    saliency, gain = np.ones((40, 1)), np.array([1.0] * 28 + [0.0] * 12)
    alone = compare(make_suite(saliency), subject(1 - gain), subject(gain), PARAMS)
    together = compare(make_suite(saliency, families=np.arange(40) // 4), subject(1 - gain), subject(gain), PARAMS)
    assert alone.p[-1, 0] == pytest.approx(0.0166, abs=0.001)
    # Ten families of which seven gain: 2 * P(X >= 7), X binomial of 10 and a half.
    assert together.p[-1, 0] == pytest.approx(0.34375, rel=0.03)


def test_no_item_in_common():
    with pytest.raises(InputError, match="no scored item in common"):
        compare(make_suite(np.ones((2, 1))), subject(np.array([1, np.nan])), subject(np.array([np.nan, 1])), PARAMS)


def test_table_and_metrics_are_stable_and_name_the_pairs(tmp_path):
    saliency, first, second = drawn(5, n=120, n_concepts=8)
    suite = make_suite(saliency, codes=np.arange(120) % 2)
    for slug, scores in (("old", first), ("new", second), ("third", first)):
        write_scores(tmp_path / "scores" / slug, dict(zip(suite.rows.item_ids, scores.tolist(), strict=True)))
    pairs = [("old", "new"), ("new", "third")]
    metrics = write_comparisons(suite, tmp_path / "scores", pairs, tmp_path / "a.parquet", PARAMS)
    assert write_comparisons(suite, tmp_path / "scores", pairs[::-1], tmp_path / "b.parquet", PARAMS) == metrics
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    json.dumps(metrics, allow_nan=False)
    assert (metrics["n_pairs"], metrics["old"]["new"]["n_items"]) == (2, 120)
    assert metrics["old"]["new"]["difference"] == pytest.approx(-metrics["new"]["third"]["difference"])
    rows = CHANGES.read(tmp_path / "a.parquet").to_pylist()
    assert len(rows) == 2 * 3 * 8
    assert [row["concept"] for row in rows if (row["other"], row["benchmark"]) == ("new", SUITE)] == list(range(8))
    assert write_comparisons(suite, tmp_path / "scores", [], tmp_path / "none.parquet", PARAMS) == {"n_pairs": 0}
    assert CHANGES.read(tmp_path / "none.parquet").num_rows == 0
