"""The parameters of the second half: seeds, and the models that verify and generate variants."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gapscope.params_types import Positive, Sha256, Slug, Strict


class SeedFile(Strict):
    """A file of HellaSwag-Pro on this machine, with the sha256 it had when it was chosen."""

    path: str
    sha256: Sha256


class SeedsParams(Strict):
    """The seeds stage: shares of the families, and HellaSwag-Pro's own files where somebody has them."""

    development: Annotated[float, Field(gt=0, lt=1)] = 0.2
    heldout: Annotated[float, Field(gt=0, lt=1)] = 0.2
    imports: list[SeedFile] = Field(default_factory=list, alias="import")

    @model_validator(mode="after")
    def _some_to_train_on(self) -> SeedsParams:
        if self.development + self.heldout >= 0.9:
            raise ValueError("development and heldout must leave at least a tenth of the families to train on")
        return self


class FineTuneParams(Strict):
    """One supervised fine-tuning.

    Attributes:
        steps: optimiser steps; null makes one pass over the rows.
        batch_size: rows of a step.
        learning_rate: at its highest, after a tenth of the steps; from there it falls to zero in a straight line.
        layers: the model is cut after so many blocks, for speed; null keeps them all.
        trained_layers: only the last so many blocks learn, which saves most of the backward pass; null trains everything.
        max_tokens: longer rows are left out and counted, since a cut prompt is another question.
    """

    steps: Positive | None = None
    batch_size: Positive = 8
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    layers: Positive | None = None
    trained_layers: Positive | None = 8
    max_tokens: Positive = 640


class VerifierParams(Strict):
    """The verifier: fine-tuned models, evidence, and the head on both.

    Attributes:
        era, ira: the fine-tuning of each form.
        tuned_share: share of the training families that fine-tuning sees; the stack's head learns from the others,
            whose probabilities are those of families the model has not seen.
        likelihoods: of which variants an untuned model's likelihoods are evidence: those that ask for an order, or all.
            A small model's help with orders only.
        head: kind of the evidence's classifier.
        folds: into how many parts the training families are cut to give the stack evidence it was not fitted to.
        contrast_weight: weight of all made-up faults together, as a share of the written seeds'.
    """

    era: FineTuneParams = FineTuneParams(steps=48)
    ira: FineTuneParams = FineTuneParams(steps=48)
    tuned_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    likelihoods: Literal["orders", "all"] = "orders"
    head: Literal["forest", "boosting", "logistic"] = "forest"
    folds: Annotated[int, Field(ge=2)] = 5
    contrast_weight: Annotated[float, Field(ge=0)] = 0.2


class SftParams(Strict):
    """The sft stage: what is fine-tuned, by which encoder texts are compared (none without it), and how."""

    source: Slug = "smollm2_135m"
    embedder: Slug | None = None
    verifier: VerifierParams = VerifierParams()
