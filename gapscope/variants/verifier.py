"""The verifier: whether a variant complies with its type, has the right label, and one right answer.

Four kinds are trained and compared, and one is kept: ``era`` and ``ira`` (fine-tuned models, :mod:`gapscope.variants.prompts`),
``evidence`` (a classifier over :mod:`gapscope.variants.evidence`), and ``stack`` (a small classifier over both).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from gapscope.embedder import Embedder
from gapscope.errors import InputError, wrong_field
from gapscope.files import dump_json, read_json, sha256_tree, write_bytes
from gapscope.items import Item
from gapscope.lm import LM, load_lm
from gapscope.params_types import Strict
from gapscope.variants.calibration import scaled
from gapscope.variants.evidence import evidence_matrix, texts
from gapscope.variants.evidence_heads import probabilities
from gapscope.variants.finetune import fast_dtype
from gapscope.variants.heads import Head, logit, sigmoid
from gapscope.variants.likelihoods import Likelihoods
from gapscope.variants.measures import COLUMNS
from gapscope.variants.prompts import Pair, era_probes, ira_probes
from gapscope.variants.seeds import DIMENSIONS
from gapscope.variants.signals import Sources, queries

Kind = Literal["era", "ira", "evidence", "stack"]
Form = Literal["era", "ira"]
Which = Literal["none", "orders", "all"]
KINDS: tuple[Kind, ...] = ("era", "ira", "evidence", "stack")
FORMS: tuple[Form, ...] = ("era", "ira")
FILE, VERSION = "verifier.json", 1
P_DIGITS = 6


@dataclass(frozen=True)
class Verdict:
    """A judgement: the three dimensions, whether all hold, and the calibrated probability that they do."""

    tc: bool
    lc: bool
    au: bool
    valid: bool
    p: float


class Evidence:
    """Evidence of pairs, from an untuned model, an encoder, rules and words.

    Args:
        lm: the untuned model; None where ``which`` is ``none``.
        embedder: the sentence encoder, or None.
        which: likelihoods of no variants, of ordering ones only (``orders``), or of ``all``.
        work_root: where finished batches are kept for a restart.
    """

    def __init__(self, lm: LM | None, embedder: Embedder | None, which: Which, work_root: Path) -> None:
        self._embedder, self._which = embedder, which
        self._likelihoods = None if lm is None else Likelihoods(lm, work_root)

    def of(self, pairs: Sequence[Pair]) -> tuple[np.ndarray, tuple[str, ...]]:
        """Evidence (pairs, columns) and the columns' names."""
        if self._likelihoods is not None:
            self._likelihoods.learn(query for pair in pairs for query in queries(pair, self._which))
        if self._embedder is not None:
            self._embedder.learn(text for pair in pairs for text in texts(pair))
        return evidence_matrix(pairs, Sources(self._likelihoods, self._embedder))

    def clear(self) -> None:
        """Remove what was kept for a restart."""
        if self._likelihoods is not None:
            self._likelihoods.clear()


