"""Shows how a model is prepared: a bar on a terminal, lines elsewhere, JSON for machines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from localspec.catalog.memory import show_bytes
from localspec.catalog.transfer import Report, Step

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_JSON_SECONDS = 0.5
_LINE_PERCENT = 10
_SPEED_COLUMNS = 80
"""A narrower window shows no speed: with it a bar would take two lines."""


@contextlib.contextmanager
def shown(*, as_json: bool = False) -> Iterator[Report]:
    """The progress report for `catalog` functions, for as long as the block runs."""
    if as_json:
        yield _Json()
    elif sys.stderr.isatty():
        with _bar() as progress:
            yield _Bars(progress)
    else:
        yield _Lines()


class _Json:
    """One JSON object per line on stdout: each new stage, and twice a second within one."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._said = 0.0

    def __call__(self, step: Step) -> None:
        now = time.monotonic()
        stage = (step.model, step.stage)
        if stage != self._last or now - self._said >= _JSON_SECONDS:
            self._last, self._said = stage, now
            click.echo(msgspec.json.encode(step).decode())


class _Lines:
    """Lines on stderr: each new stage, and every tenth of a download."""

    def __init__(self) -> None:
        self._last: tuple[str, str, int] | None = None

    def __call__(self, step: Step) -> None:
        percent = 100 * step.done_bytes // step.total_bytes if step.total_bytes else 0
        tenth = percent // _LINE_PERCENT
        if self._last != (step.model, step.stage, tenth):
            self._last = (step.model, step.stage, tenth)
            click.echo(_sentence(step), err=True)


class _Bars:
    """One bar per model and stage; rich works out speed and time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._stage: tuple[str, str] | None = None

    def __call__(self, step: Step) -> None:
        if step.stage in {"skipped", "done"} or not step.total_bytes:
            self._finish()
            self._progress.console.print(_sentence(step), markup=False, highlight=False)
        elif self._task is None or self._stage != (step.model, step.stage):
            self._finish()
            self._stage = (step.model, step.stage)
            self._task = self._progress.add_task(
                f"{step.stage} {step.model}", total=step.total_bytes, completed=step.done_bytes
            )
        else:
            self._progress.update(self._task, completed=step.done_bytes)

    def _finish(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._stage = None


def _sentence(step: Step) -> str:
    size = ""
    if step.stage == "done":
        size = "" if step.detail else f" {show_bytes(step.total_bytes)}"
    elif step.total_bytes:
        percent = 100 * step.done_bytes // step.total_bytes
        size = f" {show_bytes(step.done_bytes)} of {show_bytes(step.total_bytes)} ({percent} %)"
    detail = f": {step.detail}" if step.detail else ""
    return f"{step.model} {step.stage}{size}{detail}"


def _bar() -> Progress:
    from rich import progress  # noqa: PLC0415 - slow to import, and only a terminal needs it
    from rich.console import Console  # noqa: PLC0415 - the same

    console = Console(stderr=True)
    speed = [progress.TransferSpeedColumn()] if console.width >= _SPEED_COLUMNS else []
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        *speed,
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    )
