"""Which files a log is: what a person names, with the files of the same run that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from gapscope.errors import InputError
from gapscope.files import sha256_file, sha256_files
from gapscope.params_types import LogFormat
from gapscope.results.lighteval import companion as lighteval_companion
from gapscope.results.lm_eval import companion as lm_eval_companion
from gapscope.results.subject import detect

INSIDE = ("samples_*.jsonl", "samples_*.jsonl.gz", "*.eval", "details_*.parquet")
COMPANIONS = {"lm_eval": lm_eval_companion, "lighteval": lighteval_companion}


@dataclass(frozen=True)
class LogFiles:
    """The files of a log, as a source of params.yaml names them.

    Attributes:
        path: the file, or the directory that holds all files.
        files: those with answers.
        include: globs of all files inside the directory; empty where the path is the one file.
        sha256: of the file, or of the included ones.
    """

    path: Path
    files: list[Path]
    include: list[str]
    sha256: str

    @property
    def patterns(self) -> list[str]:
        """Globs of the files with answers inside the fetched source."""
        root = self.path if self.include else self.path.parent
        return [escape(file.relative_to(root).as_posix()) for file in self.files]


def expand(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and of a directory the sample logs, evals and details in it; results files are left out.

    Raises:
        InputError: a path does not exist, or a directory holds none.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError("no such file or directory", file=path)
        if path.is_dir():
            inside = sorted(file for pattern in INSIDE for file in path.rglob(pattern) if file.is_file())
            if not inside:
                raise InputError("holds no log", file=path, fix=f"looked for {', '.join(INSIDE)}; name the files")
            found += inside
        else:
            found.append(path)
    alone = [file for file in found if not file.name.startswith("results_")]
    return list(dict.fromkeys(alone or found))


def format_of(files: Sequence[Path]) -> LogFormat | None:
    """The one format of all files, by their content; None for a plain table.

    Raises:
        InputError: they are of several formats, or damaged.
    """
    formats = {detect(file): file for file in files}
    if len(formats) > 1:
        listed = ", ".join(f"{file.name} is {name or 'a plain table'}" for name, file in formats.items())
        raise InputError(f"the files are of several formats: {listed}", fix="import one format at a time")
    return next(iter(formats))


def log_files(files: Sequence[Path], log_format: LogFormat | None) -> LogFiles:
    """What to record of the files in params.yaml, with the results files of the same runs."""
    find = COMPANIONS.get(log_format or "")
    beside = [other for file in files if find is not None and (other := find(file)) is not None]
    every = list(dict.fromkeys([*files, *beside]))
    if len(every) == 1:
        return LogFiles(every[0], list(files), [], sha256_file(every[0]))
    root = Path(os.path.commonpath([file.parent for file in every]))
    include = sorted(escape(file.relative_to(root).as_posix()) for file in every)
    return LogFiles(root, list(files), include, sha256_files(root, every))
