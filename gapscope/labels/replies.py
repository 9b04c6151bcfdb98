"""Replies of a language model, each asked for once: kept by the hash of its prompt, counted, and listed for whoever wants to check.

A reply lies in the work directory from the moment it is there. A run that is killed, or that an endpoint leaves in the lurch,
goes on from where it stopped; a run that is repeated asks nothing, and its outputs are the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gapscope.files import dump_json
from gapscope.progress import track
from gapscope.work import WorkDirectory, work_key


@dataclass(frozen=True)
class Reply:
    """A reply, the tokens that it took (None where the server does not say), and why it ended (stop, length, ...)."""

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ended: str | None = None


class Writer(Protocol):
    """A language model that replies to a prompt.

    ``identity`` holds everything that a reply depends on besides the prompt; ``parallel`` is how many may be under way at once.
    """

    @property
    def identity(self) -> dict[str, Any]: ...  # noqa: D102

    @property
    def parallel(self) -> int: ...  # noqa: D102

    def reply(self, prompt: str) -> Reply: ...  # noqa: D102


@dataclass
class Replies:
    """A writer with its memory.

    Attributes:
        asked: every prompt and reply of this run, in the order in which they were asked for, whether new or remembered.
        n_new: replies that this run had to ask for.
    """

    writer: Writer
    work: WorkDirectory
    asked: list[dict[str, Any]] = field(default_factory=list)
    n_new: int = 0

    @staticmethod
    def of(writer: Writer, root: Path) -> Replies:
        """Replies remembered under ``root`` for exactly this writer."""
        return Replies(writer, WorkDirectory(root, "replies", work_key(writer.identity, [])))

    def ask(self, purpose: str, prompts: Sequence[tuple[str, str]]) -> list[Reply]:
        """The reply to each (subject of the question, prompt), in their order.

        Raises:
            InputError: whatever the writer cannot get a reply for; what had come in by then is kept.
        """
        names = {prompt: hashlib.sha256(prompt.encode()).hexdigest()[:32] + ".json" for _about, prompt in prompts}
        new = [prompt for prompt, name in names.items() if not (self.work.path / name).exists()]
        with ThreadPoolExecutor(self.writer.parallel) as pool:
            waiting = [pool.submit(self._one, names[prompt], prompt) for prompt in new]
            try:
                for future in track(waiting, f"ask: {purpose}", unit="reply"):
                    future.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        self.n_new += len(new)
        replies = [self._one(names[prompt], prompt) for _about, prompt in prompts]
        for (about, prompt), reply in zip(prompts, replies, strict=True):
            self.asked.append({"purpose": purpose, "about": about, "prompt": prompt, **asdict(reply)})
        return replies

    def _one(self, name: str, prompt: str) -> Reply:
        return Reply(**json.loads(self.work.shard(name, lambda: _stored(self.writer.reply(prompt)))))

    def totals(self) -> dict[str, int]:
        """Replies and tokens of this run, remembered ones included; ``n_without_tokens`` of them came without a count."""
        known = [row for row in self.asked if row["prompt_tokens"] is not None and row["completion_tokens"] is not None]
        return {
            "n_replies": len(self.asked),
            "n_without_tokens": len(self.asked) - len(known),
            "n_cut_short": sum(row["ended"] == "length" for row in self.asked),
            "prompt_tokens": sum(row["prompt_tokens"] for row in known),
            "completion_tokens": sum(row["completion_tokens"] for row in known),
        }


def _stored(reply: Reply) -> bytes:
    """A reply as JSON. Half of a surrogate pair, which a reply that was cut short can end in and no file can hold, becomes U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", dump_json(asdict(reply))).encode()
