"""Studies with known truth, made without files, for the tests of the validity checks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from made_suites import Made

from gapscope.competency.activations import Rows
from gapscope.competency.performance import SubjectScores, Suite
from gapscope.competency.study import Study
from gapscope.competency.units import length_strata
from gapscope.items import Item
from gapscope.params import PerformanceParams


def made_study(
    made: Made, *, subjects: dict[str, np.ndarray] | None = None, texts: list[str] | None = None, min_n_eff: float = 8.0
) -> Study:
    """A study of a made suite: every item a family, its benchmark named by its code, scores free of chance."""
    n_items = len(made.scores)
    names = [f"b{code}" for code in sorted(set(made.benchmarks.tolist()))]
    items = [
        Item(f"i{k:04d}", names[code], f"f{k:04d}", texts[k] if texts else f"question {k}", ("a", "b"), 0)
        for k, code in enumerate(made.benchmarks.tolist())
    ]
    nothing = np.zeros(n_items, dtype=np.int64)
    rows = Rows([item.id for item in items], names, made.benchmarks.astype(np.int64), made.lengths, nothing, nothing)
    strata = length_strata(made.lengths, made.benchmarks, 5)
    suite = Suite(rows, sp.csr_matrix(made.saliency), np.arange(n_items), strata, np.zeros(made.saliency.shape[1], dtype=bool))
    scores = subjects or {"one": made.scores}
    found = {name: SubjectScores(values.astype(float), np.zeros(n_items), 0) for name, values in scores.items()}
    codes = made.benchmarks.astype(np.int64) if len(names) > 1 else np.empty(0, dtype=np.int64)
    return Study(suite, items, found, names, codes, PerformanceParams(min_n_eff=min_n_eff), 20)


def strong_suite(seed: int, n_items: int = 2400, n_concepts: int = 60) -> Made:
    """Concepts 0 to 4 halve the chance to be right where they fire, 5 to 9 raise it; two benchmarks, lengths without effect."""
    rng = np.random.default_rng(seed)
    benchmarks = np.repeat([0, 1], n_items // 2)
    firing = rng.random((n_items, n_concepts)) < 0.08
    ease = np.array([0.75, 0.45])[benchmarks] - 0.3 * firing[:, :5].any(axis=1) + 0.3 * firing[:, 5:10].any(axis=1)
    scores = (rng.random(n_items) < np.clip(ease, 0.02, 0.98)).astype(float)
    saliency = sp.csr_matrix(firing).astype(np.float32)
    saliency.data = (rng.gamma(2.0, size=len(saliency.data)) + 0.1).astype(np.float32)
    return Made(saliency, scores, benchmarks, rng.integers(5, 60, n_items), np.arange(5))
