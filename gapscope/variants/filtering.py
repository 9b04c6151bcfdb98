"""Which candidates become variants: one function, called by generate to know when to stop and by filter to decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from gapscope.errors import InputError, wrong_field
from gapscope.files import atomic_directory, read_jsonl, write_json, write_jsonl
from gapscope.items import Item, write_items
from gapscope.params_robustness import FilterParams
from gapscope.variants.duplicates import Seen, key
from gapscope.variants.generator_prompts import ParseFault, parse_completion
from gapscope.variants.seeds import DIMENSIONS
from gapscope.variants.types import TYPES, gold, rule_faults
from gapscope.variants.verifier import Verdict
from gapscope.variants.wording import content_words, is_copy

REASONS = ("unparsable", "copy", "rule", *DIMENSIONS, "duplicate")
"""Why a candidate is rejected, in the order in which it is looked at."""


INVENTED = ("reverse_conversion", "causal_inference")
"""Types whose choices are invented beside the right one."""


def invented_faults(item: Item, slug: str) -> list[str]:
    """What form shows of choices that were invented: two that say the same, or one that says but a part of the right one.

    Either leaves more than one right answer. Empty for types that take their choices over.
    """
    if slug not in INVENTED:
        return []
    right = gold(item)
    faults = []
    if any(is_copy(one, other) for one, other in combinations(item.choices, 2)):
        faults.append("two choices are the same, but for a few words")
    if any(content_words(choice) <= content_words(right) for choice in item.choices if choice != right):
        faults.append("a choice says no more than the right one does")
    return faults


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Candidate:
    """What a generator wrote for an item and a type; pydantic's ValidationError where a field is missing, wrong or unknown.

    Attributes:
        id: ``<original>-<type>-r<round>``, and the variant's id if it becomes one.
        original: id of the item that was to be rewritten.
        type: slug of the type.
        round: from 0.
        generator: grpo or sft.
        completion: the text as it was written.
        n_tokens: its tokens.
        ended: whether it came to an end by itself.
    """

    id: str
    original: str
    type: str
    round: int
    generator: str
    completion: str
    n_tokens: int
    ended: bool


@dataclass(frozen=True)
class Decision:
    """What became of a candidate: the variant and its verdict as far as it got, and the reason of a rejection."""

    candidate: Candidate
    item: Item | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    explanation: str = ""


class Judge(Protocol):
    """What judges: :class:`gapscope.variants.verifier.Verifier`."""

    def judge(self, pairs: Sequence[tuple[Item, Item, str]]) -> list[Verdict]:
        """Verdicts on (variant, original, type), in the order given."""
        ...


class Screen:
    """Decides on candidates round by round, and remembers what it has accepted.

    Args:
        judge: the verifier.
        originals: the items that candidates may be made from, by id.
        params: of the search for duplicates.
    """

    def __init__(self, judge: Judge, originals: Mapping[str, Item], params: FilterParams) -> None:
        self._judge, self._originals, self._seen = judge, originals, Seen(params)

    def decide(self, candidates: Sequence[Candidate]) -> list[Decision]:
        """A decision a candidate, in the order given; of duplicates the first is accepted.

        The verifier sees the candidates of one call together, so calls with the same candidates give the same verdicts.
        """
        decisions = [self._formal(candidate) for candidate in candidates]
        asked = [
            (d.item, self._originals[d.candidate.original], d.candidate.type) for d in decisions if d.item is not None and d.reason is None
        ]
        verdicts = iter(self._judge.judge(asked))
        return [self._final(d, next(verdicts)) if d.item is not None and d.reason is None else d for d in decisions]

    def _formal(self, candidate: Candidate) -> Decision:
        """What can be seen without judgement: whether it parses, copies, or breaks its type's rule."""
        original = self._originals[candidate.original]
        if not candidate.ended:
            return Decision(candidate, reason="unparsable", explanation="it does not come to an end")
        item = parse_completion(original, candidate.type, candidate.completion)
        if isinstance(item, ParseFault):
            return Decision(candidate, reason="unparsable", explanation=item.reason)
        meta = item.meta | {"original": original.id, "round": candidate.round, "generator": candidate.generator}
        item = replace(item, id=candidate.id, meta=meta)
        if key(item) == key(original) or (candidate.type == "problem_restatement" and is_copy(item.text, original.text)):
            return Decision(candidate, item, reason="copy", explanation="it is the original, but for a few words")
        faults = rule_faults(item, original, candidate.type) or invented_faults(item, candidate.type)
        return Decision(candidate, item, reason="rule" if faults else None, explanation="; ".join(faults))

    def _final(self, formal: Decision, verdict: Verdict) -> Decision:
        assert formal.item is not None
        item = replace(formal.item, meta=formal.item.meta | {"verdict": asdict(verdict)})
        decision = replace(formal, item=item, verdict=verdict)
        if not verdict.valid:
            failing = [name for name in DIMENSIONS if not getattr(verdict, name)]
            return replace(decision, reason=failing[0], explanation=f"the verifier sees a fault in {', '.join(failing)}")
        twin = self._seen.twin(item, formal.candidate.type)
        if twin is not None:
            return replace(decision, reason="duplicate", explanation=f"it repeats {twin}")
        self._seen.add(item, formal.candidate.type)
        return decision


