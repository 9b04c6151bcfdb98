"""Concepts that stand out, grouped by what they are about and named.

What the metrics file says, in plain words (the README quotes these):

- ``n_concepts``: concepts that stand out for coverage or for any subject; ``n_without_context``: those that fire on no
  item, so that there is nothing to take a label from.
- ``label_score_median``: median over concepts of how well a label detects contexts that it was not written from (area
  under the ROC curve; 0.5 is guessing); ``n_scored``: concepts with such a score.
- ``coverage`` and ``subjects.<subject>.<kind>``: concepts of each kind and the clusters they form; ``n_left_out``: concepts
  of the kind beyond cluster.max_concepts. Kinds: gap and strength are flagged at the stated error rate, lowest and highest
  are the ends of the rankings, by raw chi_model and by the shrunk estimate, that are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gapscope.artifacts import CLUSTERS
from gapscope.competency.activations import FloatArray, read_matrix, read_rows
from gapscope.competency.labels import NO_CONTEXTS, NO_LABEL, Label, common_words, keyword_labels, read_contexts
from gapscope.competency.selection import Selection, select_coverage, select_subject
from gapscope.errors import InputError
from gapscope.files import require_file
from gapscope.labels.write import Evidence, LabelSources, better_labels, name_clusters, write_replies
from gapscope.params import ClusterParams

KINDS = {
    "gap": "features of questions on which a model does worse than on comparable ones",
    "strength": "features of questions on which a model does better than on comparable ones",
    "lowest": "features of the questions on which a model scores lowest, as chance may have it",
    "highest": "features of the questions on which a model scores highest, as chance may have it",
    "coverage": "features that the questions of a suite of benchmarks hardly contain",
}
"""What a language model is told of the concepts of each selection."""


@dataclass(frozen=True)
class Group:
    """A cluster of concepts of one selection: ascending indices, and its name."""

    concepts: list[int]
    name: str


def read_decoder(sae: Path, concepts: list[int]) -> FloatArray:
    """Unit decoder directions (len(concepts) x d_in) of an SAE in SAELens's own format, read without torch.

    Raises:
        InputError: no such file, no W_dec, a type numpy does not know, or fewer latents than a concept's index.
    """
    import safetensors

    path = require_file(sae / "sae_weights.safetensors")
    try:
        with safetensors.safe_open(path, framework="np") as tensors:
            if "W_dec" not in tensors.keys():  # noqa: SIM118 - not a mapping
                raise InputError("has no W_dec", file=path, fix="an SAE saved by SAELens has one")
            weights = tensors.get_tensor("W_dec")
    except TypeError as error:
        raise InputError(f"W_dec: {error}", file=path, fix="save the SAE in float32") from error
    except safetensors.SafetensorError as error:
        raise InputError(f"not readable: {error}", file=path, fix="run train-sae again") from error
    if concepts and max(concepts) >= len(weights):
        raise InputError(
            f"has {len(weights)} latents, concept {max(concepts)} is asked for", file=path, fix="give the SAE of the activations"
        )
    chosen = weights[concepts].astype(np.float64)
    norms = np.linalg.norm(chosen, axis=1, keepdims=True)
    directions: FloatArray = np.divide(chosen, norms, out=np.zeros_like(chosen), where=norms > 0)
    return directions


def distances(directions: FloatArray, words: list[dict[str, float]], label_weight: float) -> FloatArray:
    """Distance between concepts (n x n): (1 - w)(1 - cosine of decoder directions) + w (1 - cosine of label words)."""
    vocabulary = {word: column for column, word in enumerate(sorted({word for weights in words for word in weights}))}
    cells: list[tuple[int, int, float]] = []
    for row, weights in enumerate(words):
        norm = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
        cells += [(row, vocabulary[word], weight / norm) for word, weight in weights.items()]
    rows, columns, values = zip(*cells, strict=True) if cells else ((), (), ())
    vectors = sp.csr_matrix((values, (rows, columns)), shape=(len(words), max(len(vocabulary), 1)))
    alike = (vectors @ vectors.T).toarray()
    similarity = (1 - label_weight) * directions @ directions.T + label_weight * alike
    # Rounded, because the last bits of a matrix product depend on the number of threads.
    mixed: FloatArray = np.round(np.clip(1 - similarity, 0, None), 6)
    return (mixed + mixed.T) / 2


def group(distance: FloatArray, max_distance: float, max_size: int) -> list[list[int]]:
    """Agglomerative clustering by average linkage, cut where clusters would grow too far apart or too large.

    A cluster is a largest branch of the tree of at most ``max_size`` members that joined at no more than
    ``max_distance``; what joins nothing is a cluster of its own. Rows must come in a fixed order, since ties are broken by
    it. Clusters come largest first, then by smallest member, members ascending.
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    n = len(distance)
    if n < 2:
        return [[row] for row in range(n)]
    tree = linkage(squareform(distance, checks=False), method="average")
    members: dict[int, list[int]] = {row: [row] for row in range(n)}
    whole = set(range(n))
    for step, (left, right, height, _size) in enumerate(tree.tolist()):
        first, second = int(left), int(right)
        members[n + step] = members[first] + members[second]
        if first in whole and second in whole and height <= max_distance and len(members[n + step]) <= max_size:
            whole = (whole - {first, second}) | {n + step}
    return sorted((sorted(members[node]) for node in whole), key=lambda rows: (-len(rows), rows[0]))


