"""The cluster stage: the concepts that stand out, labelled from their contexts, grouped and named."""

from __future__ import annotations

from pathlib import Path

import click

from stages.common import EXISTING_DIR, PATH, Common, common_options, stage_command

EXISTING = click.Path(path_type=Path, exists=True)


@stage_command("cluster")
@click.option("--coverage", type=EXISTING_DIR, required=True, help="Directory written by coverage.")
@click.option("--performance", type=EXISTING, required=True, help="What performance wrote: a file or a directory.")
@click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
@click.option("--sae", type=EXISTING_DIR, required=True, help="SAE in SAELens's own format: its decoder directions.")
@click.option("--output", type=PATH, required=True, help="Parquet file for the clusters.")
@click.option("--labels-output", type=PATH, help="Directory for what labels were published and asked for: report.json, replies.jsonl.")
@click.option("--observer", help="The observer's key in the parameters, to find its published labels.")
@click.option("--raw", type=EXISTING_DIR, help="Directory of the sources: published label files, a local model that writes labels.")
@common_options
def main(output: Path, labels_output: Path | None, observer: str | None, raw: Path | None, common: Common, **given: Path) -> None:
    """Group and label the concepts that stand out.

    These are coverage gaps, and each subject's gaps, strengths and ends of the raw ranking. Labels are published ones, a
    language model's, or keywords from contexts (the parameters say which there are), with a detection score; groups join
    concepts of like decoder direction and like keywords. Replies of a language model are remembered in .work/.
    """
    from gapscope.competency.cluster import Inputs, write_clusters
    from gapscope.files import read_json
    from gapscope.labels.sources import label_sources

    with common.stage() as record:
        params = common.params
        width = int(read_json(given["activations"] / "meta.json")["d_sae"])
        sources = label_sources(params.labels, observer, raw, Path(".work"), width, params.threads)
        record.metrics = write_clusters(Inputs(**given), output, params.cluster, sources, labels_output)
        record.details = {} if sources.replies is None else {"n_new_replies": sources.replies.n_new}


if __name__ == "__main__":
    main()
