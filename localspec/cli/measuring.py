"""Shared parts of `bench`, `verify` and `tune`: options, progress bar, tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from localspec.bench import measure, report, suite
from localspec.bench.suite import Prompt
from localspec.cli import render
from localspec.cli.columns import columns, hung
from localspec.cli.names import complete_models, complete_slices
from localspec.errors import escaped

PIPED_COLUMNS = 160
"""The width of tables in a file or a pipe, where no window bounds it."""


def names(_ctx: click.Context, _param: click.Parameter, given: str) -> tuple[str, ...]:
    """Comma-separated names without blanks."""
    return tuple(name.strip() for name in given.split(",") if name.strip())


def options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine several of click's decorators into one; the first is shown first."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


WHICH_PROMPTS = options(
    click.option(
        "--prompts",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Spec-Bench's question.jsonl instead of the built-in suite.",
    ),
    click.option(
        "--slices",
        callback=names,
        default="",
        metavar="A,B",
        shell_complete=complete_slices,
        help="Only these slices.",
    ),
    click.option("--limit", type=click.IntRange(1), help="At most this many prompts of a slice."),
    click.option(
        "--tokens", type=click.IntRange(2), default=128, show_default=True, help="Per answer."
    ),
)
MODEL = click.option(
    "-m", "--model", shell_complete=complete_models, help="By default models.default."
)
SEED = click.option("--seed", type=int, default=0, show_default=True, help="Fixes every draw.")
JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
NO_SPAWN = click.option(
    "--no-spawn", is_flag=True, help="Fail if no daemon runs instead of starting one."
)


def prompts_of(file: Path | None, slices: Sequence[str], limit: int | None) -> list[Prompt]:
    """The prompts to measure with. Raises RequestError."""
    return suite.choose(suite.spec_bench(file) if file else suite.builtin(), slices, limit)


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[measure.Told]:
    """A bar on stderr if that is a terminal; without `total` it only shows that time passes."""
    if not sys.stderr.isatty():
        yield lambda _count, _text: None
        return
    from rich import progress  # noqa: PLC0415  slow to import, and only a terminal needs it
    from rich.console import Console  # noqa: PLC0415  the same

    parts = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *([progress.MofNCompleteColumn()] if total else []),
        progress.TimeElapsedColumn(),
        *([progress.TimeRemainingColumn()] if total else []),
    ]
    # Twice a second: the processor belongs to what is measured.
    with progress.Progress(
        *parts, console=Console(stderr=True), transient=True, refresh_per_second=2
    ) as bar:
        task = bar.add_task(what, total=total)
        done = 0

        def tell(count: int, text: str) -> None:
            nonlocal done
            bar.update(task, completed=done if total else None, description=render.printable(text))
            done += count

        yield tell


def say(text: str, label: str = "") -> None:
    """Print a line on stdout, folded where a window is narrow."""
    click.echo(hung(label, escaped(text), columns()))


def show(table: report.Table) -> None:
    """Print a table on stdout, as wide as the terminal is."""
    from rich.console import Console  # noqa: PLC0415  slow to import, of no use for --json

    from localspec.cli import tables  # noqa: PLC0415  the same

    width = columns() or PIPED_COLUMNS
    tables.show(table, Console(highlight=False, width=width, height=25))  # rich needs both
