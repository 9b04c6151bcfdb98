"""`gapscope variants show`: accepted variants beside their originals."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import CONTEXT, PATH, OneLineErrors


@click.group("variants", context_settings=CONTEXT)
def main() -> None:
    """Read a set of variants."""


@main.command("show", cls=OneLineErrors)
@click.argument("path", type=PATH, default=Path("data/variants"))
@click.option("--items", "items_file", type=PATH, default=Path("data/items/items.jsonl"), show_default=True, help="The originals.")
@click.option("--sample", type=click.IntRange(1), default=10, show_default=True, help="Variants of each type, the first by id.")
@click.option("--type", "slug", help="Only this type.")
@click.option("--json", "as_json", is_flag=True, help="Print them to stdout as JSON.")
def show(path: Path, items_file: Path, sample: int, slug: str | None, as_json: bool) -> None:
    """Print accepted variants of PATH (what filter wrote: a directory, or its variants.jsonl), each below its original.

    The first of each type by id are shown, not the best.
    """
    from gapscope.errors import InputError
    from gapscope.files import dump_json
    from gapscope.items import read_items
    from gapscope.variants.accepted import read_variants
    from gapscope.variants.off import off_reason
    from gapscope.variants.showing import as_rows, as_text, pick
    from gapscope.variants.types import TYPES

    if slug is not None and slug not in TYPES:
        raise click.BadParameter(f"no type {slug!r} (known: {', '.join(TYPES)})", param_hint="--type")
    if path.is_dir() and (reason := off_reason(path)):
        raise InputError(f"there are no variants: {reason}", file=path)
    file = path / "variants.jsonl" if path.is_dir() else path
    if not file.exists():
        raise InputError("no such file", file=file, fix="run filter first, or name its output")
    variants = read_variants(file)
    originals = {item.id: item for item in read_items(items_file)}
    for item in variants:
        original = originals.get(item.meta["original"])
        if original is None or original.answer is None:
            raise InputError(f"the original of {item.id!r} is not in {items_file}, with choices", file=file, field="meta.original")
    picked = pick(variants, [slug] if slug else list(TYPES), sample)
    counts = {name: sum(item.meta.get("type") == name for item in variants) for name in TYPES}
    click.echo(dump_json(as_rows(picked, originals), indent=2) if as_json else as_text(picked, originals, counts))
