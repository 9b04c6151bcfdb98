"""Do labels and clusters come out the same when other contexts are at hand?

Nothing in them is drawn at random, so what could differ is which contexts an extraction happened to see. In each draw the
items are cut in halves by hash, the named concepts are labelled and clustered from the contexts of each half alone, and the
two outcomes are compared: keywords of the same concept by Jaccard's index, beside that of two different concepts taken at
random; clusters by the adjusted Rand index (0 is chance, 1 the same; Hubert and Arabie 1985).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from gapscope.artifacts import CLUSTERS
from gapscope.competency.cluster import distances, group, read_decoder
from gapscope.competency.labels import KEYWORDS, Label, keyword_labels, read_contexts
from gapscope.competency.outcome import Outcome, mean_of_draws
from gapscope.competency.study import CONCEPTS
from gapscope.files import stable_hash
from gapscope.params import ClusterParams

MOST = 300
"""Concepts that are looked at: those of the clusters table, by hash where there are more."""


def stability(
    activations: Path, clusters: Path, sae: Path, firing: sp.csr_matrix, item_ids: list[str], params: ClusterParams, n_draws: int, seed: int
) -> list[Outcome]:
    """Agreement of labels and clusters made from two halves of the contexts, over draws."""
    concepts = _named(clusters, seed)
    contexts = read_contexts(activations / "contexts.parquet")
    directions = read_decoder(sae, concepts)
    pairs = [_halves(contexts, concepts, firing, item_ids, params, [seed, draw]) for draw in range(n_draws)]
    same = [_jaccards(first, second, concepts, 0) for first, second in pairs]
    others = [_jaccards(first, second, concepts, 1) for first, second in pairs]
    rand = [_rand(halves, concepts, directions, params) for halves in pairs]
    outcomes = []
    for quantity, draws, n in (
        ("keywords_same", same, len(concepts)),
        ("keywords_others", others, len(concepts)),
        ("clusters", rand, n_draws),
    ):
        value, low, high = mean_of_draws(np.array(draws, dtype=np.float64), -1.0, 1.0)
        outcomes.append(Outcome(CONCEPTS, "", "", "", quantity, value, low, high, 0 if np.isnan(value) else n))
    return outcomes


def _named(clusters: Path, seed: int) -> list[int]:
    """Concepts whose label in the clusters table is of keywords, at most :data:`MOST`."""
    table = CLUSTERS.read(clusters, ["concept", "label_source"])
    found = set(table.filter(pc.equal(table["label_source"], KEYWORDS))["concept"].to_pylist())
    return sorted(sorted(found, key=lambda concept: stable_hash("stability", seed, concept))[:MOST])


def _halves(
    contexts: pa.Table, concepts: list[int], firing: sp.csr_matrix, item_ids: list[str], params: ClusterParams, key: list[int]
) -> list[dict[int, Label]]:
    names = contexts["item_id"].unique().to_pylist()
    first = pa.array([name for name in names if stable_hash("contexts", *key, name) % 2 == 0], pa.string())
    inside = pc.is_in(contexts["item_id"], first)
    parts = [contexts.filter(mask) for mask in (inside, pc.invert(inside))]
    return [keyword_labels(part, concepts, firing, item_ids, params.keywords) for part in parts]


def _keywords(label: Label) -> set[str]:
    return set(label.text.split(", ")) if label.words else set()


def _jaccards(first: dict[int, Label], second: dict[int, Label], concepts: list[int], shift: int) -> float:
    """Mean Jaccard of keywords of each concept with the concept ``shift`` further on."""
    values = []
    for place, concept in enumerate(concepts):
        one, other = _keywords(first[concept]), _keywords(second[concepts[(place + shift) % len(concepts)]])
        if one and other:
            values.append(len(one & other) / len(one | other))
    return float(np.mean(values)) if values else float("nan")


def _rand(halves: list[dict[int, Label]], concepts: list[int], directions: np.ndarray, params: ClusterParams) -> float:
    from sklearn.metrics import adjusted_rand_score

    if len(concepts) < 2:
        return float("nan")
    codes = []
    for labels in halves:
        distance = distances(directions, [labels[concept].words for concept in concepts], params.label_weight)
        code = np.empty(len(concepts), dtype=np.int64)
        for number, members in enumerate(group(distance, params.max_distance, params.max_cluster_size)):
            code[members] = number
        codes.append(code)
    return float(adjusted_rand_score(*codes))
