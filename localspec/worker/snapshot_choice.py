"""Decides whether forwards leave snapshots of a state: if these cost less than copies would."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.engine import calibrate
from localspec.engine.calibrate import MeasuringPlace
from localspec.engine.kv.rollback import Rollback

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context

_ROWS = 5
"""Rows of a usual round with a draft."""
_REJECTED = 0.5
"""Share of drafts of which something is rejected. Then a copy is restored, and the next forward,
which has no draft, reads the accepted tokens again."""


def choose(context: Context, clock: Callable[[], float]) -> None:
    """Turn snapshots off in an empty context, if they cost its forwards more than copies would.

    A forward without them is tried only if a single row is cheaper by more than copies cost:
    otherwise snapshots cannot cost as much.
    """
    rows = min(_ROWS, context.snapshots + 1)
    copy = calibrate.copying(context, clock)
    one, some = (_seconds(context, count, clock) for count in (1, rows))
    saved = copy + _REJECTED * (copy + one)
    if some - one <= saved:
        return
    snapshots = context.snapshots
    context.leave_snapshots(0)
    if some - _seconds(context, rows, clock) <= saved:
        context.leave_snapshots(snapshots)


def _seconds(context: Context, rows: int, clock: Callable[[], float]) -> float:
    """Seconds of a forward of this many rows in the empty slot 0, after one of as many."""
    context.truncate(0, 0)
    seconds = calibrate.warmed(context, MeasuringPlace(0, 0), rows, clock)
    context.truncate(0, 0)
    return seconds


def described(rollback: Rollback, snapshots: int) -> str:
    """How rejected tokens are taken back, for people; "" where their cells are forgotten."""
    if rollback == "trim":
        return ""
    if rollback == "none":
        return "rejected tokens cannot be taken back"
    if snapshots:
        return f"by snapshots of the state up to {snapshots} tokens back, by copies beyond"
    return "by copies of the state"
