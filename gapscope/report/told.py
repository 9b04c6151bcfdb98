"""What the later stages' JSON files hold, as far as the summary and the written report tell of it, checked as it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gapscope.errors import wrong_field
from gapscope.files import read_json


class Told(BaseModel):
    """Fields that nothing is told of are let by; metrics leave out what is undefined, reports hold null for it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


T = TypeVar("T", bound=Told)


class Control(Told):
    """Agreement of two halves of the families, and what shuffled scores reach."""

    r: float | None = None
    r_chance: float | None = None


class Controls(Told):
    """One observer's."""

    concepts: Control = Control()
    random: Control = Control()


class Validity(Told):
    """metrics/validity.json; controls by observer."""

    controls: dict[str, Controls] = {}


class Measured(Told):
    """How well held-out variants are judged."""

    balanced_accuracy: float | None = None


class Heldout(Measured):
    """The verifier, beside a bag of words, and on whether labels are right."""

    n: int = 0
    bag_of_words: Measured = Measured()
    label_correct: Measured = Measured()


class Verifier(Told):
    """metrics/sft.json."""

    heldout: Heldout = Heldout()


class Filtered(Told):
    """metrics/filter.json; accepted by type."""

    n_accepted: int = 0
    n_candidates: int = 0
    accepted: dict[str, int] = {}


class Accuracies(Told):
    """Of a subject on originals and on variants."""

    oa: float | None = None
    ara: float | None = None


class Robustness(Told):
    """metrics/evaluate.json; subjects by slug."""

    subjects: dict[str, Accuracies] = {}


class Spread(Told):
    """Mean over draws of random items, and the ends of their central part."""

    mean: float | None = None
    low: float | None = None
    high: float | None = None


class Reached(Told):
    """Concepts of one kind, and on how many of them each side fires; which random items there are differs by kind."""

    n: int
    variants: int
    originals: int
    new: int
    random_items: Spread = Spread()
    random_tokens: Spread = Spread()
    random_rewritten: Spread = Spread()


class Sizes(Told):
    """Items of each side."""

    originals: int = 0
    variants: int = 0


class Reach(Told):
    """metrics/reach.json; what is reached by kind of concept."""

    n: Sizes = Sizes()
    reached: dict[str, Reached] = {}


class Kinds(Told):
    """Reached of each kind that the written report shows."""

    under: Reached
    unexercised: Reached
    model: Reached


class Rates(Told):
    """Firings per 1,000 tokens."""

    suite: float | None
    originals: float | None
    variants: float | None


class Change(Told):
    """log2 of the variants' rate over the originals'."""

    originals: float | None
    originals_low: float | None
    originals_high: float | None


class Held(Told):
    """Whether a subject's gaps are there on the variants."""

    status: Literal["holds", "reversed", "undecided", "unsupported", "not_asked"]
    n: int = 0
    n_eff: float = 0.0
    difference: float | None = None
    low: float | None = None
    high: float | None = None


class Gaps(Told):
    """A subject's gap concepts."""

    n_concepts: int
    variants: Held


class ReachReport(Told):
    """report.json of the reach stage; model by subject."""

    n: Sizes
    reached: Kinds
    rate: Rates
    change: Change
    model: dict[str, Gaps]


def read_told(file: Path, kind: type[T], stage: str) -> tuple[T, dict[str, Any]]:
    """What a file of ``stage`` says, checked, and all that it holds.

    Raises:
        InputError: absent, no JSON, or a field that is told of is missing or of another type; names the file and the field.
    """
    found = read_json(file)
    try:
        return kind.model_validate(found), found
    except ValidationError as error:
        raise wrong_field(error, f"what {stage} writes", file, fix=f"run {stage} again") from error
