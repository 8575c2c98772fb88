"""Estimates how long training takes: beforehand from short tries, and while it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from localspec.engine.llama.context import Context
from localspec.types import Row

_TRIES = 3
_SHOWN_SECONDS = 0.5
_READ = 1.4
"""Tokens that are read for each token of an answer, as prompts are read too."""
_PASSES = 8
"""Passes that a small model's head took until it no longer improved."""
_STEP_TOKENS = 4096
_MINUTE, _HOUR = 60, 3600


def duration(seconds: float) -> str:
    """A rounded duration: "40 s", "12 min", "3.5 h"."""
    if seconds < 2 * _MINUTE:
        return f"{max(1, round(seconds))} s"
    if seconds < 2 * _HOUR:
        return f"{round(seconds / _MINUTE)} min"
    return f"{seconds / _HOUR:.1f} h"


def plan(context: Context, tokens: int, rest: int, step: float) -> str:
    """A sentence about how long training takes; `rest` of `tokens` are still to be written.

    `step` is the time of a training step in seconds. Slots are empty afterwards.
    """
    rest = max(rest, 0)
    rows = [Row(1, at, slot, True) for slot in range(context.n_slots) for at in (0,)]
    forward = _least(lambda: context.decode(rows), context)
    read = [Row(1, at, 0, True) for at in range(context.n_slots)]
    reading = _least(lambda: context.decode(read), context)
    parts = (
        ("to write texts", rest / context.n_slots * forward),
        ("to read them", tokens * _READ / len(read) * reading),
        ("to learn", _PASSES * tokens * _READ / _STEP_TOKENS * step),
    )
    total = duration(sum(seconds for _, seconds in parts))
    told = ", ".join(f"{duration(seconds)} {what}" for what, seconds in parts if seconds)
    return f"It will take about {total} here: {told}. Interrupted, the same command goes on."


def _least(work: Callable[[], object], context: Context) -> float:
    """The fewest seconds of a few tries."""
    spans = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
        for slot in range(context.n_slots):
            context.truncate(slot, 0)
    return min(spans)


class Progress:
    """A progress line on stderr for `total` tokens; called with the number that is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, max(1, total)
        self._first: int | None = None
        self._began = self._shown = time.monotonic()

    def __call__(self, done: int) -> None:
        """Update the line, at most twice a second."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = done, now
        if now - self._shown < _SHOWN_SECONDS and done < self._total:
            return
        self._shown = now
        fresh, took = done - self._first, now - self._began
        left = f", {duration((self._total - done) * took / fresh)} left" if fresh > 0 else ""
        percent = min(1.0, done / self._total)
        sys.stderr.write(f"\r\x1b[K{self._what}: {percent:.0%} of {self._total} tokens{left}")
        sys.stderr.flush()

    def end(self) -> None:
        """End the line."""
        sys.stderr.write("\n")
