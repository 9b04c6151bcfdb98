"""Progress bars with an ETA on stderr, silent when stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def track(iterable: Iterable[T], description: str, total: int | None = None, unit: str = "it") -> Iterator[T]:
    """Iterate with a progress bar and an ETA."""
    yield from bar(description, total, unit, iterable)


def bar(description: str, total: int | None, unit: str = "it", iterable: Iterable[T] | None = None) -> tqdm:  # type: ignore[type-arg]
    """A tqdm bar to update by hand (``bar.update(n)``), for work counted in other units than loop turns."""
    quiet = not sys.stderr.isatty()
    return tqdm(iterable, desc=description, total=total, unit=unit, file=sys.stderr, disable=quiet, dynamic_ncols=True)
