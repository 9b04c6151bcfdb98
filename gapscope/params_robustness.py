"""The parameters that make, filter, evaluate and read a robustness benchmark."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gapscope.params_types import Count, Dtype, Inside, Positive, Share, Slug, Strict

N_TYPES = 7


class GenerateParams(Strict):
    """The generate stage: rounds of candidates until every type has its target, or the budget is spent.

    Attributes:
        source: which items are rewritten first: `items`, in an order drawn from the seed, or `gaps`, those that carry most of the
            concepts that the suite under-exercises and of those on which a subject does worse; an error where there are none.
        observer: slug of the observer that sees these gaps, and that reads the variants; null for the first by name.
        target_per_type: accepted variants of each type at which the rounds stop.
        round_size: source items that each unfinished type gets in a round, one candidate an item.
        max_candidates: the budget, over all types.
        sft_candidates: candidates of each type that the generator before reinforcement writes for the same items, for
            comparison; they never enter the benchmark.
        max_prompt_tokens: source items whose prompt is longer are left out and counted.
        guided: whether the fixed parts of a form are put in (:mod:`gapscope.variants.guides`), as a small model needs it;
            otherwise the generator writes all by itself.
        max_new_tokens: a candidate that has not ended by then is cut and rejected; what its form puts in counts too.
        temperature, top_p: of sampling.
        dtype: precision of the generator's weights.
        batch_size: candidates written at once; it changes the speed, and in low precision a token now and then.
    """

    source: Literal["items", "gaps"] = "items"
    observer: Slug | None = None
    target_per_type: Positive = 10
    round_size: Positive = 8
    max_candidates: Positive = 336
    sft_candidates: Count = 8
    max_prompt_tokens: Positive = 256
    guided: bool = True
    max_new_tokens: Positive = 256
    temperature: Annotated[float, Field(gt=0)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    dtype: Dtype = "bfloat16"
    batch_size: Positive = 28

    @model_validator(mode="after")
    def _target_within_budget(self) -> GenerateParams:
        needed = N_TYPES * self.target_per_type
        if needed > self.max_candidates:
            raise ValueError(
                f"{N_TYPES} types x target_per_type {self.target_per_type} is {needed}, above max_candidates {self.max_candidates}"
            )
        if self.sft_candidates > self.round_size:
            raise ValueError(
                f"sft_candidates ({self.sft_candidates}) are compared with those of the first round: at most round_size ({self.round_size})"
            )
        return self


class FilterParams(Strict):
    """The filter stage: from which Jaccard similarity of word shingles on two variants of a type are near duplicates."""

    near_duplicate: Annotated[float, Field(gt=0, le=1)] = 0.8
    shingle_words: Positive = 3
    permutations: Annotated[int, Field(ge=16)] = 128


class Reference(Strict):
    """A table (CSV with the columns subject and score) whose ranking of the subjects ours is compared with."""

    source: Slug
    file: Inside


class EvaluateParams(Strict):
    """The evaluate stage: draws of the bootstrap over families, the intervals' level, a reference to rank against."""

    bootstrap_draws: Annotated[int, Field(ge=100)] = 2000
    confidence: Annotated[Share, Field(gt=0, lt=1)] = 0.95
    reference: Reference | None = None


class ReachParams(Strict):
    """The reach stage: draws of random items and of the bootstrap over families, and the intervals' level."""

    draws: Annotated[int, Field(ge=100)] = 1000
    confidence: Annotated[Share, Field(gt=0, lt=1)] = 0.95
