"""`gapscope preset list|show|use`: prepared parameter sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

import stages
from stages.common import CONTEXT, EXISTING_DIR, EXISTING_FILE, OneLineErrors

if TYPE_CHECKING:
    from gapscope.presets import Preset

PRESETS = Path(stages.__file__).parent.parent / "presets"

presets_option = click.option("--presets", type=EXISTING_DIR, default=PRESETS, help="Directory of presets, if not the repository's own.")


@click.group("preset", context_settings=CONTEXT)
def main() -> None:
    """List, show and use prepared parameter sets."""


@main.command("list", cls=OneLineErrors)
@presets_option
def list_presets(presets: Path) -> None:
    """Name every preset with what it is for."""
    from gapscope.presets import load_presets

    for name, preset in load_presets(presets).items():
        click.echo(f"{name:<14} {preset.description}")


@main.command("show", cls=OneLineErrors)
@click.argument("name")
@presets_option
def show(name: str, presets: Path) -> None:
    """Say what a preset needs: memory, time, licences and paths."""
    preset = _find(name, presets)
    click.echo(preset.description)
    for title, text in (("memory", preset.memory), ("time", preset.time), ("licence", preset.licence), ("notes", preset.notes)):
        if text:
            click.echo(click.wrap_text(text, 100, initial_indent=f"  {title:<8} ", subsequent_indent=" " * 11))
    for path, meaning in preset.paths.items():
        click.echo(f"  --path {path}=FILE  {meaning}")
    click.echo(f"  changes  {', '.join(sorted({*preset.replace, *preset.merge}))}")


@main.command("use", cls=OneLineErrors)
@click.argument("name")
@click.option("--path", "pairs", multiple=True, metavar="NAME=FILE", help="A path that the preset asks for; repeatable.")
@click.option("--params", "params_file", type=EXISTING_FILE, default=Path("params.yaml"), show_default=True, help="File to change.")
@click.option("--dry-run", is_flag=True, help="Print the diff and change nothing.")
@presets_option
def use(name: str, pairs: tuple[str, ...], params_file: Path, dry_run: bool, presets: Path) -> None:
    """Write a preset into params.yaml and print the diff."""
    from gapscope.errors import InputError
    from gapscope.files import read_text, write_bytes
    from gapscope.params import parse_params
    from gapscope.presets import apply_preset, diff

    paths = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"is {pair!r}", field="--path", fix="write --path NAME=FILE")
        paths[key] = Path(value).expanduser()
    old = read_text(params_file)
    new = apply_preset(old, _find(name, presets), paths)
    parse_params(new, params_file)
    click.echo(diff(old, new, os.fspath(params_file)), nl=False)
    if not dry_run:
        write_bytes(params_file, new.encode())
        click.echo(f"wrote {params_file}; now run: dvc repro", err=True)


def _find(name: str, directory: Path) -> Preset:
    from gapscope.errors import InputError
    from gapscope.presets import load_presets

    presets = load_presets(directory)
    if name not in presets:
        raise InputError(f"no preset {name!r}", fix=f"known: {', '.join(presets)}")
    return presets[name]
