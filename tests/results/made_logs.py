"""Small logs in the shape that the harnesses write, made by hand."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

DATE = "2026-01-02T03-04-05.678901"

QUESTIONS: list[dict[str, Any]] = [
    {"id": "q-1", "question": "Which of these colours is a warm one?", "choices": ["red", "blue", "green"], "answer": 0},
    {"id": "q-2", "question": "Which animal lays the largest eggs of all?", "choices": ["hen", "duck", "ostrich"], "answer": 2},
    {"id": "q-3", "question": "What do bees collect from the flowers?", "choices": ["nectar", "sand", "bark"], "answer": 0},
    {"id": "q-4", "question": "Which planet is the closest to the sun?", "choices": ["Mars", "Mercury", "Earth"], "answer": 1},
]
LOGPROBS = [[-1.0, -2.0, -3.0], [-1.5, -2.5, -9.0], [-4.0, -5.0, -6.0], [-7.0, -1.0, -2.0]]
ACC = [1.0, 0.0, 1.0, 1.0]
"""Which choice has the greatest log-probability; in the second row it is not the gold."""
ACC_NORM = [1.0, 0.0, 1.0, 1.0]

SUMS: list[dict[str, Any]] = [
    {"question": "Ann has two apples and buys three more of them. How many has she?", "answer": "2 + 3 = 5\n#### 5"},
    {"question": "A box holds one thousand pins and half of them fall out. How many stay?", "answer": "1000 / 2 = 500\n#### 500"},
]


def prompt(doc: dict[str, Any]) -> str:
    return f"Question: {doc['question']}\nAnswer:"


def choice_row(k: int, before: str = "", **changes: Any) -> dict[str, Any]:
    """One row of a multiple-choice task as lm-eval 0.4.13 writes it, with more text before the question if given."""
    doc = QUESTIONS[k] | {"question": before + QUESTIONS[k]["question"]}
    row = {
        "doc_id": k,
        "doc": doc,
        "target": str(doc["answer"]),
        "arguments": {f"gen_args_{j}": {"arg_0": prompt(doc), "arg_1": f" {choice}"} for j, choice in enumerate(doc["choices"])},
        "resps": [[[str(value), "False"]] for value in LOGPROBS[k]],
        "filtered_resps": [[str(value), "False"] for value in LOGPROBS[k]],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "doc_hash": hashlib.sha256(json.dumps(doc, indent=2).encode()).hexdigest(),
        "prompt_hash": "p",
        "target_hash": "t",
        "acc": ACC[k],
        "acc_norm": ACC_NORM[k],
    }
    return {**row, **changes}


def old_choice_row(k: int) -> dict[str, Any]:
    """The same as lm-eval 0.4.0 wrote it: lists and numbers, and neither filter nor metrics nor hashes."""
    doc = QUESTIONS[k]
    return {
        "doc_id": k,
        "doc": doc,
        "target": doc["answer"],
        "arguments": [[prompt(doc), f" {choice}"] for choice in doc["choices"]],
        "resps": [[[value, False]] for value in LOGPROBS[k]],
        "filtered_resps": [[value, False] for value in LOGPROBS[k]],
        "acc": ACC[k],
        "acc_norm": ACC_NORM[k],
    }


def sum_rows(*, named: bool = True) -> list[dict[str, Any]]:
    """A generation with two filters: strict reads the second reply wrong, flexible reads both right."""
    replies = ["She has 5 apples.\n#### 5", "So 500 stay."]
    rows = []
    for name, parsed, right in (("strict-match", ["5", "[invalid]"], [1.0, 0.0]), ("flexible-extract", ["5", "500"], [1.0, 1.0])):
        for k, doc in enumerate(SUMS):
            row = {
                "doc_id": k,
                "doc": doc,
                "target": doc["answer"],
                "arguments": {"gen_args_0": {"arg_0": prompt(doc), "arg_1": {"until": ["\n\n"]}}},
                "resps": [[replies[k]]],
                "filtered_resps": [parsed[k]],
                "exact_match": right[k],
            }
            rows.append({**row, "filter": name, "metrics": ["exact_match"], "doc_hash": f"hash-{k}"} if named else row)
    return rows


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def samples(directory: Path, rows: Iterable[dict[str, Any]], task: str = "colours") -> Path:
    return write_lines(directory / f"samples_{task}_{DATE}.jsonl", rows)


def results(directory: Path, **changes: Any) -> Path:
    """The results file of the run, beside the samples."""
    body = {
        "results": {"colours": {"alias": "colours", "acc,none": 0.75, "acc_stderr,none": 0.25, "acc_norm,none": 0.75, "sample_len": 4}},
        "group_subtasks": {},
        "n-samples": {"colours": {"original": 4, "effective": 4}},
        "config": {"model": "hf", "model_args": "pretrained=some/model,dtype=float32", "limit": None},
    }
    path = directory / f"results_{DATE}.json"
    path.write_text(json.dumps({**body, **changes}), encoding="utf-8")
    return path


def inspect_sample(k: int, value: Any, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    doc = QUESTIONS[k]
    sample = {
        "id": doc["id"],
        "epoch": epoch,
        "input": doc["question"],
        "choices": doc["choices"],
        "target": "ABC"[doc["answer"]],
        "messages": [
            {"role": "user", "content": f"Answer with a letter.\n\n{doc['question']}"},
            {"role": "assistant", "content": "ANSWER: A"},
        ],
        "output": {"completion": "ANSWER: A"},
        "scores": {"choice": {"value": value, "answer": "A"}},
        "metadata": {},
        "attachments": {},
        "events": [{"event": "state", "long": "x" * 50}],
    }
    return {**sample, **changes}


def inspect_log(sample_list: list[dict[str, Any]], accuracy: float | None = None, **changes: Any) -> dict[str, Any]:
    scores = [{"name": "choice", "scorer": "choice", "metrics": {"accuracy": {"name": "accuracy", "value": accuracy}}}]
    header = {
        "version": 2,
        "status": "success",
        "eval": {"task": "colours", "model": "some/model", "config": {"epochs": 1}},
        "results": {"total_samples": len(sample_list), "scores": [] if accuracy is None else scores},
    }
    return {**header, **changes, "samples": sample_list}


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


class _Zstd:
    def __init__(self) -> None:
        self.data = b""

    def compress(self, data: bytes) -> bytes:
        self.data += data
        return b""

    def flush(self) -> bytes:
        packed: bytes = pa.Codec("zstd").compress(self.data, asbytes=True)
        return packed


def write_eval(path: Path, log: dict[str, Any], *, method: int = zipfile.ZIP_DEFLATED, finished: bool = True) -> Path:
    """An .eval archive; method 93 is zstd, which this Python's zipfile may not know."""
    make: Callable[..., Any] = zipfile._get_compressor  # type: ignore[attr-defined]
    known = (
        patch("zipfile._check_compression"),
        patch("zipfile._get_compressor", lambda kind, level=None: _Zstd() if kind == 93 else make(kind, level)),
    )
    header = {key: value for key, value in log.items() if key != "samples"}
    with known[0], known[1], zipfile.ZipFile(path, "w", compression=method) as archive:
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": header["eval"]}))
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        if finished:
            archive.writestr("header.json", json.dumps(header))
    return path


