"""Deterministic, atomic writing and strict reading of the plain files behind every artifact.

Whatever is written here has sorted keys, LF line ends, UTF-8 and no NaN, and appears under its name only when whole.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gapscope.errors import InputError


def round_significant(values: np.ndarray, digits: int) -> np.ndarray:
    """Round to a number of significant digits; zeros, NaN and infinities stay what they are."""
    values = np.asarray(values, dtype=np.float64)
    # Below 1e-290 the power of ten itself would overflow; such a value is as good as its own rounding.
    finite = np.isfinite(values) & (np.abs(values) > 1e-290)
    exponent = np.zeros_like(values)
    exponent[finite] = digits - 1 - np.floor(np.log10(np.abs(values[finite])))
    # Scaling by a power of ten below one is done by division, so that the result is the nearest short decimal.
    up, down = 10.0 ** np.maximum(exponent, 0), 10.0 ** np.maximum(-exponent, 0)
    rounded = np.round(values * up / down) * down / up
    return np.where(finite, rounded, values)


def rounded(value: Any, digits: int = 7) -> Any:
    """Round every float inside nested dicts and lists to significant digits; numpy scalars become Python's."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item, digits) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(round_significant(np.array([value]), digits)[0])
    return value


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """JSON with sorted keys, raw UTF-8 and NaN refused.

    Raises:
        ValueError: a float is NaN or infinite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=indent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never half.

    Raises:
        OSError: the file cannot be written; it is named by its own name, not by that of the temporary one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON, sorted and rounded to seven significant digits."""
    write_bytes(path, (dump_json(rounded(value), indent=2) + "\n").encode())


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one sorted JSON object a line, in the order given."""
    write_bytes(path, "".join(dump_json(row) + "\n" for row in rows).encode())


def write_csr(path: Path, matrix: sp.csr_matrix | sp.csr_array) -> None:
    """Write a CSR matrix as scipy's own .npz (``scipy.sparse.load_npz`` reads it); column indices sorted, no zeros kept."""
    matrix = sp.csr_matrix(matrix)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    buffer = io.BytesIO()
    sp.save_npz(buffer, matrix, compressed=False)
    write_bytes(path, _packed(buffer))


def _packed(archive: io.BytesIO) -> bytes:
    """A zip archive compressed anew, so that its bytes do not depend on the Python: numpy asks for headers that 3.11.4 changed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def read_csr(path: Path) -> sp.csr_matrix:
    """Read a CSR matrix written by :func:`write_csr`.

    Raises:
        InputError: the file is absent, is not a sparse .npz, or holds a pickle.
    """
    require_file(path)
    try:
        matrix = sp.load_npz(path)
        if sp.issparse(matrix) and matrix.format == "csr":
            matrix.check_format(full_check=True)
    except Exception as error:  # zipfile, numpy and scipy raise a dozen kinds for a damaged file
        raise InputError(f"not a readable sparse matrix: {error}", file=path, fix="run the stage that writes it again") from error
    return sp.csr_matrix(matrix)


def require_file(path: Path) -> Path:
    """Return the path of a file that exists and is not empty, or raise InputError."""
    if not path.exists():
        raise InputError("no such file", file=path, fix="check the path, or run the stage that writes it")
    if path.is_dir():
        raise InputError("is a directory, a file is needed", file=path)
    if path.stat().st_size == 0:
        raise InputError("the file is empty", file=path)
    return path


def read_bytes(path: Path) -> bytes:
    """Read a file whole, unpacked where its name ends in .gz."""
    data = require_file(path).read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"not a readable gzip file: {error}", file=path, fix="it may be cut short; fetch it again") from error


def read_text(path: Path) -> str:
    """Read a UTF-8 text file, gzipped if it ends in .gz; a byte order mark and CRLF are accepted, NUL bytes are not."""
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError("is UTF-16, or begins as such a file does", file=path, line=1, fix="convert the file to UTF-8")
    if b"\x00" in data:
        line = data[: data.index(b"\x00")].count(b"\n") + 1
        raise InputError("holds a NUL byte", file=path, line=line, fix="save it as plain UTF-8 text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"not UTF-8 at byte {error.start}", file=path, line=line, fix="convert the file to UTF-8") from error
    return text.replace("\r\n", "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, naming the line of a syntax error, or of a key that its object has already."""
    text = read_text(path)
    try:
        return json.loads(text, object_pairs_hook=once_each)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", file=path, line=error.lineno) from error
    except RepeatedKeyError as error:
        line, key = find_repeat(text)
        raise InputError("the key occurs twice in one object", file=path, line=line, field=key, fix=ONE_OF_TWO) from error
    except (RecursionError, ValueError) as error:  # brackets thousands deep, a number of thousands of digits
        raise InputError(f"JSON that cannot be read: {error}", file=path) from error


