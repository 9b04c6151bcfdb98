"""What every validity check works on: one observer's items, the feature sets to compare, and the subjects' scores.

A *feature set* is any items x features matrix of non-negative weights: the SAE's concepts, or a control that takes their
place. Everything that is done to concepts is done to controls by the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gapscope.competency.activations import FloatArray, IntArray
from gapscope.competency.inference import Contrast, contrast, pooling_factors
from gapscope.competency.performance import SubjectScores, Suite, read_scores, read_suite
from gapscope.competency.permutation import permuted
from gapscope.competency.units import Units, cell_means, join_families, make_units
from gapscope.files import stable_hash
from gapscope.items import Item, read_items
from gapscope.params import PerformanceParams

CONCEPTS = "concepts"
"""The name of the feature set that is no control."""


@dataclass(frozen=True)
class Features:
    """One feature set: weights (I x F, CSR, at least 0), and features that are not tested (F, bool)."""

    name: str
    matrix: sp.csr_matrix
    excluded: np.ndarray

    @staticmethod
    def of(name: str, matrix: sp.csr_matrix) -> Features:
        """A set of which every feature is tested."""
        return Features(name, matrix, np.zeros(matrix.shape[1], dtype=bool))


@dataclass(frozen=True)
class Study:
    """One observer's suite with its subjects.

    Attributes:
        suite: items, saliency, families, strata, concepts not tested.
        items: the items themselves, in the order of the rows.
        subjects: scores by slug.
        groups: names of what is left out in turn: the benchmarks, or, of one benchmark alone, the values of strata.meta.
        group_codes: place in groups of each item (I); empty where there is only one group.
        performance: the parameters that the tested stage ran with.
        seed: of everything that is drawn here.
    """

    suite: Suite
    items: list[Item]
    subjects: dict[str, SubjectScores]
    groups: list[str]
    group_codes: IntArray
    performance: PerformanceParams
    seed: int

    @property
    def n_benchmarks(self) -> int:
        """Number of benchmarks in the suite."""
        return len(self.suite.rows.benchmarks)

    def concepts(self) -> Features:
        """The feature set under test."""
        return Features(CONCEPTS, self.suite.saliency, self.suite.excluded)

    def half(self, split: int) -> np.ndarray:
        """The first of two halves of the families (I, bool), by hash, so that another item moves none."""
        return np.array([stable_hash("halves", self.seed, split, item.family) % 2 == 0 for item in self.items])


@dataclass(frozen=True)
class View:
    """A subject as a feature set sees it, on all items or some.

    Attributes:
        units: families in each benchmark, saliency as it is.
        suite: the same with benchmarks pooled.
        one: the suite's comparison of features with their strata.
        tested: supported and not excluded (F, bool).
    """

    units: Units
    suite: Units
    one: Contrast
    tested: np.ndarray

    @property
    def sureness(self) -> FloatArray:
        """The effect over its error under the null (F): what the calibrated ranking is ordered by; NaN where not tested."""
        known = self.tested & (np.nan_to_num(self.one.error) > 0)
        sureness: FloatArray = np.divide(self.one.adjusted, self.one.error, out=np.full(len(known), np.nan), where=known)
        return sureness

    def raw(self, n_benchmarks: int) -> FloatArray:
        """chi_model over units (F), the raw ranking; NaN where not tested."""
        return np.where(self.tested, raw_chi(self.units, self.units.scores[:, None], n_benchmarks)[:, 0], np.nan)


def read_study(
    activations: Path, items: Path, coverage: Path, scores: Path, subjects: Sequence[str], performance: PerformanceParams, seed: int
) -> Study:
    """Read what performance read, and keep the items with it.

    Raises:
        InputError: as :func:`gapscope.competency.performance.read_suite` and ``read_scores``.
    """
    suite = read_suite(activations, items, coverage, performance.strata)
    by_id = {item.id: item for item in read_items(items)}
    ordered = [by_id[item_id] for item_id in suite.rows.item_ids]
    found = {subject: read_scores(scores / subject / "scores.parquet", suite.rows) for subject in sorted(subjects)}
    names = [item.benchmark for item in ordered]
    if len(suite.rows.benchmarks) == 1 and performance.strata.meta is not None:
        names = [str(item.meta.get(performance.strata.meta)) for item in ordered]
    groups, codes = np.unique(np.array(names, dtype=object), return_inverse=True)
    group_codes: IntArray = codes.astype(np.int64) if len(groups) > 1 else np.empty(0, dtype=np.int64)
    return Study(suite, ordered, found, list(groups), group_codes, performance, seed)


def view(study: Study, features: Features, subject: SubjectScores, chosen: np.ndarray | None = None, *, with_p: bool = True) -> View:
    """Compare the features with their strata on the chosen items (I, bool), or on all of them."""
    scores = subject.scores if chosen is None else np.where(chosen, subject.scores, np.nan)
    suite = study.suite
    units = make_units(features.matrix, scores, subject.chance, suite.rows.codes, suite.strata, suite.families)
    return view_units(study, features, units, with_p=with_p)


def view_units(study: Study, features: Features, units: Units, *, with_p: bool = True) -> View:
    """As :func:`view`, of units that have been made, or made up."""
    pooled = join_families(units, pooling_factors(units, study.n_benchmarks))
    one = contrast(pooled, study.performance.confidence, with_p=with_p)
    return View(units, pooled, one, ~features.excluded & (one.support >= study.performance.min_n_eff))


def raw_chi(units: Units, scores: FloatArray, n_benchmarks: int) -> FloatArray:
    """chi_model of the suite (F x D) for tables of the units' scores (U x D); NaN where undefined."""
    total, defined = np.zeros((units.saliency.shape[1], scores.shape[1])), np.zeros((units.saliency.shape[1], 1))
    for code in range(n_benchmarks):
        rows = np.flatnonzero(units.benchmarks == code)
        part = units.saliency[rows]
        mass = np.asarray(part.sum(axis=0), dtype=np.float64).reshape(-1, 1)
        total += np.divide(part.T @ scores[rows], mass, out=np.zeros_like(total), where=mass > 0)
        defined += mass > 0
    chi: FloatArray = np.divide(total, defined, out=np.full_like(total, np.nan), where=defined > 0)
    return chi


