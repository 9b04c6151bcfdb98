"""The parameters of the validity stage: how much is drawn, and what the concepts are compared with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gapscope.params_types import Count, Positive, Slug, Strict


class OtherSaeParams(Strict):
    """A second, smaller SAE of the same layer; what is not named here is as in train_sae."""

    d_sae: Positive = 2048
    train_tokens: Positive = 40_000
    heldout_tokens: Positive = 10_000
    steps: Positive = 200


class ValidityParams(Strict):
    """The validity stage.

    Attributes:
        splits: ways of cutting the families in halves; each half once finds and once tests.
        ends: concepts at each end of a ranking that are followed; never more than a tenth of those tested.
        null_draws: analyses of permuted scores, for each subject.
        planted_draws: analyses of planted gaps, in turn on each subject's permuted scores.
        planted_concepts: gaps planted at a time.
        planted_drop: chance that a right answer on an item that carries a planted concept is made wrong.
        resamples: draws of subsampling, of the bootstrap, and of items dropped at random.
        subsample: share of the families in a subsample.
        stability_draws: halves of the contexts from which labels and clusters are made again.
        encoder: source of a sentence encoder, whose clusters of items are a control; null leaves that control out.
        other_sae: a second SAE to compare with, where an observer trains its own and no other observer reads the same
            model; null trains none.
    """

    splits: Positive = 3
    ends: Positive = 100
    null_draws: Positive = 200
    planted_draws: Positive = 20
    planted_concepts: Positive = 8
    planted_drop: Annotated[float, Field(gt=0, le=1)] = 0.5
    resamples: Positive = 100
    subsample: Annotated[float, Field(gt=0, lt=1)] = 0.8
    stability_draws: Count = 5
    encoder: Slug | None = None
    other_sae: OtherSaeParams | None = None
