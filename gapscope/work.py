"""Resumable state of long stages, keyed by what determines the result.

DVC deletes a stage's outputs before it runs, so partial results cannot live there. They live in
``<root>/<stage>/<key>/``, where the key hashes everything that the result depends on: a stage that is killed and run
again finds its finished shards; a stage with other inputs does not.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gapscope.files import dump_json, sha256_tree, write_bytes


def work_key(parameters: Any, inputs: list[Path]) -> str:
    """Sixteen hexadecimal digits from JSON-like parameters and the contents of the input files or directories."""
    digest = hashlib.sha256(dump_json(parameters).encode())
    for path in inputs:
        digest.update(sha256_tree(path).encode())
    return digest.hexdigest()[:16]


class WorkDirectory:
    """Named shards of bytes, each written whole or not at all."""

    def __init__(self, root: Path, stage: str, key: str) -> None:
        self.path = root / stage / key
        self.path.mkdir(parents=True, exist_ok=True)

    def shard(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the shard's bytes, computing and storing them on the first call."""
        file = self.path / name
        if not file.exists():
            write_bytes(file, make())
        return file.read_bytes()

    def clear(self) -> None:
        """Remove the state, once the outputs are published."""
        shutil.rmtree(self.path, ignore_errors=True)