def merge(units: Units, groups: Sequence[IntArray]) -> Units:
    """Units whose only features are the groups: each the mean of its members' weights, every member scaled to sum to 1.

    The effect of such a feature is the mean effect of the members, and :func:`contrast` gives it an honest interval however
    much they share items. Groups may be empty, and then are undefined.
    """
    mass = np.asarray(units.saliency.sum(axis=0), dtype=np.float64).ravel()
    known = [group[mass[group] > 0] for group in groups]
    columns = np.repeat(np.arange(len(known)), [len(group) for group in known])
    rows = np.concatenate([*known, np.empty(0, dtype=np.int64)]).astype(np.int64)
    values = 1 / mass[rows] / np.array([len(known[column]) for column in columns])
    selector = sp.csr_matrix((values, (rows, columns)), shape=(len(mass), len(known)))
    merged = sp.csr_matrix(units.saliency @ selector)
    merged.sort_indices()
    return Units(merged, units.scores, units.floors, units.benchmarks, units.cells, units.families, units.n_alone)


def ends(order: FloatArray, count: int) -> tuple[IntArray, IntArray]:
    """The lowest and highest features of a ranking (F, NaN left out), at most a tenth of it each; lower index first of equals."""
    ranked = np.flatnonzero(~np.isnan(order))
    ranked = ranked[np.lexsort((ranked, order[ranked]))]
    size = min(count, len(ranked) // 10)
    return np.sort(ranked[:size]), np.sort(ranked[len(ranked) - size :])


def shuffled(units: Units, n_draws: int, seed: int) -> FloatArray:
    """Scores permuted inside their cells (U x D): who is right changes, how hard a benchmark and a length are does not."""
    base = cell_means(units.scores, units.cells)[units.cells]
    table = permuted(units.scores - base, units.cells, n_draws, np.random.default_rng(seed))
    scores: FloatArray = base[:, None] + table.astype(np.float64)
    return scores
