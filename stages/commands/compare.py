"""`gapscope compare A B`: what changed between two subjects, or since an earlier git revision."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages.common import EXISTING_DIR, PATH, stage_command

if TYPE_CHECKING:
    from gapscope.competency.performance import SubjectScores, Suite


@stage_command("compare")
@click.argument("first")
@click.argument("second", required=False)
@click.option("--rev", "revision", help="Take FIRST from this git revision (commit, branch, tag); SECOND is then FIRST unless given.")
@click.option("--observer", help="Which observer's concepts [default: the only one].")
@click.option("--params", "params_file", type=PATH, default=Path("params.yaml"), show_default=True, help="Parameters of the run.")
@click.option("--data", type=EXISTING_DIR, default=Path("data"), show_default=True, help="Directory of the artifacts.")
@click.option("--concepts", type=click.IntRange(1), default=8, show_default=True, help="Concepts of each kind to list.")
@click.option("--json", "as_json", is_flag=True, help="Print it to stdout as JSON.")
def main(
    first: str,
    second: str | None,
    revision: str | None,
    observer: str | None,
    params_file: Path,
    data: Path,
    concepts: int,
    as_json: bool,
) -> None:
    """Compare subject SECOND with subject FIRST, concept by concept, on the items that both have a score of.

    Changes are SECOND minus FIRST. "change" is that of the concept's score; "against others" is that change minus the
    one on comparable items, which is what tells a concept apart where one subject is better throughout.
    """
    from gapscope.competency.changes import Sides, add_labels, gather_changes, print_changes
    from gapscope.competency.compare import compare
    from gapscope.competency.performance import read_suite
    from gapscope.files import dump_json, rounded
    from gapscope.params import StageParams, load_params

    if second is None and revision is None:
        raise click.UsageError("give two subjects, or one and --rev")
    params = load_params(params_file) if params_file.exists() else StageParams()
    observer = observer or _only_observer(data)
    activations, coverage = data / "activations" / observer, data / "coverage" / observer
    suite = read_suite(activations, data / "items" / "items.jsonl", coverage, params.performance.strata)
    subjects = _subjects(suite, data, observer, (first, second or first), revision)
    names = (first if revision is None else f"{first} at {revision}", second or f"{first} now")
    found = compare(suite, *subjects, params.performance)
    gathered = gather_changes(found, Sides(*names, params.performance.alpha), concepts)
    add_labels(gathered, activations, data / "clusters" / f"{observer}.parquet", params.cluster.keywords)
    if as_json:
        click.echo(dump_json(rounded(gathered), indent=2))
    else:
        print_changes(gathered)


def _only_observer(data: Path) -> str:
    found = sorted(path.parent.name for path in (data / "activations").glob("*/rows.parquet"))
    if len(found) != 1:
        raise click.UsageError(f"name one with --observer: {', '.join(found)}" if found else f"{data / 'activations'} holds no observer")
    return found[0]


def _subjects(suite: Suite, data: Path, observer: str, pair: tuple[str, str], name: str | None) -> tuple[SubjectScores, SubjectScores]:
    """Scores of both subjects on the suite, the first's from the git revision where one is named."""
    from gapscope.competency.changes import check_same_items
    from gapscope.competency.performance import read_scores
    from gapscope.revision import Revision

    files: list[Any] = [data / "scores" / slug / "scores.parquet" for slug in pair]
    second = read_scores(files[1], suite.rows)
    if name is None:
        return read_scores(files[0], suite.rows), second
    before, now = Revision.open(data, name), Revision.open(data, None)
    with tempfile.TemporaryDirectory() as place:
        items = data / "items" / "items.jsonl"
        check_same_items(before.fetch(items, Path(place) / "items.jsonl"), items, name)
        # Named like its directory, so that messages about it say whose scores they are.
        first = read_scores(before.fetch(files[0], Path(place) / f"{pair[0]} at {name}" / "scores.parquet"), suite.rows)
    sae = data / "sae" / observer / "sae_weights.safetensors"
    if before.md5(sae) != now.md5(sae):
        click.echo(f"the SAE of {observer} was another one at {name}: concepts here are those of the present SAE", err=True)
    return first, second


if __name__ == "__main__":
    main()
