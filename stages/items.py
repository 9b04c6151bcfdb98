"""The items stage: every benchmark in one schema, sampled by seed, and a corpus that shares nothing with it."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command


@stage_command("items")
@click.option("--raw", type=EXISTING_DIR, required=True, help="Directory with one subdirectory a fetched source.")
@click.option("--output", type=PATH, required=True, help="Directory for items.jsonl and report.json.")
@click.option("--corpus-output", type=PATH, help="Directory for corpus.jsonl; no corpus is made without it.")
@common_options
def main(raw: Path, output: Path, corpus_output: Path | None, common: Common) -> None:
    """Read benchmarks into one schema.

    Rows that cannot be parsed, or have no gold or several, are dropped under a counted reason. A benchmark's limit keeps
    items by a hash of seed and id, so that a higher limit only adds.
    """
    from gapscope.benchmarks.suite import write_suite
    from gapscope.params import Params

    params = common.params
    if not isinstance(params, Params):
        raise click.UsageError("--params is needed: it names the benchmarks")
    with common.stage() as record:
        record.metrics = write_suite(params, raw, output, corpus_output)
        click.echo(f"{record.metrics['n_items']} items of {record.metrics['n_benchmarks']} benchmarks in {output}", err=True)


if __name__ == "__main__":
    main()
