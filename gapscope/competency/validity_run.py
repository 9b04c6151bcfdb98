"""The validity stage as one function: from the artifacts of a run to its tables, plots and metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.artifacts import VALIDITY
from gapscope.competency.activations import read_matrix, read_rows
from gapscope.competency.features import bag_of_words, embedding_clusters, item_words, metadata, random_dictionary
from gapscope.competency.outcome import CALIBRATED, Outcome, averaged, columns
from gapscope.competency.stability import stability
from gapscope.competency.study import Features, Study, read_study
from gapscope.competency.validity import Others, metrics_of, run_checks
from gapscope.errors import InputError
from gapscope.files import atomic_directory, dump_json, rounded, write_bytes
from gapscope.params import Params

logger = logging.getLogger(__name__)

CONTROLS = {"random": "random dictionary", "words": "bag of words", "sentences": "sentence clusters", "metadata": "metadata and length"}
PLOT_DIGITS = 4


@dataclass(frozen=True)
class RunPaths:
    """Where a run's artifacts lie: directories with one entry an observer, subject or source, and two files."""

    items: Path
    activations: Path
    coverage: Path
    clusters: Path
    scores: Path
    sae: Path
    raw: Path
    corpus: Path | None


def write_validity(paths: RunPaths, output: Path, plots: Path, params: Params, work: Path, device: str) -> dict[str, Any]:
    """Write ``<observer>/<check>.parquet`` into ``output`` and the data of plots into ``plots``; return the metrics.

    Raises:
        InputError: an artifact is absent, damaged or does not belong to the others.
    """
    tables: dict[str, dict[str, list[Outcome]]] = {}
    for key in sorted(params.observers):
        study = read_study(
            paths.activations / key, paths.items, paths.coverage / key, paths.scores, sorted(params.models), params.performance, params.seed
        )
        others = Others(_controls(study, key, paths, params, device), _matched(study, key, paths, params, work, device))
        tables[key] = run_checks(study, others, partial(_stability, study, key, paths, params), params.validity, params.threads)
    with atomic_directory(output) as directory:
        for key, checks in tables.items():
            (directory / key).mkdir()
            for check, outcomes in checks.items():
                VALIDITY.write(directory / key / f"{check}.parquet", columns(outcomes))
    with atomic_directory(plots) as directory:
        for name, rows in plot_rows(tables).items():
            lines = [dump_json(rounded(row, PLOT_DIGITS)) for row in rows]
            write_bytes(directory / f"{name}.json", ("[\n" + ",\n".join(lines) + "\n]\n").encode())
    metrics: dict[str, Any] = {}
    for key, checks in tables.items():
        for check, numbers in metrics_of(checks).items():
            metrics.setdefault(check, {})[key] = numbers
    return metrics


def _controls(study: Study, key: str, paths: RunPaths, params: Params, device: str) -> list[Features]:
    """The control feature sets that this run admits; what is left out is said."""
    width = study.suite.saliency.shape[1]
    random = random_dictionary(paths.activations / key, study.suite.rows, width)
    if random is None:
        logger.warning("no control_random.npz: the random dictionary is no control (extract_activations.random_control)")
    found = [] if random is None else [random]
    found.append(bag_of_words(item_words(study.items), width))
    if params.validity.encoder is not None:
        from gapscope.embedder import Embedder
        from gapscope.threads import use_threads

        use_threads(params.threads)
        encoder = Embedder(paths.raw / params.validity.encoder, device)
        found.append(embedding_clusters(encoder.vectors([item.text for item in study.items]), params.seed))
    else:
        logger.warning("no validity.encoder: clusters of sentence embeddings are no control")
    return [*found, metadata(study.items, study.suite.rows.n_tokens)]


def _matched(study: Study, key: str, paths: RunPaths, params: Params, work: Path, device: str) -> dict[str, Features]:
    """What the concepts are matched to: another SAE of the same model, configured or trained here, and random directions."""
    mine = params.observers[key]
    others = [slug for slug in sorted(params.observers) if slug != key and params.observers[slug].source == mine.source]
    found: dict[str, Features] = {}
    if others:
        rows = read_rows(paths.activations / others[0])
        if rows.item_ids != study.suite.rows.item_ids:
            raise InputError("was read on other items", file=paths.activations / others[0], fix="run extract-activations again")
        found["another"] = Features.of(others[0], read_matrix(paths.activations / others[0], "saliency", rows))
    elif params.validity.other_sae is not None and mine.sae.kind == "train" and paths.corpus is not None:
        from gapscope.competency.second_sae import Machine, read_with_second_sae

        settings = params.train_sae.model_copy(update=params.validity.other_sae.model_dump())
        second = read_with_second_sae(
            paths.raw / mine.source, paths.corpus, paths.activations / key, study.items, settings, params.extract_activations.batch_tokens,
            work, seed=params.seed, machine=Machine(mine.dtype, device, params.threads),
        )  # fmt: skip
        logger.info("second SAE of %s: %s", key, second.quality)
        found["another"] = second.features
    random = random_dictionary(paths.activations / key, study.suite.rows, study.suite.saliency.shape[1])
    return found | ({} if random is None else {"random": random})


def _stability(study: Study, key: str, paths: RunPaths, params: Params) -> list[Outcome]:
    rows = study.suite.rows
    firing = read_matrix(paths.activations / key, "firing", rows, study.suite.saliency.shape[1])
    clusters, sae = paths.clusters / f"{key}.parquet", paths.sae / key
    draws = params.validity.stability_draws
    return stability(paths.activations / key, clusters, sae, firing, rows.item_ids, params.cluster, draws, params.seed)


def plot_rows(tables: Mapping[str, Mapping[str, list[Outcome]]]) -> dict[str, list[dict[str, Any]]]:
    """The data of three plots: held-out effects, planted gaps, controls."""
    rows: dict[str, list[dict[str, Any]]] = {"held_out": [], "planted": [], "controls": []}
    for key, checks in tables.items():
        held, planted, controls = (averaged(checks[name], subject="") for name in rows)
        rows["held_out"] += [_row(key, f"{one.group} ({one.ranking})", one) for one in held if one.quantity == "adjusted"]
        rows["planted"] += [_row(key, f"{one.quantity} ({one.ranking})", one) for one in planted if one.quantity != "named"]
        ends = [one for one in controls if (one.quantity, one.ranking) == ("adjusted", CALIBRATED) and one.group in ("lowest", "highest")]
        rows["controls"] += [_row(key, f"{one.group}: {CONTROLS.get(one.features, one.features)}", one) for one in ends]
    return rows


def _row(observer: str, name: str, one: Outcome) -> dict[str, Any]:
    numbers = {part: None if np.isnan(getattr(one, part)) else getattr(one, part) for part in ("value", "low", "high")}
    told = one.low > 0 or one.high < 0
    return {"observer": observer, "name": name, "status": "told" if told else "typical", "n": one.n, **numbers}
