"""Blocks: columns of numbers packed into the page, and unpacked there into typed arrays.

A block is a JSON header and binary columns behind it, compressed (zlib) and written in base64. Numbers that are only looked at are
held in two bytes: ``linear`` on an even scale between their least and greatest, ``log`` on a logarithmic one, each to about
four significant digits; 65535 stands for undefined.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gapscope.files import dump_json

UNDEFINED = 65535
_TOP = 65533
"""The greatest code of a scale: code 0 is zero (log) or the least value (linear), 1 to 65533 lie above it."""


class Block:
    """Columns and JSON values under one name, in the order in which they were added."""

    def __init__(self) -> None:
        self._columns: dict[str, dict[str, Any]] = {}
        self._values: dict[str, Any] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def value(self, name: str, value: Any) -> None:
        """Add something that JSON can hold."""
        self._values[name] = value

    def _column(self, name: str, form: str, array: np.ndarray, **more: Any) -> None:
        data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        data += b"\0" * (-len(data) % 8)
        self._columns[name] = {"form": form, "at": self._size, "n": int(array.size), **more}
        self._parts.append(data)
        self._size += len(data)

    def counts(self, name: str, values: np.ndarray) -> None:
        """Add whole numbers, none negative, in as few bytes as the greatest needs."""
        values = np.asarray(values).ravel()
        greatest = int(values.max(initial=0))
        form = "u8" if greatest < 1 << 8 else "u16" if greatest < 1 << 16 else "u32"
        self._column(name, form, values.astype({"u8": np.uint8, "u16": np.uint16, "u32": np.uint32}[form]))

    def codes(self, name: str, values: Sequence[str | None]) -> None:
        """Add names, each as the index of a name in ``names``; null is the first name, "" ."""
        names = ["", *sorted({value for value in values if value})]
        place = {text: code for code, text in enumerate(names)}
        self.counts(name, np.array([place[value or ""] for value in values], dtype=np.int64))
        self._columns[name]["names"] = names

    def linear(self, name: str, values: np.ndarray) -> None:
        """Add finite numbers or NaN on an even scale."""
        values = np.asarray(values, dtype=np.float64).ravel()
        known = np.isfinite(values)
        low, high = (float(values[known].min()), float(values[known].max())) if known.any() else (0.0, 0.0)
        span = (high - low) or 1.0
        code = np.full(values.shape, UNDEFINED, dtype=np.uint16)
        code[known] = np.rint((values[known] - low) / span * _TOP)
        self._column(name, "linear", code, low=low, step=span / _TOP)

    def log(self, name: str, values: np.ndarray, least: float = 1e-12) -> None:
        """Add numbers of at least zero, or NaN, on a logarithmic scale; what lies between 0 and ``least`` becomes ``least``."""
        values = np.asarray(values, dtype=np.float64).ravel()
        known, above = np.isfinite(values), values > 0
        logs = np.log(np.maximum(values[known & above], least))
        low, high = (float(logs.min()), float(logs.max())) if logs.size else (0.0, 0.0)
        span = (high - low) or 1.0
        code = np.full(values.shape, UNDEFINED, dtype=np.uint16)
        code[known & ~above] = 0
        code[known & above] = 1 + np.rint((logs - low) / span * (_TOP - 1))
        self._column(name, "log", code, low=low, step=span / (_TOP - 1))

    def encode(self) -> str:
        """The block as base64 text."""
        header = dump_json({"columns": self._columns, "values": self._values}).encode()
        header += b" " * (-(len(header) + 4) % 8)
        raw = b"".join([struct.pack("<I", len(header)), header, *self._parts])
        return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
