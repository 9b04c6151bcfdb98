"""Outputs of an earlier git revision, read through DVC: from the working tree's cache or the default remote, never by checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapscope.errors import InputError
from gapscope.files import write_bytes


@dataclass(frozen=True)
class Revision:
    """The tracked files of a repository at one git revision, or of its working tree where ``name`` is None."""

    name: str | None
    root: Path
    files: Any

    @staticmethod
    def open(near: Path, name: str | None) -> Revision:
        """The revision (a commit, branch or tag) of the repository that holds ``near``.

        Raises:
            InputError: there is no such repository, or no such revision in it.
        """
        from dvc.api import DVCFileSystem
        from dvc.exceptions import DvcException, NotDvcRepoError
        from dvc.repo import Repo

        try:
            root = Path(Repo.find_root(str(near.resolve())))
        except NotDvcRepoError as error:
            raise InputError("is in no DVC repository, so that it has no other revision", file=near, fix="leave --rev out") from error
        try:
            files = DVCFileSystem(str(root), rev=name)
            files.info("/")  # the revision is looked up on first use
        except DvcException as error:
            raise InputError(f"{name!r}: {error}", field="--rev", fix="name a commit, a branch or a tag; see git log") from error
        return Revision(name, root, files)

    def fetch(self, path: Path, to: Path) -> Path:
        """Copy the bytes that ``path`` had at the revision to the file ``to``, and return it.

        Raises:
            InputError: no such file at the revision, or its bytes are neither in the cache nor in the remote.
        """
        name = self._name(path)
        try:
            self.files.info(name)
        except FileNotFoundError as error:
            raise InputError(f"is not there at {self.name}", file=path, field="--rev", fix="name a revision that has it") from error
        try:
            with self.files.open(name, "rb") as stream:
                data = stream.read()
        except FileNotFoundError as error:
            fix = f"dvc fetch brings it from a remote where one holds it, or run dvc repro at {self.name}"
            raise InputError(f"is recorded at {self.name}, but its bytes are not in the cache", file=path, fix=fix) from error
        write_bytes(to, data)
        return to

    def md5(self, path: Path) -> str | None:
        """The md5 that DVC has recorded of a file or directory; None where it has none."""
        try:
            found = self.files.info(self._name(path))
        except FileNotFoundError:
            return None
        recorded = (found.get("dvc_info") or {}).get("md5")
        return None if recorded is None else str(recorded)

    def _name(self, path: Path) -> str:
        absolute = path.resolve()
        if not absolute.is_relative_to(self.root.resolve()):
            raise InputError(f"is outside the repository {self.root}", file=path, field="--rev", fix="give paths inside it")
        return absolute.relative_to(self.root.resolve()).as_posix()
