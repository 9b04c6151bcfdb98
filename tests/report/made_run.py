"""A made-up run on disk: artifacts in the form that the stages write, of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.artifacts import CLUSTERS, COVERAGE, OVERLAP, PERFORMANCE, ROWS, SCORES, SUITE
from gapscope.items import Item, write_items
from gapscope.params import ReportParams
from gapscope.report.build import Setup
from gapscope.report.inputs import ArtifactPaths

NAMES = (
    *("openbookqa", "commonsenseqa", "piqa", "socialiqa", "mmlu", "medmcqa", "boolq", "pubmedqa", "bbq"),
    *("bigbench_narrative", "bigbench_disambiguation", "bigbench_causal"),
)
WORDS = ("energy", "heat", "water", "plant", "animal", "nurse", "drug", "court", "tax", "paint", "metal", "river", "story", "friend")


@dataclass
class Shape:
    """How large the run is and what is peculiar about it."""

    n_items: int = 120
    n_benchmarks: int = 3
    n_concepts: int = 64
    observers: tuple[str, ...] = ("obs",)
    subjects: tuple[str, ...] = ("subj",)
    calibrated: bool = True
    threshold: float = 0.12
    labels: tuple[str, ...] = ()
    seed: int = 7
    columns: dict[str, Any] = field(default_factory=dict)


def make_run(root: Path, shape: Shape) -> ArtifactPaths:
    """Write every artifact that the report reads below ``root``."""
    paths = ArtifactPaths(*(root / name for name in ("items", "activations", "coverage", "performance", "clusters", "scores")))
    rng = np.random.default_rng(shape.seed)
    benchmarks = sorted(NAMES[: shape.n_benchmarks])
    items = [
        Item(
            f"{benchmarks[k % len(benchmarks)]}-{k:05d}",
            benchmarks[k % len(benchmarks)],
            f"family-{k:05d}",
            f"Question {k}?",
            ("a", "b", "c"),
            k % 3,
        )
        for k in range(shape.n_items)
    ]
    items.sort(key=lambda item: item.id)
    write_items(paths.items / "items.jsonl", items)
    ability = {benchmark: rng.uniform(0.25, 0.75) for benchmark in benchmarks}
    for subject in shape.subjects:
        scored = rng.random(len(items)) > 0.01
        score = np.where(scored, (rng.random(len(items)) < [ability[item.benchmark] for item in items]).astype(float), np.nan)
        ids = [item.id for item in items]
        SCORES.write(
            paths.scores / subject / "scores.parquet",
            {"item_id": ids, "score": score, "chance": np.full(len(items), 1 / 3), "scored": scored.tolist()},
        )
    for observer in shape.observers:
        _observer(paths, observer, shape, items, benchmarks, rng)
    return paths


def _observer(
    paths: ArtifactPaths, observer: str, shape: Shape, items: list[Item], benchmarks: list[str], rng: np.random.Generator
) -> None:
    n = shape.n_concepts
    tokens = {benchmark: int(rng.integers(20, 120)) for benchmark in benchmarks}
    ROWS.write(
        paths.activations / observer / "rows.parquet",
        {
            "item_id": [item.id for item in items],
            "benchmark": [item.benchmark for item in items],
            "n_tokens": [tokens[item.benchmark] for item in items],
            "n_masked": [1] * len(items),
            "n_truncated": [0] * len(items),
        },
    )
    strength = rng.lognormal(-1.5, 2.0, n)
    chi = np.stack([strength * rng.lognormal(0, 0.8, n) * (rng.random(n) < 0.45 + 0.4 * tokens[b] / 120) for b in benchmarks])
    chi[:, rng.random(n) < 0.08] = 0
    unmasked = np.where((chi == 0) & (rng.random(chi.shape) < 0.2), 0.01, chi)
    every = [*benchmarks, SUITE]
    chi_rows, unmasked_rows = (np.vstack([part, part.mean(axis=0)]) for part in (chi, unmasked))
    COVERAGE.write(
        paths.coverage / observer / "coverage.parquet",
        {
            "concept": np.tile(np.arange(n), len(every)),
            "benchmark": np.repeat(every, n),
            "chi_bench": chi_rows.ravel(),
            "chi_bench_unmasked": unmasked_rows.ravel(),
            "n_items": np.zeros(n * len(every), int),
            "n_tokens": np.zeros(n * len(every), int),
            "firing_rate": np.zeros(n * len(every)),
            "published_status": np.repeat("typical", n * len(every)),
            **shape.columns.get("coverage", {}),
        },
    )
    fires = (chi > 0).astype(int)
    shared = fires @ fires.T
    pairs = [(a, b) for a in range(len(benchmarks)) for b in range(len(benchmarks)) if a != b]
    OVERLAP.write(
        paths.coverage / observer / "overlap.parquet",
        {
            "benchmark": [benchmarks[a] for a, _ in pairs],
            "other": [benchmarks[b] for _, b in pairs],
            "n_concepts": [int(shared[a, a]) for a, _ in pairs],
            "n_other": [int(shared[b, b]) for _, b in pairs],
            "n_shared": [int(shared[a, b]) for a, b in pairs],
            "jaccard": [shared[a, b] / (shared[a, a] + shared[b, b] - shared[a, b]) for a, b in pairs],
        },
    )
    for subject in shape.subjects:
        _performance(paths, observer, subject, shape, chi_rows[-1] > 0, rng)
    labelled = np.arange(n)
    labels = shape.labels or tuple(", ".join(rng.choice(WORDS, 4, replace=False)) for _ in labelled)
    CLUSTERS.write(
        paths.clusters / f"{observer}.parquet",
        {
            "concept": labelled,
            "subject": [shape.subjects[0]] * n,
            "cluster": ["c0"] * n,
            "label": [labels[k % len(labels)] for k in labelled],
            "label_source": ["keywords"] * n,
        },
    )


def _performance(paths: ArtifactPaths, observer: str, subject: str, shape: Shape, fires: np.ndarray, rng: np.random.Generator) -> None:
    n = shape.n_concepts
    n_eff = np.where(fires, rng.lognormal(3.2, 1.2, n), 0.0)
    value = np.clip(rng.normal(0.46, 0.05 + 0.35 / np.sqrt(np.maximum(n_eff, 1)), n), 0, 1)
    half = 0.9 / np.sqrt(np.maximum(n_eff, 1))
    data: dict[str, Any] = {
        "concept": np.arange(n),
        "benchmark": [SUITE] * n,
        "chi_model": np.where(fires, value, np.nan),
        "n": np.where(fires, np.ceil(n_eff * 1.7), 0).astype(int),
        "n_eff": n_eff,
        "ci_low": np.where(fires, np.clip(value - half, 0, 1), np.nan),
        "ci_high": np.where(fires, np.clip(value + half, 0, 1), np.nan),
    }
    if shape.calibrated:
        adjusted = value - 0.46
        data |= {
            name: np.where(fires, adjusted + shift, np.nan)
            for name, shift in (("adjusted", 0), ("adjusted_low", -0.05), ("adjusted_high", 0.05))
        }
        data["shrunk"] = np.where(fires, adjusted * 0.7, np.nan)
        far = np.where(np.abs(adjusted) < shape.threshold, "typical", np.where(adjusted < 0, "gap", "strength"))
        far = np.where(n_eff < 20, "unsupported", far)
        status = [str(name) if fired else "undefined" for name, fired in zip(far, fires, strict=True)]
        # Concepts k and k + 1 are one finding where both are gaps or both strengths.
        lead = {k: k - 1 if k % 2 and status[k] == status[k - 1] else k for k in range(n)}
        data |= {"status": status, "q": np.where(np.isin(status, ("gap", "strength")), 0.01, np.where(fires, 0.6, np.nan))}
        data["finding"] = [str(lead[k]) if status[k] in ("gap", "strength") else None for k in range(n)]
    PERFORMANCE.write(paths.performance / observer / f"{subject}.parquet", {**data, **shape.columns.get("performance", {})})


def setup_for(**changes: Any) -> Setup:
    """A report set-up with small defaults."""
    return Setup(
        **{"report": ReportParams(), "min_n_eff": 20.0, "alpha": 0.05, "confidence": 0.95, "observers": {}, "models": {}, **changes}
    )