def cluster_selection(
    selection: Selection, labels: dict[int, Label], directions: dict[int, FloatArray], params: ClusterParams
) -> list[Group]:
    """Group the concepts of one selection and name each group by the words that its members share."""
    concepts = selection.concepts
    if not concepts:
        return []
    words = [labels[concept].words for concept in concepts]
    distance = distances(np.stack([directions[concept] for concept in concepts]), words, params.label_weight)
    groups: list[Group] = []
    for rows in group(distance, params.max_distance, params.max_cluster_size):
        shared = common_words([words[row] for row in rows if words[row]], params.keywords)
        groups.append(Group([concepts[row] for row in rows], shared or NO_CONTEXTS))
    return groups


def select(coverage: Path, performances: dict[str, Path], params: ClusterParams) -> list[Selection]:
    """Everything that stands out: coverage gaps, then each subject's gaps, strengths and ends of the ranking.

    Raises:
        InputError: a table is absent, damaged or has no suite rows.
    """
    gaps, structural = select_coverage(coverage / "coverage.parquet", params.max_concepts)
    selections = [gaps]
    for subject, path in sorted(performances.items()):
        selections += select_subject(path, subject, structural, params.extremes, params.max_concepts)
    return selections


def performance_files(performance: Path) -> dict[str, Path]:
    """The tables of a performance output, one file or a directory, by subject.

    Raises:
        InputError: there is none.
    """
    files = [performance] if performance.is_file() else sorted(performance.glob("*.parquet"))
    if not files:
        raise InputError("holds no performance table", file=performance, fix="give the output of gapscope performance")
    return {file.stem: file for file in files}


@dataclass(frozen=True)
class Inputs:
    """What the cluster stage reads: outputs of the stages before it, and an SAE in SAELens's own format."""

    coverage: Path
    performance: Path
    activations: Path
    sae: Path