class Tuned:
    """A fine-tuned model and the form it was tuned to."""

    def __init__(self, lm: LM, form: Form, work_root: Path, identity: str) -> None:
        self._form = form
        self.likelihoods = Likelihoods(lm, work_root, separator="\n\n" if form == "era" else " ", identity=identity)

    def probabilities(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Probabilities (pairs, COLUMNS), NaN where a prompt is too long for the model.

        ERA's verdict is that all three dimensions hold; IRA's that it writes yes four times, each after the ones before.
        """
        probes = [(context, tuple(endings)) for context, endings in map(era_probes if self._form == "era" else ira_probes, pairs)]
        self.likelihoods.learn(probes)
        return np.array([_all_hold(self.likelihoods.of(*probe), len(probe[1])) for probe in probes]).reshape(-1, len(COLUMNS))


def _all_hold(values: tuple[float, ...] | None, n: int) -> np.ndarray:
    """Probability of yes for each field, from log-probabilities of yes and no in turn, and of yes throughout."""
    if values is None:
        return np.full(len(COLUMNS), np.nan)
    answers = np.array(values).reshape(n // 2, 2)
    yes = sigmoid(answers[:, 0] - answers[:, 1])
    return np.append(yes[: len(DIMENSIONS)], yes.prod())


def stacked(evidence: np.ndarray, tuned: np.ndarray) -> np.ndarray:
    """What the stack's heads see (rows, 8): log-odds of every column, from evidence and from the fine-tuned model."""
    return np.hstack([logit(evidence), np.where(np.isnan(tuned), np.nan, logit(np.nan_to_num(tuned, nan=0.5)))])


STACK_NAMES = tuple(f"{source}_{column}" for source in ("evidence", "tuned") for column in COLUMNS)
Column = Literal["tc", "lc", "au", "valid"]


class _Stored(Strict):
    """What ``verifier.json`` holds; see :class:`Settings`."""

    version: Literal[1]
    kind: Kind
    form: Form | None
    likelihoods: Which
    temperature: Annotated[dict[Column, Annotated[float, Field(gt=0)]], Field(min_length=len(COLUMNS))]
    threshold: Annotated[dict[Column, float], Field(min_length=len(COLUMNS))]
    inputs: dict[str, str]
    heads: Annotated[dict[Column, Any], Field(min_length=len(COLUMNS))]
    stack: dict[Column, Any]

    @model_validator(mode="after")
    def _parts_of_its_kind(self) -> _Stored:
        if self.kind != "evidence" and self.form is None:
            raise ValueError(f"one of kind {self.kind} needs form")
        if self.kind == "stack" and len(self.stack) < len(COLUMNS):
            raise ValueError("one of kind stack needs a head of the stack for each column")
        return self


def _head(data: Any, file: Path, field: str) -> Head:
    try:
        return Head.from_json(data)
    except InputError as error:
        raise InputError(error.message, file=file, field=field, fix=error.fix) from error


@dataclass(frozen=True)
class Settings:
    """What a verifier is made of besides models: all of ``verifier.json``.

    Attributes:
        kind: which verifier was kept.
        form: of the fine-tuned model it uses, or None.
        likelihoods: of which variants likelihoods are evidence.
        heads: the evidence's heads by column.
        stack: the stack's heads by column; empty for other kinds.
        temperature, threshold: by column, chosen on the development families.
        inputs: sha256 of the untuned model's directory and the encoder's, by ``model`` and ``embedder``.
    """

    kind: Kind
    form: Form | None
    likelihoods: Which
    heads: Mapping[str, Head]
    stack: Mapping[str, Head]
    temperature: Mapping[str, float]
    threshold: Mapping[str, float]
    inputs: Mapping[str, str]

    def write(self, directory: Path) -> None:
        """Write ``verifier.json``."""
        data = {
            **{name: getattr(self, name) for name in ("kind", "form", "likelihoods")},
            **{name: dict(getattr(self, name)) for name in ("temperature", "threshold", "inputs")},
            **{name: {key: head.to_json() for key, head in getattr(self, name).items()} for name in ("heads", "stack")},
            "version": VERSION,
        }
        write_bytes(directory / FILE, (dump_json(data) + "\n").encode())

    @staticmethod
    def read(directory: Path) -> Settings:
        """Read ``verifier.json``; raises InputError where it is damaged or of another version."""
        data: Any = read_json(directory / FILE)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise InputError(f"not a verifier of version {VERSION}", file=directory / FILE, fix="run sft again")
        try:
            found = dict(_Stored.model_validate(data))
        except ValidationError as error:
            raise wrong_field(error, "a verifier", directory / FILE, fix="run sft again") from error
        del found["version"]
        for name in ("heads", "stack"):
            found[name] = {key: _head(value, directory / FILE, f"{name}.{key}") for key, value in found[name].items()}
        return Settings(**found)

    def combine(self, evidence: np.ndarray, tuned: np.ndarray | None) -> np.ndarray:
        """Raw probabilities (rows, COLUMNS) of this kind from evidence's and the fine-tuned model's."""
        if self.kind == "evidence":
            return evidence
        if tuned is None:
            raise ValueError(f"a verifier of kind {self.kind} needs its fine-tuned model")
        if self.kind != "stack":
            return np.asarray(np.nan_to_num(tuned, nan=0.0))
        rows = stacked(evidence, tuned)
        return np.column_stack([self.stack[column].probability(rows) for column in COLUMNS])

    def verdicts(self, raw: np.ndarray) -> list[Verdict]:
        """Verdicts from raw probabilities (rows, COLUMNS).

        A variant is valid where its probability reaches the threshold, and then all three hold. Otherwise those fail
        that are below their own threshold, and at least the one that is furthest below or nearest to it.
        """
        p = np.column_stack([scaled(raw[:, k], self.temperature[column]) for k, column in enumerate(COLUMNS)])
        slack = p - np.array([self.threshold[column] for column in COLUMNS])
        found = []
        for k in range(len(p)):
            valid = bool(slack[k, 3] >= 0)
            failing = (slack[k, :3] < 0) | (np.arange(3) == slack[k, :3].argmin())
            tc, lc, au = (valid or not bool(fails) for fails in failing)
            found.append(Verdict(tc, lc, au, valid, round(float(p[k, 3]), P_DIGITS)))
        return found


class Verifier:
    """A trained verifier, ready to judge."""

    def __init__(self, settings: Settings, evidence: Evidence, tuned: Tuned | None) -> None:
        self.settings, self._evidence, self._tuned = settings, evidence, tuned

    @staticmethod
    def load(directory: Path, model_dir: Path, embedder_dir: Path | None, *, device: str = "auto") -> Verifier:
        """Load what ``sft`` wrote to a directory, with the untuned model and the encoder it was trained beside.

        Models run in the precision that is fast on the device, as they did in training.

        Raises:
            InputError: something is missing or damaged, or the model or encoder is another one.
        """
        settings, dtype = Settings.read(directory), fast_dtype(device)
        _require_same(settings.inputs.get("model"), model_dir, "model")
        _require_same(settings.inputs.get("embedder"), embedder_dir, "embedder")
        scratch = Path(tempfile.gettempdir()) / f"gapscope-verifier-{os.getpid()}"
        embedder = None if embedder_dir is None else Embedder(embedder_dir, device)
        untuned = None if settings.likelihoods == "none" else load_lm(model_dir, dtype, device)
        evidence = Evidence(untuned, embedder, settings.likelihoods, scratch)
        uses_tuned = settings.form is not None and settings.kind != "evidence"
        tuned = (
            Tuned(load_lm(directory / str(settings.form), dtype, device), settings.form or "ira", scratch, "tuned") if uses_tuned else None
        )
        return Verifier(settings, evidence, tuned)

    def judge(self, pairs: Sequence[tuple[Item, Item, str]]) -> list[Verdict]:
        """Verdicts on (variant, original, type), in the order given.

        Every variant needs two choices and a marked one (ValueError otherwise); whether it follows its type's rule is
        not decided here but by :func:`gapscope.variants.types.rule_faults`.
        """
        if not pairs:
            return []
        asked = [Pair(*pair) for pair in pairs]
        rows, _names = self._evidence.of(asked)
        tuned = None if self._tuned is None else self._tuned.probabilities(asked)
        self._evidence.clear()
        if self._tuned is not None:
            self._tuned.likelihoods.clear()
        return self.settings.verdicts(self.settings.combine(probabilities(self.settings.heads, rows), tuned))


def _require_same(wanted: str | None, directory: Path | None, what: str) -> None:
    found = None if directory is None else sha256_tree(directory)
    if found != wanted:
        fix = f"give the {what} that sft was run with, or run sft again"
        raise InputError(f"is not the {what} that this verifier was trained beside", file=directory, field=what, fix=fix)
