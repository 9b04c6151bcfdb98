"""Presets: prepared parameters that are written into params.yaml as a readable diff.

A preset file says what it is for and what it needs, asks for paths by name, and holds two groups of parameters:
``replace`` (each key takes the place of the whole old value) and ``merge`` (mappings are joined, other values replaced).
A value may hold ``${name}`` (the path given for that name), ``${name.file}`` (its file name) and ``${name.sha256}``.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter

from gapscope.errors import InputError
from gapscope.files import read_text, sha256_tree

PLACEHOLDER = re.compile(r"\$\{([a-z0-9_]+)(?:\.(file|sha256))?\}")


class Preset(BaseModel):
    """One preset file.

    Attributes:
        description: what it is for, in one line.
        memory, time, licence: what it needs.
        notes: what else a person should know: what was chosen and why, what could not be checked.
        paths: files that it asks for, by name, with what each must be.
        replace, merge: the parameters.
    """

    model_config = ConfigDict(extra="forbid")

    description: str
    memory: str
    time: str
    licence: str
    notes: str = ""
    paths: dict[str, str] = {}
    replace: dict[str, Any] = {}
    merge: dict[str, Any] = {}


def load_presets(directory: Path) -> dict[str, Preset]:
    """Every preset of a directory, by name, in alphabetical order.

    Raises:
        InputError: the directory holds none, or one of them is malformed.
    """
    files = sorted(directory.glob("*.yaml"))
    if not files:
        raise InputError("holds no preset", file=directory, fix="run this in a clone of gapscope, or give --presets DIR")
    presets = {}
    for file in files:
        try:
            presets[file.stem] = Preset.model_validate(YAML(typ="safe").load(read_text(file)))
        except ValidationError as error:
            fault = error.errors()[0]
            raise InputError(fault["msg"], file=file, field=".".join(map(str, fault["loc"]))) from error
    return presets


def fill(value: Any, paths: Mapping[str, Path]) -> Any:
    """Put given paths, their file names and their sha256 into every string of a nested value."""
    if isinstance(value, dict):
        return {key: fill(item, paths) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, paths) for item in value]
    if not isinstance(value, str):
        return value

    def put(match: re.Match[str]) -> str:
        path = paths[match[1]]
        return {"file": path.name, "sha256": sha256_tree(path) if match[2] == "sha256" else ""}.get(match[2], str(path))

    return PLACEHOLDER.sub(put, value)


def check_paths(preset: Preset, given: Mapping[str, Path]) -> None:
    """Refuse a path that the preset does not ask for, that is missing, or that does not exist."""
    for name in sorted(set(given) - set(preset.paths)):
        asked = ", ".join(sorted(preset.paths)) or "none"
        raise InputError(f"this preset takes no path named {name!r}", field="--path", fix=f"it takes: {asked}")
    for name, meaning in preset.paths.items():
        if name not in given:
            raise InputError(f"needs a path: {meaning}", field=f"--path {name}", fix=f"add --path {name}=FILE")
        if not given[name].exists():
            raise InputError("no such file or directory", file=given[name], field=f"--path {name}")


def apply_preset(text: str, preset: Preset, paths: Mapping[str, Path]) -> str:
    """The text of params.yaml with the preset in it; comments and order of what is kept stay as they are.

    Raises:
        InputError: a path is missing, unknown or does not exist.
    """
    check_paths(preset, paths)

    def put_in(document: Any) -> None:
        for key, value in preset.replace.items():
            put(document, key, fill(value, paths))
        _merge(document, fill(preset.merge, paths))

    return edited(text, put_in)


class _Representer(RoundTripRepresenter):
    """One of our own, since what is added to a representer is added to its class."""


def edited(text: str, change: Callable[[Any], None]) -> str:
    """The text of a YAML mapping after a change to it; comments and order of what is kept stay as they are."""
    yaml = YAML()
    yaml.width = 140
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.preserve_quotes = True
    # Left to itself it writes nothing for null, which would change lines that nobody changed.
    yaml.Representer = _Representer
    yaml.representer.add_representer(type(None), lambda writer, _value: writer.represent_scalar("tag:yaml.org,2002:null", "null"))
    # It writes 2e-05, which YAML 1.1 takes for a text.
    yaml.representer.add_representer(float, lambda writer, value: writer.represent_scalar("tag:yaml.org,2002:float", _number(value)))
    document = yaml.load(text)
    change(document)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _number(value: float) -> str:
    digits, e, exponent = repr(value).partition("e")
    return f"{digits}.0e{exponent}" if e and "." not in digits else repr(value)


def put(mapping: Any, key: str, value: Any) -> None:
    """Set a key, unless it has that value: then it stays as it is written, with its comments and blank lines."""
    if mapping.get(key) != value:
        mapping[key] = value


def _merge(target: Any, extra: Mapping[str, Any]) -> None:
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            put(target, key, value)


def diff(old: str, new: str, name: str) -> str:
    """A unified diff of two texts, empty where they are the same."""
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), f"{name} (before)", f"{name} (after)")
    return "".join(lines)