def write_clusters(
    inputs: Inputs, output: Path, params: ClusterParams, sources: LabelSources | None = None, labels_output: Path | None = None
) -> dict[str, Any]:
    """Select, label, group and name; write the clusters table to ``output`` and return the headline metrics.

    ``sources`` are labels besides keywords; what was published and asked for them goes into the directory ``labels_output``.

    Raises:
        InputError: an input is absent, damaged or of another run, or the language model of ``sources`` cannot be had.
    """
    coverage, performance, activations, sae = inputs.coverage, inputs.performance, inputs.activations, inputs.sae
    sources = sources or LabelSources()
    selections = select(coverage, performance_files(performance), params)
    concepts = sorted({concept for selection in selections for concept in selection.concepts})
    rows = read_rows(activations)
    firing = read_matrix(activations, "firing", rows)
    if concepts and concepts[-1] >= firing.shape[1]:
        message = f"has {firing.shape[1]} concepts, the tables have {concepts[-1] + 1} or more"
        raise InputError(message, file=activations / "firing.npz", fix="give the activations that coverage was computed from")
    contexts = read_contexts(activations / "contexts.parquet")
    keywords = keyword_labels(contexts, concepts, firing, rows.item_ids, params.keywords)
    labels, report = better_labels(keywords, Evidence(contexts, firing, rows.item_ids), sources)
    directions = dict(zip(concepts, read_decoder(sae, concepts), strict=True))
    groups = [cluster_selection(selection, labels, directions, params) for selection in selections]
    groups = rename(selections, groups, labels, sources)
    CLUSTERS.write(output, _columns(selections, groups, labels))
    metrics = headlines(selections, groups, labels)
    if labels_output is not None:
        report = write_replies(labels_output, report, sources.replies, sources.asking)
    return {**metrics, "labels": report} if sources.any else metrics


def rename(selections: list[Selection], groups: list[list[Group]], labels: dict[int, Label], sources: LabelSources) -> list[list[Group]]:
    """The groups with better names, where there are better labels: a group of one is called by its label.

    A group of several that a language model can be asked about has the name and the paragraph that this writes; where there
    is none, or its reply is unusable, the words that its members share stay.
    """
    if not sources.any:
        return groups
    several = [(kind, one) for kind, found in enumerate(groups) for one in found if len(one.concepts) > 1 and one.name != NO_CONTEXTS]
    names: dict[tuple[int, int], str] = {}
    if sources.replies is not None:
        asked = [(KINDS[selections[kind].kind], [labels[concept].text for concept in one.concepts]) for kind, one in several]
        for (kind, one), name in zip(several, name_clusters(asked, sources.replies), strict=True):
            names |= {} if name is None else {(kind, one.concepts[0]): name}
    for kind, found in enumerate(groups):
        names |= {(kind, one.concepts[0]): labels[one.concepts[0]].text for one in found if len(one.concepts) == 1}
    return [[Group(one.concepts, names.get((kind, one.concepts[0]), one.name)) for one in found] for kind, found in enumerate(groups)]


def _columns(selections: list[Selection], groups: list[list[Group]], labels: dict[int, Label]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {column.name: [] for column in CLUSTERS.columns}
    for selection, found in zip(selections, groups, strict=True):
        for number, one in enumerate(found, start=1):
            for concept in one.concepts:
                label = labels[concept]
                row = (concept, selection.subject, f"{selection.kind}_{number:03d}", label.text, label.source, label.score, one.name)
                for values, value in zip(columns.values(), row, strict=True):
                    values.append(value)
    return columns


def headlines(selections: list[Selection], groups: list[list[Group]], labels: dict[int, Label]) -> dict[str, Any]:
    """The metrics of the cluster stage, as the module's docstring explains them."""
    scores = [label.score for label in labels.values() if label.score is not None]
    metrics: dict[str, Any] = {
        "n_concepts": len(labels),
        "n_without_context": sum(label.source == NO_LABEL for label in labels.values()),
        "n_scored": len(scores),
        "subjects": {},
    }
    if scores:
        metrics["label_score_median"] = float(np.median(scores))
    for selection, found in zip(selections, groups, strict=True):
        counts = {"n_concepts": len(selection.concepts), "n_clusters": len(found), "n_left_out": selection.n_left_out}
        if selection.subject is None:
            metrics[selection.kind] = counts
        else:
            metrics["subjects"].setdefault(selection.subject, {})[selection.kind] = counts
    return metrics
