"""Train the four verifiers, compare them on the development families, keep one, and score it once on the held-out ones."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gapscope.embedder import Embedder
from gapscope.files import sha256_tree, stable_hash
from gapscope.lm import DTYPES, LM, load_lm
from gapscope.params_variants import FineTuneParams, SftParams
from gapscope.variants.baselines import bag_of_words, majority
from gapscope.variants.contrasts import Labelled, assembled, contrasts, labelled
from gapscope.variants.evidence import group_of
from gapscope.variants.evidence_heads import Block, EvidenceHeads, fit_evidence, probabilities
from gapscope.variants.finetune import Example, FineTuned, fast_dtype, fine_tune
from gapscope.variants.heads import Head, fit_head
from gapscope.variants.measures import COLUMNS, Calibration, auroc, calibrate, table, truths
from gapscope.variants.prompts import era_completion, era_prompt, ira_completion, ira_prompt
from gapscope.variants.seed_sets import CHANGES, read_split, require_both
from gapscope.variants.seeds import DIMENSIONS
from gapscope.variants.splits import DEVELOPMENT, HELDOUT, SPLITS, TRAIN
from gapscope.variants.verifier import FORMS, KINDS, STACK_NAMES, Evidence, Form, Kind, Settings, Tuned, stacked

logger = logging.getLogger(__name__)
BASELINES = {"majority": majority, "bag_of_words": bag_of_words}


@dataclass(frozen=True)
class Workplace:
    """What a training needs besides seeds: the untuned model, the encoder, parameters, and where it runs."""

    model_dir: Path
    embedder_dir: Path
    params: SftParams
    seed: int
    threads: int
    device: str
    work_root: Path


@dataclass
class Trained:
    """A trained verifier: its settings, the fine-tuned model it uses (or None), and how all of them did.

    ``scores`` are rows of :data:`gapscope.variants.tables.VERIFIERS`; ``heldout`` is (kept verifier's probabilities after
    scaling, truth), each (rows, COLUMNS); ``report`` says what was compared.
    """

    settings: Settings
    tuned: LM | None
    scores: list[dict[str, Any]] = field(default_factory=list)
    heldout: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (np.zeros((0, 4)), np.zeros((0, 4))))
    report: dict[str, Any] = field(default_factory=dict)


def train_verifier(seeds_dir: Path, place: Workplace) -> Trained:
    """Train, compare and choose; nothing of the held-out families is looked at before the choice is made.

    Of the four the one of greatest AUROC on the development families is kept, since that depends on no threshold. Where
    it is the evidence, its heads are then fitted again with the development families among their seeds.

    Raises:
        InputError: as :func:`gapscope.variants.seed_sets.require_both`, before any model is loaded; or a model is at fault.
    """
    rows = _read_rows(seeds_dir, place)
    which = place.params.verifier.likelihoods
    lm = None if which == "none" else load_lm(place.model_dir, fast_dtype(place.device), place.device)
    evidence = Evidence(lm, Embedder(place.embedder_dir, place.device), which, place.work_root)
    written, made, names = _blocks(rows, evidence, place)
    logger.info("evidence: %d measures of %d variants", len(names), sum(len(block.rows) for block in (*written.values(), *made)))
    heads = fit_evidence(written[TRAIN], [block.of(_families(rows[TRAIN])) for block in made], names, place.params.verifier, place.seed)
    parts = _parts(rows[TRAIN], place)
    logger.info("fine-tuning %s on %d variants", " and ".join(FORMS), len(parts["tuned"]))
    tuned = {form: _Tuning.run(form, parts["tuned"], place) for form in FORMS}
    logger.info("asking them about %d variants", len(parts["stack"]) + len(rows[DEVELOPMENT]) + len(rows[HELDOUT]))
    judge = _Judges(heads, {form: tuning.judge for form, tuning in tuned.items()})
    form = judge.fit_stack(written[TRAIN], parts["stack"], rows[DEVELOPMENT], written[DEVELOPMENT].evidence)
    compared = judge.all(rows[DEVELOPMENT], written[DEVELOPMENT].evidence)
    truth = truths(rows[DEVELOPMENT])
    reached = {kind: auroc(compared[kind][:, -1], truth[:, -1]) for kind in KINDS}
    kept: Kind = max(KINDS, key=lambda kind: (round(reached[kind], 6), kind == "evidence"))
    logger.info("development AUROC: %s; kept: %s", ", ".join(f"{kind} {value:.3f}" for kind, value in reached.items()), kept)
    calibrations = {kind: heads.calibration if kind == "evidence" else calibrate(compared[kind], truth) for kind in KINDS}
    without = _ablated(written, made, names, place)

    scores = [row for kind in KINDS for row in table(kind, DEVELOPMENT, compared[kind], rows[DEVELOPMENT], calibrations[kind])]
    scores += _baseline_rows(rows, DEVELOPMENT)
    if kept == "evidence":
        judge.heads = _fitted_to_both(written, made, names, place)
        calibrations["evidence"] = judge.heads.calibration
    final = judge.all(rows[HELDOUT], evidence.of([row.pair for row in rows[HELDOUT]])[0])
    scores += [row for kind in KINDS for row in table(kind, HELDOUT, final[kind], rows[HELDOUT], calibrations[kind])]
    scores += _baseline_rows(rows, HELDOUT)
    evidence.clear()
    for tuning in tuned.values():
        tuning.judge.likelihoods.clear()

    used: Form | None = form if kept == "stack" else kept if kept in FORMS else None
    report: dict[str, Any] = {"kept": kept, "stack_form": form, "development_auroc": reached, "development_auroc_without": without}
    report["fine_tuning"] = {name: {"losses": tuning.tuned.losses, **tuning.tuned.counts} for name, tuning in tuned.items()}
    report["n_rows"] = {name: len(part) for name, part in rows.items()} | {"assembled": len(made[0].rows), "contrasts": len(made[1].rows)}
    settings = _settings(kept, used, judge, calibrations[kept], place)
    model = None if used is None else tuned[used].tuned.lm
    return Trained(settings, model, scores, (calibrations[kept].scale(final[kept]), truths(rows[HELDOUT])), report)


def _read_rows(seeds_dir: Path, place: Workplace) -> dict[str, list[Labelled]]:
    """Labelled variants by split, each with some of which a dimension holds and some of which it fails."""
    rows = {name: labelled(*read_split(seeds_dir, name)) for name in SPLITS}
    for name, part in rows.items():
        require_both(name, [row.verdict for row in part], seeds_dir / f"{name}.jsonl", CHANGES[name])
    few = "the training families that the stack learns from"
    require_both(few, [row.verdict for row in _parts(rows[TRAIN], place)["stack"]], seeds_dir, "raise sft.verifier.stack_share")
    return rows


def _fitted_to_both(written: Mapping[str, Block], made: Sequence[Block], names: tuple[str, ...], place: Workplace) -> EvidenceHeads:
    """Heads fitted again: once every choice is made, the families that it was made on may teach."""
    train, development = written[TRAIN], written[DEVELOPMENT]
    both = Block([*train.rows, *development.rows], np.vstack([train.evidence, development.evidence]), 1.0)
    return fit_evidence(both, made, names, place.params.verifier, place.seed)


def _families(rows: Sequence[Labelled]) -> set[str]:
    return {row.pair.original.family for row in rows}


def _blocks(
    rows: Mapping[str, Sequence[Labelled]], evidence: Evidence, place: Workplace
) -> tuple[dict[str, Block], list[Block], tuple[str, ...]]:
    """Written seeds of the two splits that may be learnt from, and what is made of them, with their evidence."""
    params = place.params.verifier
    written, names = {}, tuple[str, ...]()
    for name in (TRAIN, DEVELOPMENT):
        found, names = evidence.of([row.pair for row in rows[name]])
        written[name] = Block(rows[name], found, 1.0)
    put_together = assembled([*rows[TRAIN], *rows[DEVELOPMENT]])
    faulty = contrasts(put_together, place.seed, params.contrasts)
    made = []
    for part, weight in ((put_together, params.assembled_weight), (faulty, params.contrast_weight)):
        found = evidence.of([row.pair for row in part])[0] if weight > 0 else np.zeros((len(part), len(names)))
        made.append(Block(part, found, weight))
    return written, made, names


def _ablated(written: Mapping[str, Block], made: Sequence[Block], names: tuple[str, ...], place: Workplace) -> dict[str, float]:
    """Development AUROC of the evidence without each of its parts."""
    train, development = written[TRAIN], written[DEVELOPMENT]
    used = [train, *(block.of(_families(train.rows)) for block in made if block.weight > 0)]
    truth = np.concatenate([truths(block.rows)[:, -1] for block in used])
    weights = np.concatenate([np.full(len(block.rows), block.weight * len(train.rows) / len(block.rows)) for block in used])
    found = {}
    for part in sorted({group_of(name) for name in names}):
        kept = [k for k, name in enumerate(names) if group_of(name) != part]
        evidence = np.vstack([block.evidence[:, kept] for block in used])
        head = fit_head(evidence, truth, tuple(names[k] for k in kept), place.params.verifier.head, place.seed, weights)
        found[part] = auroc(head.probability(development.evidence[:, kept]), truths(development.rows)[:, -1])
    return found


def _parts(rows: Sequence[Labelled], place: Workplace) -> dict[str, list[Labelled]]:
    """Training rows whose families are fine-tuned on, and those of other families, which the stack learns from."""
    params = place.params.verifier
    order = sorted(_families(rows), key=lambda family: (stable_hash(place.seed, "tuned", family), family))
    first, second = round(len(order) * params.tuned_share), round(len(order) * (params.tuned_share + params.stack_share))
    chosen = {"tuned": set(order[:first]), "stack": set(order[first:second])}
    return {name: [row for row in rows if row.pair.original.family in families] for name, families in chosen.items()}


@dataclass
class _Tuning:
    """A fine-tuned form and what asks it."""

    tuned: FineTuned
    judge: Tuned

    @staticmethod
    def run(form: Form, rows: Sequence[Labelled], place: Workplace) -> _Tuning:
        params: FineTuneParams = getattr(place.params.verifier, form)
        examples = _examples(form, rows)
        random.Random(stable_hash(place.seed, "order", form)).shuffle(examples)
        tuned = fine_tune(place.model_dir, examples, params, seed=place.seed, device=place.device, threads=place.threads)
        dtype = fast_dtype(place.device)
        asked = replace(tuned.lm, model=tuned.lm.model.to(DTYPES[dtype]), dtype=DTYPES[dtype])
        identity = f"{stable_hash(params.model_dump_json(), place.seed, *examples):016x}"
        return _Tuning(tuned, Tuned(asked, form, place.work_root, identity))


def _examples(form: Form, rows: Sequence[Labelled]) -> list[Example]:
    if form == "ira":
        return [Example(ira_prompt(row.pair), ira_completion(row.verdict)) for row in rows]
    return [Example(era_prompt(row.pair, name), era_completion(row.verdict, name)) for row in rows for name in DIMENSIONS]


@dataclass
class _Judges:
    """The four kinds, asked together; ``stack`` is empty until :meth:`fit_stack`."""

    heads: EvidenceHeads
    tuned: Mapping[Form, Tuned]
    form: Form = "ira"
    stack: dict[str, Head] = field(default_factory=dict)

    def fit_stack(
        self, written: Block, rows: Sequence[Labelled], development: Sequence[Labelled], development_evidence: np.ndarray
    ) -> Form:
        """Fit the stack on rows that neither of its parts has seen, for each form; keep the better on the development families."""
        place = {row.pair.variant.id: k for k, row in enumerate(written.rows)}
        unseen = self.heads.unseen[[place[row.pair.variant.id] for row in rows]]
        truth, reached = truths(rows), {}
        for form in FORMS:
            known = stacked(unseen, self.tuned[form].probabilities([row.pair for row in rows]))
            heads = {column: fit_head(known, truth[:, k], STACK_NAMES, "logistic", 0) for k, column in enumerate(COLUMNS)}
            asked = stacked(
                probabilities(self.heads.heads, development_evidence), self.tuned[form].probabilities([row.pair for row in development])
            )
            reached[form] = auroc(heads["valid"].probability(asked), truths(development)[:, -1]), heads
        self.form = max(FORMS, key=lambda form: reached[form][0])
        self.stack = reached[self.form][1]
        return self.form

    def all(self, rows: Sequence[Labelled], evidence: np.ndarray) -> dict[Kind, np.ndarray]:
        """Probabilities (rows, COLUMNS) of each kind, before scaling."""
        pairs = [row.pair for row in rows]
        found: dict[Kind, np.ndarray] = {form: np.nan_to_num(self.tuned[form].probabilities(pairs), nan=0.0) for form in FORMS}
        found["evidence"] = probabilities(self.heads.heads, evidence)
        known = stacked(found["evidence"], self.tuned[self.form].probabilities(pairs))
        found["stack"] = probabilities(self.stack, known)
        return found


def _baseline_rows(rows: Mapping[str, Sequence[Labelled]], split: str) -> list[dict[str, Any]]:
    """Baselines learn from the training families; their thresholds are chosen on the development families."""
    found: list[dict[str, Any]] = []
    for name, baseline in BASELINES.items():
        calibration = calibrate(baseline(rows[TRAIN], rows[DEVELOPMENT]), truths(rows[DEVELOPMENT]))
        if name == "majority":
            calibration = Calibration(dict.fromkeys(COLUMNS, 1.0), dict.fromkeys(COLUMNS, 0.5))
        found += table(name, split, baseline(rows[TRAIN], rows[split]), rows[split], calibration)
    return found


def _settings(kept: Kind, form: Form | None, judge: _Judges, calibration: Calibration, place: Workplace) -> Settings:
    return Settings(
        kind=kept,
        form=form,
        likelihoods=place.params.verifier.likelihoods,
        heads=judge.heads.heads,
        stack=judge.stack if kept == "stack" else {},
        temperature=calibration.temperature,
        threshold=calibration.threshold,
        inputs={"model": sha256_tree(place.model_dir), "embedder": sha256_tree(place.embedder_dir)},
    )
