"""Work that is many independent calls, spread over processes, in the order given whichever ends first."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

from joblib import Parallel, delayed

from gapscope.progress import track

T = TypeVar("T")

WATCH_SECONDS = 2.0
"""How often a process looks whether the one that began it is still there."""


def side_by_side(calls: Sequence[Callable[[], T]], processes: int, description: str, unit: str) -> Iterator[T]:
    """What each call returns, in their order; in this process alone where ``processes`` is 1.

    The calls must not depend on one another. What one raises is raised here. The processes end with this one, however it ends.
    """
    n_jobs = max(1, min(processes, len(calls)))
    # Not mapped into memory: arrays that a call sorts in place must be writeable.
    running = Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator", max_nbytes=None)(
        delayed(_call)(call, os.getpid()) for call in calls
    )
    yield from track(running, description, len(calls), unit)


def _call(call: Callable[[], T], beginner: int) -> T:
    if os.getpid() != beginner:
        _follow(beginner)
    return call()


@cache
def _follow(beginner: int) -> None:
    """End this process soon after the one that began it: joblib's would wait for minutes, or for ever, with their memory."""

    def watch() -> None:
        while os.getppid() == beginner:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
