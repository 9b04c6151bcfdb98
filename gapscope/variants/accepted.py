"""Accepted variants, read back from a file that somebody may have made by hand."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from gapscope.errors import InputError, wrong_field
from gapscope.items import Item, read_items
from gapscope.variants.types import TYPES


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Verdict(_Plain):
    p: float | None = None


class _Meta(_Plain):
    """What is read of a variant's ``meta``; it may hold more."""

    type: str
    original: str
    bloom: str | None = None
    verdict: _Verdict | None = None


def read_variants(file: Path) -> list[Item]:
    """Variants in file order, none where the file is empty.

    Raises:
        InputError: an item is at fault, or what its ``meta`` says of its type, original, level or verdict.
    """
    variants = read_items(file) if file.stat().st_size else []
    for variant in variants:
        try:
            meta = _Meta.model_validate(variant.meta)
        except ValidationError as error:
            told = wrong_field(error, f"a variant's meta ({variant.id!r})", file)
            raise InputError(told.message, file=file, field=f"meta.{told.field}") from error
        if meta.type not in TYPES:
            fix = f"use one of {', '.join(TYPES)}"
            raise InputError(f"{variant.id!r} has no known type", file=file, field="meta.type", fix=fix)
        if variant.answer is None:
            raise InputError(f"{variant.id!r} has no choices", file=file, field="choices")
    return variants