def tally(decisions: Iterable[Decision]) -> dict[str, Any]:
    """Candidates, accepted ones and rejections by reason, in all, by type and by round."""
    found = list(decisions)
    rounds = sorted({decision.candidate.round for decision in found})
    return _counts(found) | {
        "types": {slug: _counts([d for d in found if d.candidate.type == slug]) for slug in TYPES},
        "rounds": {f"{number:03d}": _counts([d for d in found if d.candidate.round == number]) for number in rounds},
    }


def _counts(decisions: Sequence[Decision]) -> dict[str, Any]:
    reasons = Counter(decision.reason for decision in decisions)
    counts: dict[str, Any] = {
        "n_candidates": len(decisions),
        "n_accepted": reasons[None],
        "reasons": {name: reasons[name] for name in REASONS},
    }
    return counts | ({"pass_rate": reasons[None] / len(decisions)} if decisions else {})


def read_candidates(path: Path, originals: Mapping[str, Item]) -> list[Candidate]:
    """Read candidates in file order; raises InputError where a line is none, or rewrites an item that is not there."""
    found = []
    for line, row in read_jsonl(path) if path.stat().st_size else ():
        try:
            found.append(Candidate(**row))
        except ValidationError as error:
            raise wrong_field(error, "a candidate", path, line=line, fix="run generate again") from error
        if found[-1].type not in TYPES:
            raise InputError(f"no variant type {found[-1].type!r}", file=path, line=line, field="type")
        if found[-1].original not in originals:
            raise InputError(f"there is no item {found[-1].original!r}", file=path, line=line, field="original", fix="run generate again")
    return found


def write_variants(
    output: Path, candidates: Sequence[Candidate], originals: Mapping[str, Item], judge: Judge, params: FilterParams
) -> dict[str, Any]:
    """Judge every candidate, round by round as generate did, and write what became of them; returns the headline metrics.

    ``variants.jsonl`` holds the accepted variants as items, ``rejected.jsonl`` every other candidate with the reason, and
    ``report.json`` the counts by type and round.
    """
    screen = Screen(judge, originals, params)
    rounds = sorted({candidate.round for candidate in candidates})
    decisions = [d for number in rounds for d in screen.decide([c for c in candidates if c.round == number])]
    report = tally(decisions)
    with atomic_directory(output) as place:
        write_items(place / "variants.jsonl", [d.item for d in decisions if d.reason is None and d.item is not None])
        write_jsonl(
            place / "rejected.jsonl", [_rejected(d) for d in sorted(decisions, key=lambda d: d.candidate.id) if d.reason is not None]
        )
        write_json(place / "report.json", report)
    return headline(report, [d.candidate for d in decisions])


def headline(report: Mapping[str, Any], candidates: Sequence[Candidate]) -> dict[str, Any]:
    """What a person compares between two runs."""
    accepted, written = report["n_accepted"], sum(candidate.n_tokens for candidate in candidates)
    metrics = {name: report[name] for name in ("n_candidates", "n_accepted", "pass_rate", "reasons") if name in report}
    metrics["accepted"] = {slug: row["n_accepted"] for slug, row in report["types"].items()}
    metrics["tokens"] = {"written": written} | ({"per_accepted": written / accepted} if accepted else {})
    return metrics


def _rejected(decision: Decision) -> dict[str, Any]:
    item, verdict = decision.item, decision.verdict
    return asdict(decision.candidate) | {
        "reason": decision.reason,
        "explanation": decision.explanation,
        "text": None if item is None else item.text,
        "choices": None if item is None else list(item.choices),
        "answer": None if item is None else item.answer,
        "verdict": None if verdict is None else asdict(verdict),
    }
