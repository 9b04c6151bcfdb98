"""The building blocks of params.yaml's models: slugs, hashes, ranges, and a model that takes nothing it does not know."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Dtype = Literal["float32", "bfloat16", "float16"]
LogFormat = Literal["lm_eval", "inspect", "lighteval", "arena"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """A group of parameters that refuses unknown keys and does not turn one type into another."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
