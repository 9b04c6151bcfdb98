"""The generate stage: rounds of candidates until every type has its target of accepted variants, or the budget is spent."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import atomic_directory, dump_json, stable_hash, write_json, write_jsonl
from gapscope.items import Item
from gapscope.lm import LM
from gapscope.params_robustness import GenerateParams
from gapscope.scores import wilson_interval
from gapscope.variants.filtering import Candidate, Decision, Screen, tally
from gapscope.variants.generator_prompts import generator_prompt
from gapscope.variants.guides import Steering, guide, guide_seed, suits
from gapscope.variants.prompts import Pair, describe
from gapscope.variants.sampling import Sampling, encode_prompt, sample
from gapscope.variants.types import TYPES
from gapscope.work import WorkDirectory

logger = logging.getLogger(__name__)
TRAINED, BEFORE = "grpo", "sft"
"""Names of the generator that makes the set, and of the one before reinforcement."""

Ask = tuple[Item, str, int]
"""A source item, a type and a round."""


@dataclass(frozen=True)
class Sources:
    """Items to be rewritten, in seeded order, one a family; and how many were left out, by reason."""

    items: list[Item]
    n_left_out: dict[str, int]


@dataclass
class Generated:
    """Candidates of the trained generator with what was decided on them, and those of the one before."""

    decisions: list[Decision] = field(default_factory=list)
    before: list[Decision] = field(default_factory=list)
    n_rounds: int = 0
    n_verified_tokens: int = 0


def pick_sources(
    items: Sequence[Item],
    benchmarks: Sequence[str] | None,
    max_prompt_tokens: int,
    n_tokens: Callable[[str], int],
    seed: int,
    order: Sequence[str] | None = None,
) -> Sources:
    """The items to rewrite: with choices, of the benchmarks (None: of all), short enough, the first of its family.

    The order is that of the ids given, items without one left out; or it is drawn from the seed and the ids, so that an item
    more moves no other.

    Raises:
        InputError: a benchmark has no item, none is left, or an id of the order is no item's.
    """
    known = {item.benchmark for item in items}
    for slug in benchmarks or []:
        if slug not in known:
            raise InputError(f"there is no item of {slug!r}", field="rewritten", fix=f"choose from {', '.join(sorted(known))}")
    left_out: Counter[str] = Counter(no_choices=0, too_long=0, same_family=0)
    kept: dict[str, Item] = {}
    places = None if order is None else _places(order, items)
    for item in sorted(items, key=lambda item: (places.get(item.id, 0) if places else stable_hash(seed, "source", item.id), item.id)):
        if benchmarks is not None and item.benchmark not in benchmarks:
            continue
        if places is not None and item.id not in places:
            left_out["not_chosen"] += 1
        elif item.answer is None:
            left_out["no_choices"] += 1
        elif item.family in kept:
            left_out["same_family"] += 1
        elif max(n_tokens(generator_prompt(item, slug)) for slug in TYPES) > max_prompt_tokens:
            left_out["too_long"] += 1
        else:
            kept[item.family] = item
    if not kept:
        raise InputError("no item is left to rewrite", field="generate.max_prompt_tokens", fix="raise it, or choose other benchmarks")
    return Sources(list(kept.values()), dict(left_out))


def _places(order: Sequence[str], items: Sequence[Item]) -> dict[str, int]:
    known = {item.id for item in items}
    for item_id in order:
        if item_id not in known:
            raise InputError(f"{item_id!r} is to be rewritten and is no item", field="sources", fix="run the sources stage again")
    return {item_id: place for place, item_id in enumerate(order)}


def plan_round(sources: Sequence[Item], number: int, accepted: Counter[str], budget: int, params: GenerateParams) -> list[Ask]:
    """What to ask for in a round: the next ``round_size`` items, of every type that is short of its target, within the budget.

    All types go through the items in one order, so that families get several variants; guided writing passes over those that
    do not suit the type, as long as one does. After the last item comes the first again, with other draws. Where the budget
    ends inside a round, each type gets the same number of items.
    """
    short = [slug for slug in TYPES if accepted[slug] < params.target_per_type]
    size = min(params.round_size, budget // len(short)) if short else 0
    start = number * params.round_size
    suited = {slug: [item for item in sources if params.guided and suits(item, slug)] or sources for slug in short}
    return [(suited[slug][(start + k) % len(suited[slug])], slug, number) for slug in short for k in range(size)]


class Writer:
    """A generator that writes candidates in batches, each kept for a restart."""

    def __init__(self, lm: LM, name: str, params: GenerateParams, seed: int, work: WorkDirectory) -> None:
        self._lm, self._name, self._params, self._seed, self._work = lm, name, params, seed, work

    def write(self, asks: Sequence[Ask]) -> list[Candidate]:
        """A candidate an ask, in the order given."""
        found: list[Candidate] = []
        size = self._params.batch_size
        for start in range(0, len(asks), size):
            shard = f"{self._name}-{asks[0][2]:03d}-{start:06d}.json"
            rows = json.loads(self._work.shard(shard, partial(self._batch, asks[start : start + size])))
            found += [Candidate(**row) for row in rows]
        return found

    def _batch(self, asks: Sequence[Ask]) -> bytes:
        how = Sampling(self._params.max_new_tokens, self._params.temperature, self._params.top_p)
        prompts = [encode_prompt(self._lm, generator_prompt(item, slug)) for item, slug, _number in asks]
        # Not of the generator's name: both generators get the same draws, so that they differ by their weights alone.
        seeds = [stable_hash(self._seed, "generate", item.id, slug, number) for item, slug, number in asks]
        guides = [guide(item, slug, guide_seed(self._seed, item, slug, number)) for item, slug, number in asks]
        made = sample(self._lm, prompts, seeds, how, Steering(self._lm, guides) if self._params.guided else None)
        rows = [
            Candidate(f"{item.id}-{slug}-r{number:03d}", item.id, slug, number, self._name, one.text, one.n_tokens, one.ended)
            for (item, slug, number), one in zip(asks, made, strict=True)
        ]
        return dump_json([asdict(row) for row in rows]).encode()


def generate(
    trained: Writer, before: Writer, sources: Sources, new_screen: Callable[[], Screen], params: GenerateParams, count: Callable[[str], int]
) -> Generated:
    """Write and judge rounds of candidates; ``new_screen`` gives a screen that has accepted nothing yet."""
    found, screen, accepted = Generated(), new_screen(), Counter[str]()
    originals = {item.id: item for item in sources.items}
    first = plan_round(sources.items, 0, accepted, params.max_candidates, params)
    while asks := plan_round(sources.items, found.n_rounds, accepted, params.max_candidates - len(found.decisions), params):
        decisions = screen.decide(trained.write(asks))
        found.decisions += decisions
        accepted.update(d.candidate.type for d in decisions if d.reason is None)
        found.n_verified_tokens += sum(_verified(d, originals[d.candidate.original], count) for d in decisions)
        found.n_rounds += 1
        logger.info("round %d: %s", found.n_rounds, ", ".join(f"{slug} {accepted[slug]}" for slug in TYPES))
    asks = [ask for slug in TYPES for ask in [each for each in first if each[1] == slug][: params.sft_candidates]]
    found.before = new_screen().decide(before.write(asks)) if asks else []
    return found


def _verified(decision: Decision, original: Item, count: Callable[[str], int]) -> int:
    """Tokens of a pair as the verifier reads it; 0 where it never got so far."""
    if decision.item is None or decision.verdict is None:
        return 0
    return count(describe(Pair(decision.item, original, decision.candidate.type)))


def write_candidates(output: Path, found: Generated, sources: Sources, params: GenerateParams) -> dict[str, Any]:
    """Write ``candidates.jsonl``, ``sft.jsonl`` (of the generator before) and ``report.json``; returns the headline metrics."""
    report = tally(found.decisions)
    short = {slug: params.target_per_type - row["n_accepted"] for slug, row in report["types"].items()}
    report["shortfall"] = {slug: missing for slug, missing in short.items() if missing > 0}
    report["sources"] = {
        "n": len(sources.items),
        "n_used": len({d.candidate.original for d in found.decisions}),
        "n_left_out": sources.n_left_out,
    }
    asked = {decision.candidate.id for decision in found.before}
    same = [decision for decision in found.decisions if decision.candidate.id in asked]
    report["side_by_side"] = {TRAINED: tally(same), BEFORE: tally(found.before)}
    with atomic_directory(output) as place:
        write_jsonl(place / "candidates.jsonl", [asdict(decision.candidate) for decision in found.decisions])
        write_jsonl(place / "sft.jsonl", [asdict(decision.candidate) for decision in found.before])
        write_json(place / "report.json", report)
    written, accepted = sum(d.candidate.n_tokens for d in found.decisions), report["n_accepted"]
    metrics: dict[str, Any] = {name: report[name] for name in ("n_candidates", "n_accepted")}
    metrics |= {"n_rounds": found.n_rounds, "n_types_short": len(report["shortfall"])}
    metrics["tokens"] = {"written": written, "verified": found.n_verified_tokens}
    if accepted:
        metrics["tokens"] |= {"written_per_accepted": written / accepted, "verified_per_accepted": found.n_verified_tokens / accepted}
    metrics["pass_rate"] = {TRAINED: _rate(same), BEFORE: _rate(found.before)}
    return metrics


def _rate(decisions: Sequence[Decision]) -> dict[str, float]:
    """Share of accepted candidates with its 95% interval, on the items that both generators were given."""
    if not decisions:
        return {"n": 0}
    share = sum(decision.reason is None for decision in decisions) / len(decisions)
    low, high = wilson_interval(share, len(decisions))
    return {"n": len(decisions), "rate": share, "low": round(low, 6), "high": round(high, 6)}
