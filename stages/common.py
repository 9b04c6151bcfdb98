"""What every stage's command shares: options, one-line errors, metrics and provenance.

A stage script looks like this::

    @stage_command("coverage")
    @click.option("--activations", type=EXISTING_DIR, required=True, help="Directory written by extract-activations.")
    @click.option("--output", type=PATH, required=True, help="Directory for coverage.parquet.")
    @common_options
    def main(activations: Path, output: Path, common: Common) -> None:
        \"\"\"What the suite exercises, and what it does not.\"\"\"
        from gapscope.competency.coverage import write_coverage

        with common.stage() as record:
            record.metrics = write_coverage(activations, output, common.params.coverage)
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import click

from gapscope.errors import InputError

PATH = click.Path(path_type=Path)
EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
EXISTING_DIR = click.Path(path_type=Path, exists=True, file_okay=False)

# lm-eval writes --batch_size, click --batch-size: both are understood, in options and in command names.
CONTEXT = {"help_option_names": ["-h", "--help"], "token_normalize_func": lambda name: name.replace("_", "-")}


class OneLineErrors(click.Command):
    """A command whose foreseeable failures are one line on stderr and exit 1; ``--debug`` shows the traceback."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, turning input errors, a full disk and an interrupt into an exit code."""
        try:
            return super().invoke(ctx)
        except (InputError, OSError) as error:
            if "--debug" in sys.argv:
                raise
            message = error if isinstance(error, InputError) else f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
            click.echo(f"gapscope {self.name}: {message}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo(f"gapscope {self.name}: interrupted; run it again to go on from where it stopped", err=True)
            ctx.exit(130)


@dataclass
class Record:
    """What a stage reports when it is done: headline metrics, and details for the provenance file."""

    metrics: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Common:
    """The options that every stage has."""

    name: str
    params_file: Path | None
    metrics_file: Path | None
    provenance_file: Path | None
    as_json: bool

    @property
    def params(self) -> Any:
        """The checked parameters: of ``--params``, or the defaults of every stage where none is given."""
        from gapscope.params import StageParams, load_params

        return StageParams() if self.params_file is None else load_params(self.params_file)

    @contextmanager
    def stage(self) -> Iterator[Record]:
        """Run the block, then write its metrics and provenance and tell the person what came out."""
        from gapscope.files import dump_json, rounded, write_json
        from gapscope.provenance import recorded

        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        record = Record()
        with recorded(self.provenance_file, self.name) as provenance:
            yield record
            provenance |= record.details
        if self.metrics_file is not None:
            write_json(self.metrics_file, record.metrics)
        if self.as_json:
            click.echo(dump_json(rounded(record.metrics)))


def stage_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a click command of a stage's function, under the stage's name."""
    return click.command(name, cls=OneLineErrors, context_settings=CONTEXT)


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--params``, ``--metrics``, ``--provenance`` and ``--json`` and pass them on as ``common``."""

    @click.option("--params", "params_file", type=EXISTING_FILE, help="params.yaml; each stage's defaults without it.")
    @click.option("--metrics", "metrics_file", type=PATH, help="JSON file for the headline metrics.")
    @click.option("--provenance", "provenance_file", type=PATH, help="JSON file for versions, seconds and peak memory.")
    @click.option("--json", "as_json", is_flag=True, help="Print the headline metrics to stdout as JSON.")
    @wraps(function)
    def wrapper(
        *args: Any, params_file: Path | None, metrics_file: Path | None, provenance_file: Path | None, as_json: bool, **kwargs: Any
    ) -> None:
        name = click.get_current_context().command.name or ""
        function(*args, common=Common(name, params_file, metrics_file, provenance_file, as_json), **kwargs)

    return wrapper