ONE_OF_TWO = "keep one of the two: which is meant cannot be known"


class RepeatedKeyError(ValueError):
    """A key that its object has already; the value of the one or of the other would be lost."""


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The ``object_pairs_hook`` of every JSON reader: raises RepeatedKeyError where a key is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedKeyError
    return found


def find_repeat(text: str) -> tuple[int, str]:
    """Line and name of the first key that its object has already, in JSON text that is valid up to there."""
    objects: list[set[str]] = []
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}]', text):
        if token[0] == "{":
            objects.append(set())
        elif token[0] == "}":
            objects.pop()
        elif token[1]:
            key = json.loads(token[0].removesuffix(token[1]))
            if key in objects[-1]:
                return text.count("\n", 0, token.start()) + 1, key
            objects[-1].add(key)
    raise ValueError("no key occurs twice")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON value; null stands for what is unknown")


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSON-lines file; blank lines are skipped, anything but an object is refused."""
    # Only "\n" ends a line: str.splitlines would also cut at U+2028, which is legal inside a JSON string.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=once_each)
        except json.JSONDecodeError as error:
            fix = "the file may be cut short" if error.pos >= len(line.rstrip()) - 1 else None
            raise InputError(f"not valid JSON: {error.msg}", file=path, line=number, fix=fix) from error
        except RepeatedKeyError as error:
            raise InputError(
                "the key occurs twice in one object", file=path, line=number, field=find_repeat(line)[1], fix=ONE_OF_TWO
            ) from error
        except (RecursionError, ValueError) as error:
            raise InputError(f"JSON that cannot be read: {error}", file=path, line=number) from error
        if not isinstance(row, dict):
            raise InputError("each line must be a JSON object", file=path, line=number)
        yield number, row


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield an empty directory that becomes ``path`` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: ``path`` is a file or a link, holds the working directory, or holds what the new directory does not.
        InputError, OSError: of the block, and of the file system; they name ``path``, not the temporary directory.
    """
    _require_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.{os.getpid()}."))
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.is_dir():
            _require_known(path, {entry.name for entry in temporary.iterdir()})
            shutil.rmtree(path)
        temporary.replace(path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, (InputError, OSError)) and (told := _renamed(error, str(temporary), str(path))) is not error:
            raise told from error
        raise


def _renamed(error: InputError | OSError, temporary: str, final: str) -> InputError | OSError:
    """The same error with the final name in place of the temporary one, which nobody can look into any more."""

    def told(part: object) -> str | None:
        return None if part is None else str(part).replace(temporary, final)

    if temporary not in f"{error}{getattr(error, 'filename', None)}":
        return error
    if isinstance(error, InputError):
        return InputError(told(error.message) or "", file=told(error.file), line=error.line, field=error.field, fix=error.fix)
    if error.errno is None:  # of a library that only says what it means
        return OSError(told(error))
    return OSError(error.errno, told(error.strerror), told(error.filename))


def _require_replaceable(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise InputError("exists and is no directory", file=path, field="output", fix="name another directory")
    if Path.cwd().is_relative_to(path.resolve()):
        raise InputError("holds the working directory and would be replaced", file=path, field="output", fix="name another directory")


def _require_known(path: Path, names: set[str]) -> None:
    """Refuse to replace a directory with files of somebody else: an input, perhaps, or notes."""
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in names)
    if foreign:
        message = f"holds {foreign[0]!r}, which replacing the directory would delete"
        raise InputError(message, file=path, field="output", fix="name another directory, or remove it first")


def _sweep(path: Path) -> None:
    """Remove what a killed run left half-made of ``path``: it would count as part of the directory around it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
        pid = left.name.removeprefix(f".{path.name}.").partition(".")[0]
        if left.is_dir() and pid.isdigit() and not _running(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sha256_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_tree(path: Path) -> str:
    """The sha256 of a file, or of a directory's sorted relative names and contents."""
    if path.is_file():
        return sha256_file(path)
    return sha256_files(path, (entry for entry in path.rglob("*") if entry.is_file()))


def sha256_files(root: Path, files: Iterable[Path]) -> str:
    """The sha256 of some files of a directory: of their sorted names relative to ``root``, and their contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root).as_posix()}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


def stable_hash(*parts: object) -> int:
    """A 64-bit integer from the text of the parts: the seed of whatever is random about one item."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
