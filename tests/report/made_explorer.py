"""A made-up run with everything that the explorer shows, of any size: made_run's artifacts and those beside them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from made_run import Shape, make_run
from safetensors.numpy import save_file

from gapscope.artifacts import ANSWERS, CHANGES, COMPARISONS, CONTEXTS, COVERAGE, PERFORMANCE, ROBUSTNESS, SCORES, SUITE
from gapscope.files import write_json, write_jsonl
from gapscope.items import Item, read_items, write_items
from gapscope.report.explorer.sources import About, ExplorerPaths

MEASURES = ("oa", "ara", "rla", "rla_relative", "cra_pair", "cra_all")
CONTEXTS_EACH = 3


def make_explorer_run(root: Path, shape: Shape, texts: tuple[str, ...] = (), width: int = 8) -> ExplorerPaths:
    """Write a run below ``root``; ``texts`` go wherever a benchmark, a model or a person could have put one."""
    artifacts = make_run(root / "data", shape)
    rng = np.random.default_rng(shape.seed)
    items = _texts(artifacts.items / "items.jsonl", texts)
    slugs = sorted({item.benchmark for item in items})
    report = {"benchmarks": {slug: {"kind": "knowledge", "licence": (texts or ("MIT",))[0], "n_items": 1} for slug in slugs}}
    write_json(artifacts.items / "report.json", report)
    for subject in shape.subjects:
        _predictions(artifacts.scores / subject / "scores.parquet", items, texts)
    for observer in shape.observers:
        place = artifacts.activations / observer
        _contexts(place / "contexts.parquet", items, shape.n_concepts)
        write_json(
            place / "meta.json",
            {
                "sae": {"id": (texts or ("sae",))[0], "layer": 3},
                "totals": {"n_tokens": 1000, "n_masked": 10, "n_truncated": 0, "fvu": 0.2, "l0": 32.0},
            },
        )
        sae = root / "data/sae" / observer
        sae.mkdir(parents=True)
        save_file({"W_dec": rng.normal(size=(shape.n_concepts, width)).astype(np.float32)}, str(sae / "sae_weights.safetensors"))
        for subject in shape.subjects:
            _by_benchmark(artifacts.performance / observer / f"{subject}.parquet", slugs, shape.n_concepts, rng)
    if len(shape.subjects) > 1:
        _changes(root / "data/changes" / f"{shape.observers[0]}.parquet", shape, rng)
    _robustness(root / "data", items, shape.subjects, texts)
    write_json(root / "metrics/validity.json", _validity(shape.observers))
    names = ("sae", "changes", "variants", "robustness")
    sae, changes, variants, robustness = (path if (path := root / "data" / name).exists() else None for name in names)
    return ExplorerPaths(artifacts, sae, changes, root / "metrics/validity.json", variants, robustness)


def about_for(shape: Shape, texts: tuple[str, ...] = ()) -> About:
    """What the parameters would say of it."""
    label = texts[0] if texts else ""
    return About(
        7,
        20.0,
        0.05,
        0.95,
        {slug: f"{slug} {label}" for slug in shape.observers},
        {slug: f"Model {slug} (Q4_1) {label}".strip() for slug in shape.subjects},
    )


def _texts(file: Path, texts: tuple[str, ...]) -> list[Item]:
    items = []
    for k, item in enumerate(read_items(file)):
        text = f"Question {k} about energy and water, asked at length. " + (texts[k % len(texts)] if texts else "Which is right?")
        choices = tuple(f"{choice} {texts[k % len(texts)]}" if texts else choice for choice in item.choices)
        items.append(Item(item.id, item.benchmark, item.family, text, choices, item.answer, meta={"note": (texts or ("x",))[0][:50]}))
    write_items(file, items)
    return items


def _predictions(file: Path, items: list[Item], texts: tuple[str, ...]) -> None:
    table = SCORES.read(file).to_pydict()
    order = {item.id: k for k, item in enumerate(items)}
    table["prediction"] = [
        None if score is None else str((order[name] * 7) % 3) if order[name] % 5 or not texts else texts[order[name] % len(texts)]
        for name, score in zip(table["item_id"], table["score"], strict=True)
    ]
    SCORES.write(file, table)


def _contexts(file: Path, items: list[Item], n_concepts: int) -> None:
    """Windows over the first words of items; the second piece is the peak."""
    n = n_concepts * CONTEXTS_EACH
    pieces = [[item.text[:9], item.text[9:15], item.text[15:30]] for item in items]
    place = np.arange(n) * 13 % len(items)
    tokens = pa.array([pieces[k] for k in place.tolist()], CONTEXTS.schema.field("tokens").type)
    values = np.zeros((n, 3), np.float32)
    values[:, 1] = 1 + np.arange(n) % 17
    values[:, 2] = 0.4
    columns = {
        "concept": np.repeat(np.arange(n_concepts), CONTEXTS_EACH),
        "item_id": [items[k].id for k in place.tolist()],
        "start": np.zeros(n, np.int64),
        "end": np.array([len(items[k].text[:30]) for k in place.tolist()]),
        "tokens": tokens,
        "activations": pa.array(list(values), CONTEXTS.schema.field("activations").type),
        "rank": np.tile(np.arange(CONTEXTS_EACH), n_concepts),
        "group": np.tile(["quantile", "reference", "top"], n_concepts),
    }
    columns["rank"][:] = 0
    names = columns["item_id"]
    for k in range(1, n, CONTEXTS_EACH):
        names[k] = f"corpus:{names[k]}"
    CONTEXTS.write(file, pa.Table.from_pydict(columns, schema=CONTEXTS.schema).sort_by([(name, "ascending") for name in CONTEXTS.sort_by]))


def _by_benchmark(file: Path, benchmarks: list[str], n: int, rng: np.random.Generator) -> None:
    """Add the rows of single benchmarks, some undefined."""
    suite = PERFORMANCE.read(file)
    size = n * len(benchmarks)
    n_eff = np.where(rng.random(size) < 0.6, rng.lognormal(2.5, 1, size), 0.0)
    value = np.where(n_eff > 0, np.clip(rng.normal(0.45, 0.1, size), 0, 1), np.nan)
    half = 0.9 / np.sqrt(np.maximum(n_eff, 1))
    columns = {
        "concept": np.tile(np.arange(n), len(benchmarks)),
        "benchmark": np.repeat(np.array(benchmarks), n),
        "chi_model": value,
        "n": np.ceil(n_eff * 1.5).astype(int),
        "n_eff": n_eff,
        "ci_low": value - half,
        "ci_high": value + half,
        "adjusted": value - 0.45,
        "adjusted_low": value - 0.45 - half,
        "adjusted_high": value - 0.45 + half,
        "q": np.where(n_eff >= 20, rng.random(size), np.nan),
        "status": np.where(n_eff >= 20, "typical", np.where(n_eff > 0, "unsupported", "undefined")),
    }
    columns = {name: np.asarray(column).tolist() for name, column in columns.items()}
    table = pa.Table.from_pydict(
        {name: columns.get(name, [None] * size) for name in PERFORMANCE.schema.names},
        schema=pa.schema([field.with_nullable(True) for field in PERFORMANCE.schema]),
    )
    table = pa.Table.from_arrays(
        [
            pa.array(column.to_numpy(zero_copy_only=False), field.type, from_pandas=True)
            for column, field in zip(table.columns, PERFORMANCE.schema, strict=True)
        ],
        schema=PERFORMANCE.schema,
    )
    PERFORMANCE.write(
        file, pa.concat_tables([suite.cast(PERFORMANCE.schema), table]).sort_by([("benchmark", "ascending"), ("concept", "ascending")])
    )


def _changes(file: Path, shape: Shape, rng: np.random.Generator) -> None:
    n = shape.n_concepts
    difference = rng.normal(0, 0.1, n)
    columns = dict.fromkeys(("difference", "relative"), difference) | {"first": np.full(n, 0.4), "second": 0.4 + difference}
    columns |= {"low": difference - 0.1, "high": difference + 0.1, "relative_low": difference - 0.1, "relative_high": difference + 0.1}
    columns |= {"p": rng.random(n), "q": rng.random(n), "relative_p": np.exp(-np.abs(difference) * 60), "relative_q": rng.random(n)}
    counts = {name: np.full(n, 30) for name in ("n", "n_gained", "n_lost")}
    status = np.where(difference > 0.15, "ahead", np.where(difference < -0.15, "behind", "typical"))
    CHANGES.write(
        file,
        {
            "subject": [shape.subjects[0]] * n,
            "other": [shape.subjects[1]] * n,
            "benchmark": [SUITE] * n,
            "concept": np.arange(n),
            "n_eff": np.full(n, 25.0),
            "status": status.tolist(),
            **columns,
            **counts,
        },
    )


def _robustness(data: Path, items: list[Item], subjects: tuple[str, ...], texts: tuple[str, ...]) -> None:
    originals = [item for item in items if item.choices][:6]
    extra = texts or ("Rewritten.",)
    types = ("problem_restatement", "critical_testing")
    variants = [
        Item(f"v-{item.id}", item.benchmark, item.family, item.text.replace("energy", "heat") + " " + extra[k % len(extra)], item.choices, item.answer,
             meta={"type": types[k % 2], "original": item.id, "verdict": {"tc": True, "lc": True, "au": True, "valid": True, "p": 0.9}})
        for k, item in enumerate(originals)
    ]  # fmt: skip
    place = data / "robustness"
    write_items(place / "presented.jsonl", [*originals, *variants])
    rows = []
    for subject in subjects:
        for subset in ("all", *types):
            row = {
                "subject": subject,
                "subset": subset,
                "n_families": 6,
                "n_variants": 6 if subset == "all" else 3,
                "n_unscored": 0,
                "chance_original": 1 / 3,
                "chance_variant": 1 / 3,
            }
            for name in MEASURES:
                row |= {name: 0.5, f"{name}_low": 0.2, f"{name}_high": 0.8}
            rows.append(row)
    ROBUSTNESS.write(place / "robustness.parquet", {name: [row[name] for row in rows] for name in rows[0]})
    asked = [(subject, item) for subject in subjects for item in (*originals, *variants)]
    ANSWERS.write(place / "answers.parquet", {
        "subject": [subject for subject, _ in asked],
        "item_id": [item.id for _, item in asked],
        "family": [item.family for _, item in asked],
        "type": [item.meta.get("type", "original") for _, item in asked],
        "answer": [item.answer for _, item in asked],
        "prediction": [str(item.answer if not item.meta.get("type") else (item.answer + 1) % 3) for _, item in asked],
        "score": [0.0 if item.meta.get("type") else 1.0 for _, item in asked],
    })  # fmt: skip
    pairs = list(pairwise(subjects))
    COMPARISONS.write(
        place / "comparisons.parquet",
        {
            "asked": ["variants"] * len(pairs),
            "subject": [a for a, _ in pairs],
            "other": [b for _, b in pairs],
            "n_families": [6] * len(pairs),
            "difference": [0.1] * len(pairs),
            "p": [0.5] * len(pairs),
            "p_holm": [0.5] * len(pairs),
        },
    )
    baseline = {"accuracy": 0.35, "low": 0.2, "high": 0.5, "chance": 1 / 3, "n": 6}
    quality = {"shortcuts": {"longest": baseline}, "choices_only": {subjects[0]: baseline}}
    write_json(place / "quality.json", {"subsets": {"all": quality}, "not_asked": {}})
    (data / "variants").mkdir(exist_ok=True)
    write_items(data / "variants/variants.jsonl", variants)
    rejected = [
        {
            "id": "c1",
            "type": types[0],
            "reason": "unparsable",
            "explanation": extra[0],
            "text": None,
            "choices": None,
            "answer": None,
            "verdict": None,
            "completion": extra[0],
        }
    ]
    rejected.append(
        {
            **rejected[0],
            "id": "c2",
            "reason": "lc",
            "explanation": "the verifier sees a fault in lc, au",
            "text": "A candidate",
            "choices": ["a", "b"],
            "answer": 0,
            "completion": "x",
        }
    )
    write_jsonl(data / "variants/rejected.jsonl", rejected)
    write_json(
        data / "variants/report.json",
        {"n_candidates": 8, "n_accepted": 6, "pass_rate": 0.75, "reasons": {"unparsable": 1, "lc": 1, "rule": 0}, "types": {}},
    )


def _validity(observers: tuple[str, ...]) -> dict:
    def outcome(value: float, n: int = 10) -> dict:
        return {"value": value, "low": value - 0.05, "high": value + 0.05, "n": n}

    def each(numbers: dict) -> dict:
        return dict.fromkeys(observers, numbers)

    ranked = {
        "lowest": {"adjusted": outcome(-0.2)},
        "highest": {"adjusted": outcome(0.2)},
        "features": {"r": outcome(0.6), "r_shuffled": {"value": -0.001, "low": -0.08, "high": 0.07, "n": 40}},
        "gap": {"success": outcome(0.3)},
    }
    return {
        "held_out": each({"calibrated": ranked}),
        "planted": each(
            {
                "calibrated": {"recall": outcome(0.6), "precision": outcome(0.944), "precision_planted": outcome(0.709)},
                "raw": {"recall": outcome(0.2), "precision": outcome(0.1)},
            }
        ),
        "null": each({"calibrated": {"any_discovery": outcome(0.04)}, "raw": {"outside_mean": outcome(0.5)}}),
        "subsampling": each(
            {
                "calibrated": {
                    "bootstrap": {"lowest_stay": outcome(0.4)},
                    "subsample": {"lowest_stay": outcome(0.8)},
                    "ratio": {"subsample_to_bootstrap": outcome(0.5)},
                }
            }
        ),
        "ablation": each(
            {
                "calibrated": {"lowest": {"other_items": outcome(0.02)}, "highest": {"other_items": outcome(-0.02)}},
                "random": {"other_items": {"value": -0.0, "low": -0.01, "high": 0.01, "n": 5}},
            }
        ),
        "other_sae": each({"calibrated": {"another": {"rank_correlation": {"n": 0}}}}),
        "stability": each({"keywords_same": outcome(0.5), "keywords_others": outcome(0.02), "clusters": outcome(0.3)}),
        "controls": each(
            {
                "concepts": {"n_tested": 30, "r": 0.5, "item_r": -0.001, "lowest": 0.002, "gaps": 3},
                "random": {"n_tested": 30, "r": 0.55},
                "words": {"n_tested": 0},
            }
        ),
    }


def read_block(page: str, name: str) -> tuple[dict, dict[str, np.ndarray]]:
    """A block of a page as the script reads it: its JSON values and its columns as numbers."""
    import base64
    import re
    import struct
    import zlib

    text = re.search(rf'id="block-{re.escape(name)}">([^<]*)<', page).group(1)
    raw = zlib.decompress(base64.b64decode(text))
    size = struct.unpack("<I", raw[:4])[0]
    header = json.loads(raw[4 : 4 + size])
    columns = {}
    for key, column in header["columns"].items():
        kind = {"u8": np.uint8, "u32": np.uint32}.get(column["form"], np.uint16)
        codes = np.frombuffer(raw, kind, column["n"], 4 + size + column["at"])
        if column["form"] == "linear":
            columns[key] = np.where(codes == 65535, np.nan, column["low"] + codes * column["step"])
        elif column["form"] == "log":
            columns[key] = np.where(codes == 65535, np.nan, np.where(codes == 0, 0, np.exp(column["low"] + (codes - 1.0) * column["step"])))
        else:
            columns[key] = codes
    return header, columns


def coverage_of(file: Path) -> dict[tuple[str, int], float | None]:
    """chi_bench by benchmark and concept."""
    rows = COVERAGE.read(file).to_pylist()
    return {(row["benchmark"], row["concept"]): row["chi_bench"] for row in rows}
