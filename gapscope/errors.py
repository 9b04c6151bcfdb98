"""Errors that a person can act on: one line that names the file, line, field and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class InputError(Exception):
    """Something given to gapscope is at fault: a file, a parameter, a pairing of model and SAE.

    The command line prints ``str(error)`` on one line of stderr and exits 1, without a traceback.
    """

    def __init__(
        self,
        message: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        field: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.field, self.fix = message, file, line, field, fix
        super().__init__(self._one_line())

    def _one_line(self) -> str:
        where = "" if self.file is None else str(self.file)
        if self.line is not None:
            where += f":{self.line}" if where else f"line {self.line}"
        parts = [part for part in (where, self.field, self.message) if part]
        text = ": ".join(parts) + (f" ({self.fix})" if self.fix else "")
        return " ".join(text.split())


def reason_of(error: BaseException, longest: int = 200) -> str:
    """What an error of a library says, on one line and not too long; its kind where it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def wrong_field(error: ValidationError, what: str, file: Path, *, line: int | None = None, fix: str | None = None) -> InputError:
    """The first of pydantic's complaints about an object in a file that should be ``what``, on one line that names its field."""
    fault = error.errors()[0]
    field = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    given = fault.get("input")
    shown = f", is {given!r:.60}" if isinstance(given, (str, int, float, bool)) else ""
    return InputError(f"not {what}: {fault['msg']}{shown}", file=file, line=line, field=field or None, fix=fix)
