"""The score stage: how right a subject was on every item, computed here or imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.common import EXISTING_DIR, EXISTING_FILE, PATH, Common, common_options, stage_command

if TYPE_CHECKING:
    from gapscope.params import Model


@stage_command("score")
@click.option("--model", "model_dir", type=EXISTING_DIR, help="Directory of a model in the Hugging Face layout, to be scored here.")
@click.option("--results", "results_file", type=EXISTING_FILE, help="Results of a subject scored elsewhere (.csv, .jsonl, .parquet).")
@click.option("--items", "items_file", type=EXISTING_FILE, required=True, help="items.jsonl, the questions.")
@click.option("--output", type=PATH, required=True, help="Directory for scores.parquet.")
@click.option("--model-key", help="Subject under models: in --params; with --source, in place of --model or --results.")
@click.option("--source", type=EXISTING_DIR, help="Directory of that subject's fetched source.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Precision of the weights [default: float32].")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...")
@click.option("--batch-size", type=click.IntRange(1), help="Most items in one forward pass [default: as the tokens allow].")
@click.option("--limit", type=click.IntRange(1), help="Only the first items of each benchmark, this many.")
@click.option("--normaliser", type=click.Choice(["none", "char", "byte", "token"]), help="none is lm-eval's acc, char its acc_norm.")
@click.option("--id-column", default="id", show_default=True, help="Of --results: the column with the items' ids.")
@click.option("--id-prefix", default="", help="Of --results: what to put before each id.")
@click.option("--score-column", help="Of --results: a column of scores from 0 to 1.")
@click.option("--prediction-column", help="Of --results: a column of answers to compare with gold.")
@click.option("--prediction-form", type=click.Choice(["letter", "index", "text", "exact", "number"]), help="Of --results: the answers.")
@click.option(
    "--missing", type=click.Choice(["unscored", "wrong"]), default="unscored", show_default=True, help="Of --results: empty cells."
)
@common_options
def main(items_file: Path, output: Path, common: Common, dtype: str | None, device: str, limit: int | None, **options: Any) -> None:
    """Per-item score of a subject, computed or imported.

    A subject is a local model (--model), whose choices are compared by log-likelihood, or a table of results
    (--results). An interrupted run goes on from where it stopped: its finished batches are in .work/.
    """
    from gapscope.files import atomic_directory
    from gapscope.items import read_items
    from gapscope.scores import first_of_each, summarise, write_scores

    params = common.params
    chosen = {key: options[key] for key in ("batch_size", "normaliser") if options[key] is not None}
    score_params = params.score.model_copy(update=chosen)
    model, source = _subject(params, options)
    items = first_of_each(read_items(items_file), limit)
    with common.stage() as record:
        counts: dict[str, int] = {}
        work = None
        if model.results is not None:
            from gapscope.results.subject import import_subject

            scores, counts = import_subject(source, items, model.results)
        else:
            from gapscope.scoring import score_model

            how = {"dtype": dtype or model.dtype, "device": device, "threads": params.threads}
            scores, work = score_model(source, items, score_params, Path(".work"), **how)
            record.details |= how
        with atomic_directory(output) as directory:
            write_scores(directory, items, scores)
        if work is not None:
            work.clear()
        record.metrics = summarise(items, scores) | counts
        shown = record.metrics.get("accuracy", {}).get("macro")
        click.echo(f"{record.metrics['n']} of {len(items)} items scored, mean accuracy over benchmarks {shown}; {output}", err=True)


def _subject(params: Any, options: dict[str, Any]) -> tuple[Model, Path]:
    """The subject, and the directory with its weights or its results, of --model-key or of the options."""
    from pydantic import ValidationError

    from gapscope.params import Model, Params, Results

    key, source, model_dir, file = (options[name] for name in ("model_key", "source", "model_dir", "results_file"))
    if sum(given is not None for given in (key, model_dir, file)) != 1:
        raise click.UsageError("give one of --model, --results and --model-key")
    if model_dir is not None:
        return Model(source="local", name=model_dir.name), model_dir
    if file is not None:
        names = ("id_column", "id_prefix", "score_column", "prediction_column", "prediction_form", "missing")
        try:
            results = Results(file=file.name, **{name: options[name] for name in names})
        except ValidationError as error:
            raise click.UsageError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        return Model(source="local", name=file.stem, results=results), file.parent
    if source is None or not isinstance(params, Params):
        raise click.UsageError("--model-key needs --source and --params")
    if key not in params.models:
        raise click.BadParameter(f"no {key!r} under models: (known: {', '.join(params.models)})", param_hint="--model-key")
    return params.models[key], source


if __name__ == "__main__":
    main()