def lighteval_flat(k: int) -> dict[str, Any]:
    """A row of lighteval up to 0.10."""
    doc = QUESTIONS[k]
    return {
        "example": prompt(doc),
        "instruction": "",
        "full_prompt": f"Some examples.\n\n{prompt(doc)}",
        "choices": [f" {choice}" for choice in doc["choices"]],
        "gold": [f" {doc['choices'][doc['answer']]}"],
        "gold_index": [doc["answer"]],
        "predictions": [[value, 0.0] for value in LOGPROBS[k]],
        "pred_logits": LOGPROBS[k],
        "input_tokens": [[1, 2, 3]],
        "cont_tokens": [[4]],
        "num_effective_few_shots": 1,
        "num_asked_few_shots": 1,
        "metrics": {"acc": int(ACC[k]), "acc_norm": int(ACC_NORM[k])},
    }


def lighteval_nested(k: int) -> dict[str, Any]:
    """A row of lighteval 0.13."""
    doc = QUESTIONS[k]
    return {
        "doc": {
            "query": prompt(doc),
            "choices": [f" {choice}" for choice in doc["choices"]],
            "gold_index": doc["answer"],
            "instruction": None,
            "id": str(k),
            "task_name": "leaderboard|colours|0",
            "fewshot_samples": [],
        },
        "model_response": {"input": prompt(doc), "input_tokens": [1, 2, 3], "text": [], "logprobs": LOGPROBS[k]},
        "metric": {"acc": ACC[k], "acc_norm": ACC_NORM[k]},
    }


def write_details(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


BATTLES: list[dict[str, Any]] = [
    {"question_id": "b1", "model_a": "ours", "model_b": "theirs", "winner": "model_a", "prompt": "Write a short poem about the rain."},
    {"question_id": "b2", "model_a": "theirs", "model_b": "ours", "winner": "model_a", "prompt": "Name three rivers that flow north."},
    {"question_id": "b3", "model_a": "ours", "model_b": "theirs", "winner": "tie (bothbad)", "prompt": "Explain the rules of chess to me."},
    {"question_id": "b4", "model_a": "theirs", "model_b": "third", "winner": "model_b", "prompt": "How long should I boil an egg?"},
]
