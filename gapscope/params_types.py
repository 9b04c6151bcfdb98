"""The building blocks of params.yaml's models: slugs, hashes, ranges, and a model that takes nothing it does not know."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints


def _whole_commit(name: str) -> str:
    if re.fullmatch(r"[0-9a-f]{7,}", name) and len(name) != 40:
        raise ValueError(f"a commit has 40 characters, this has {len(name)}")
    return name


def _inside(pattern: str) -> str:
    if not pattern or PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
        raise ValueError("must be a path or pattern inside the source, without '..'")
    return pattern


Inside = Annotated[str, AfterValidator(_inside)]
"""A path or a glob inside a source, with forward slashes."""
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"), AfterValidator(_whole_commit)]
"""A commit, a branch or a tag of a hub repository."""
Dtype = Literal["float32", "bfloat16", "float16"]
LogFormat = Literal["lm_eval", "inspect", "lighteval", "arena"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """A group of parameters that refuses unknown keys and what is no number, and does not turn one type into another."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
