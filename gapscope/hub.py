"""Models and data sets of the Hugging Face hub at one commit, through its own libraries, imported on the call."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import dump_json
from gapscope.params_data import HubSource
from gapscope.progress import track

logger = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40}")

NEVER = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle", "*.py", "*.h5", "*.msgpack", "*.onnx"]
"""What is not brought of a model, whatever ``include`` says: pickles, code, and weights in other forms."""


@contextmanager
def _one_line(slug: str, source: HubSource) -> Iterator[None]:
    """Turn what the hub's libraries raise (dozens of kinds, some many lines long) into one line."""
    logger.info("asking the hub for %s", source.repo)
    try:
        from huggingface_hub.utils import logging as hub_logging

        # An unreachable hub is tried six times over 25 seconds, with two lines a try: one line at the end says it all.
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        yield
    except InputError:
        raise
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        where = f"{source.repo} at {source.revision[:8]}"
        fix = "check the network, HF_HUB_OFFLINE and the repository's name and revision"
        raise InputError(
            f"the hub did not give {where}: {type(error).__name__}: {reason[:200]}", field=f"sources.{slug}", fix=fix
        ) from error


def commit_of(slug: str, source: HubSource) -> str:
    """The commit that a source's revision stands for; of a branch or a tag the hub tells it, with a warning.

    Raises:
        InputError: the hub is offline or out of reach, or has no such repository or revision.
    """
    if COMMIT.fullmatch(source.revision):
        return source.revision
    with _one_line(slug, source):
        from huggingface_hub import HfApi

        commit = str(HfApi().repo_info(source.repo, revision=source.revision, repo_type=source.repo_type).sha)
    logger.warning("sources.%s: %s is not pinned; now it is %s, to be written as revision: to keep it", slug, source.revision, commit)
    return commit


def download_model(slug: str, source: HubSource, directory: Path, commit: str) -> Path:
    """Download a model's files that match ``include``; what an earlier try finished is not fetched again.

    Raises:
        InputError: the hub is offline or out of reach, or has no such repository or revision.
    """
    with _one_line(slug, source):
        from huggingface_hub import snapshot_download

        include = [*source.include, source.gguf] if source.gguf else source.include
        snapshot_download(source.repo, revision=commit, allow_patterns=include, ignore_patterns=NEVER, local_dir=directory)
    return directory


def download_dataset(slug: str, source: HubSource, directory: Path, cache: Path, commit: str) -> Path:
    """Download one split of a data set and write it as JSON lines, one sorted object a row; return the file's path.

    Raises:
        InputError: as :func:`download_model`, or a column holds what JSON cannot (an image, audio, bytes).
    """
    with _one_line(slug, source):
        from datasets import load_dataset

        data = load_dataset(source.repo, source.config, split=source.split, revision=commit, cache_dir=str(cache))
    file = directory / (re.sub(r"[^A-Za-z0-9_-]+", "_", source.split or "") + ".jsonl")
    with file.open("w", encoding="utf-8", newline="\n") as out:
        for row in track(data, f"writing {slug}", total=len(data), unit="row"):
            out.write(_as_line(row, slug) + "\n")
    return file


def _as_line(row: dict[str, Any], slug: str) -> str:
    try:
        return dump_json(row)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"a row cannot be written as JSON: {error}", field=f"sources.{slug}", fix="choose a config of text columns"
        ) from error
