"""The parameters of the second half: seeds, and the models that verify and generate variants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from gapscope.params_types import Sha256, Strict


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
