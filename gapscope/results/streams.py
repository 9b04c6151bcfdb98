"""Large result files read piece by piece: JSON lines, one JSON document with a long list in it, and zip archives.

Only one line, list element or member is held at a time as Python objects; what is kept of it is the caller's choice.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from gapscope.errors import InputError
from gapscope.files import ONE_OF_TWO, RepeatedKeyError, find_repeat, once_each, read_text, require_file

T = TypeVar("T")

BOM = b"\xef\xbb\xbf"
CUT = "the file may be cut short"
SPACE = re.compile(r"[ \t\r\n]*")
ZIP = b"PK\x03\x04"
ZSTD = 93
"""zstd among the compression methods of zip; Python's own zipfile knows it from 3.14 on."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, ZSTD)
"""The compression methods of zip that are read."""


def opening(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file, unpacked if it is gzipped, from its first character on (no byte order mark, no space)."""
    with _binary(require_file(path)) as stream:
        return _guarded(lambda: stream.read(size), path).removeprefix(BOM).lstrip()


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of JSON lines, one line in memory at a time; or (number, object) of one JSON list of objects.

    Raises:
        InputError: not UTF-8, a NUL byte, not JSON, or anything but objects; names the line.
    """
    is_list = opening(path, 64).startswith(b"[")
    for number, value in enumerate(_Scanner(path).elements(), start=1) if is_list else _json_lines(path):
        if not isinstance(value, dict):
            raise InputError("each line must be a JSON object", file=path, line=number)
        yield number, value


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with _binary(path) as stream:
        for number, raw in enumerate(iter(lambda: _guarded(stream.readline, path), b""), start=1):
            text = _text(raw.removeprefix(BOM) if number == 1 else raw, path, number)
            if not text.strip():
                continue
            try:
                value = json.loads(text, object_pairs_hook=once_each)
            except json.JSONDecodeError as error:
                fix = None if raw.endswith(b"\n") else CUT
                raise InputError(f"not valid JSON: {error.msg}", file=path, line=number, fix=fix) from error
            except RepeatedKeyError as error:
                key = find_repeat(text)[1]
                raise InputError("the key occurs twice in one object", file=path, line=number, field=key, fix=ONE_OF_TWO) from error
            except (RecursionError, ValueError) as error:
                raise InputError(f"JSON that cannot be read: {error}", file=path, line=number) from error
            yield number, value


def json_document(path: Path, key: str, each: Callable[[Any], T]) -> tuple[dict[str, Any], list[T]]:
    """One JSON object, whose list under ``key`` is handed to ``each`` element by element.

    Returns:
        The object without ``key``, and what ``each`` made of the elements.

    Raises:
        InputError: the file is no JSON object; names the line.
    """
    scanner = _Scanner(path)
    rest: dict[str, Any] = {}
    made: list[T] = []
    scanner.expect("{")
    while not scanner.sees("}"):
        name = scanner.value()
        scanner.expect(":")
        if name == key and scanner.sees("["):
            made += [each(element) for element in scanner.elements()]
        else:
            rest[str(name)] = scanner.value()
        if not scanner.sees("}"):
            scanner.expect(",")
    return rest, made


class _Scanner:
    """A place in the text of a JSON file, which moves over one value or mark at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.text, self.place = path, read_text(path), 0
        self.decoder = json.JSONDecoder(object_pairs_hook=once_each)
        self._skip_space()

    def _skip_space(self) -> None:
        match = SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place

    def sees(self, mark: str) -> bool:
        """Whether the mark comes next."""
        return self.text.startswith(mark, self.place)

    def expect(self, mark: str) -> None:
        """Step over a mark that must come next."""
        if not self.sees(mark):
            line = self.text.count("\n", 0, self.place) + 1
            raise InputError(f"not valid JSON: {mark!r} expected", file=self.path, line=line, fix=self._cut(self.place))
        self.place += len(mark)
        self._skip_space()

    def value(self) -> Any:
        """Step over one value and return it."""
        try:
            value, self.place = self.decoder.raw_decode(self.text, self.place)
        except json.JSONDecodeError as error:
            raise InputError(f"not valid JSON: {error.msg}", file=self.path, line=error.lineno, fix=self._cut(error.pos)) from error
        except RepeatedKeyError as error:
            line, key = find_repeat(self.text)
            raise InputError("the key occurs twice in one object", file=self.path, line=line, field=key, fix=ONE_OF_TWO) from error
        except (RecursionError, ValueError) as error:
            line = self.text.count("\n", 0, self.place) + 1
            raise InputError(f"JSON that cannot be read: {error}", file=self.path, line=line) from error
        self._skip_space()
        return value

    def elements(self) -> Iterator[Any]:
        """Step over a list, one element at a time."""
        self.expect("[")
        while not self.sees("]"):
            yield self.value()
            if not self.sees("]"):
                self.expect(",")
        self.expect("]")

    def _cut(self, place: int) -> str | None:
        return CUT if place >= len(self.text.rstrip()) - 1 else None


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive.

    Raises:
        InputError: it is none, or is cut short (a zip's table of contents is at its end).
    """
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise InputError(f"not a readable zip archive: {error}", file=path, fix=CUT) from error


def zip_json(archive: zipfile.ZipFile, name: str, path: Path, convert: str) -> Any:
    """One member of a zip archive as JSON, be it stored, deflated or in zstd.

    ``convert`` is the fix to name where it is packed in another way.

    Raises:
        InputError: the member is damaged, or packed in a way that cannot be read here.
    """
    member = archive.getinfo(name)
    if member.compress_type not in METHODS:
        raise InputError(f"compression method {member.compress_type} is not known here", file=path, field=name, fix=convert)
    try:
        return json.loads(_unpack_zstd(path, member) if member.compress_type == ZSTD else archive.read(name))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RecursionError, struct.error) as error:
        raise InputError(f"damaged: {error}", file=path, field=name, fix=CUT) from error
    except RuntimeError as error:  # zipfile's, of a member that is encrypted
        raise InputError(f"cannot be read here: {error}", file=path, field=name, fix=convert) from error


def _unpack_zstd(path: Path, member: zipfile.ZipInfo) -> bytes:
    """A member in zstd, unpacked by Arrow, since Python 3.11 to 3.13 have no zstd of their own."""
    import pyarrow as pa

    with path.open("rb") as stream:
        stream.seek(member.header_offset)
        # A member's header is 30 bytes, the last four of them the lengths of its name and of an extra field.
        name_length, extra_length = struct.unpack("<HH", stream.read(30)[26:])
        stream.seek(name_length + extra_length, 1)
        packed = stream.read(member.compress_size)
    with pa.input_stream(pa.BufferReader(packed), compression="zstd") as unpacked:
        data: bytes = unpacked.read()
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise ValueError("its checksum is another one than recorded")
    return data


def _binary(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _guarded(read: Callable[[], bytes], path: Path) -> bytes:
    try:
        return read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"not a readable gzip file: {error}", file=path, fix=CUT) from error


def _text(raw: bytes, path: Path, line: int) -> str:
    if b"\x00" in raw:
        raise InputError("holds a NUL byte", file=path, line=line, fix="save it as plain UTF-8 text")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 at byte {error.start} of the line", file=path, line=line, fix="convert the file to UTF-8") from error
