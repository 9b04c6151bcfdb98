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


class VariantsParams(Strict):
    """Whether the stages from seeds to reach do anything: off, each writes that it is off and nothing is trained."""

    enabled: bool = True


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

    @model_validator(mode="after")
    def _layers_exist(self) -> FineTuneParams:
        if self.layers is not None and self.trained_layers is not None and self.trained_layers > self.layers:
            raise ValueError(f"trained_layers ({self.trained_layers}) is more than the {self.layers} layers that are kept")
        return self


class VerifierParams(Strict):
    """The verifier: fine-tuned models, evidence, and the heads on both.

    Attributes:
        era, ira: the fine-tuning of each form.
        tuned_share: share of the training families that fine-tuning sees.
        stack_share: share of them that the stack's heads learn from: other ones, since a fine-tuned model's
            probabilities are sharper on families that it has seen.
        likelihoods: of which variants an untuned model's likelihoods are evidence: none, those that ask for an order, or
            all. A small model's add nothing to the rest and take most of the time.
        head: kind of the evidence's classifier.
        folds: into how many parts the training families are cut to give the stack evidence it was not fitted to.
        assembled_weight: weight of seeds put together as a generator's variants are, as a share of the written seeds'.
        contrast_weight: weight of faults made up from those, likewise.
        contrasts: made-up faults of a variant.
    """

    era: FineTuneParams = FineTuneParams(steps=30, layers=6, trained_layers=4)
    ira: FineTuneParams = FineTuneParams(steps=30, layers=6, trained_layers=4)
    tuned_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    stack_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    likelihoods: Literal["none", "orders", "all"] = "none"
    head: Literal["forest", "boosting", "logistic"] = "forest"
    folds: Annotated[int, Field(ge=2)] = 5
    assembled_weight: Annotated[float, Field(ge=0)] = 0.3
    contrast_weight: Annotated[float, Field(ge=0)] = 0.1
    contrasts: Positive = 2

    @model_validator(mode="after")
    def _shares_fit(self) -> VerifierParams:
        if self.tuned_share + self.stack_share > 1:
            raise ValueError("tuned_share and stack_share are of different families: together at most 1")
        return self


class SftParams(Strict):
    """The sft stage: the model that is fine-tuned, the encoder by which texts are compared, and how."""

    source: Slug = "smollm2_135m"
    embedder: Slug = "minilm"
    verifier: VerifierParams = VerifierParams()
    generator: FineTuneParams = FineTuneParams(steps=55, trained_layers=12, max_tokens=448)


class GrpoParams(Strict):
    """The grpo stage: TRL's GRPO, with the verifier's probability as the reward.

    Attributes:
        steps: optimiser steps.
        num_generations: completions of one prompt, which are compared with each other.
        batch_size: completions of a step; a whole number of groups.
        learning_rate: at its highest, after a tenth of the steps; from there it falls to zero in a straight line.
        beta: weight of the divergence from the generator before; above 0, so that it is measured and bounded.
        epsilon: how far a probability ratio may move before it is clipped.
        temperature, top_p: of sampling.
        max_new_tokens: a completion that has not ended by then is cut, and does not enter the loss.
        max_prompt_tokens: longer prompts are left out and counted.
        trained_layers: only the last so many blocks learn; null trains everything.
        max_zero_variance: the stage stops when so many steps one after the other had no group with different rewards.
        save_steps: a checkpoint is kept every so many steps, from which a killed run goes on.
        check_families: held-out families whose completions are compared before and after.
        vllm: sample with vLLM, which needs a GPU and the package.
    """

    steps: Positive = 10
    num_generations: Annotated[int, Field(ge=2)] = 8
    batch_size: Positive = 8
    learning_rate: Annotated[float, Field(gt=0)] = 5e-5
    beta: Annotated[float, Field(gt=0)] = 0.04
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    temperature: Annotated[float, Field(gt=0)] = 0.9
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Positive = 128
    max_prompt_tokens: Positive = 256
    trained_layers: Positive | None = 8
    max_zero_variance: Positive = 10
    save_steps: Positive = 5
    check_families: Positive = 4
    vllm: bool = False

    @model_validator(mode="after")
    def _whole_groups(self) -> GrpoParams:
        if self.batch_size % self.num_generations:
            valid = ", ".join(str(self.num_generations * k) for k in (1, 2, 3))
            raise ValueError(f"batch_size ({self.batch_size}) must be a multiple of num_generations ({self.num_generations}): {valid}, ...")
        return self
