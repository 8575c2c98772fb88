"""The time until a source has read a text that it drafts for. Pure."""

from __future__ import annotations

import math

from localspec.control.costs import Costs
from localspec.control.regret import REGRET_SHARE
from localspec.control.round import RECURRING_READS, Neural, View
from localspec.types import READ_ROWS

LEAST = 16
"""Reading fewer tokens in a round than these is not worth a forward."""


def each_round(costs: Costs, source: Neural, nodes: int, cells: int) -> tuple[float, int]:
    """Seconds to read what is pending every round and `nodes` more, and rows of a forward.

    At once, or one by one as it drafts: where changes of the row count cost more than forwards.
    """
    if source.stepwise:
        read = min(source.pending, RECURRING_READS)
        return costs.draft(source.name, read, nodes, cells), READ_ROWS
    pending = min(source.pending, RECURRING_READS) + nodes
    changes = (pending != source.before) + (pending > 1)
    if not source.before:
        changes = 0
    at_once = costs.draft(source.name, pending, 0, cells, changes)
    one_by_one = costs.draft(source.name, 1, pending - 1, cells, int(source.before > 1))
    if one_by_one < at_once and source.pending <= RECURRING_READS:
        return one_by_one, 1
    return at_once, READ_ROWS


def backlog_seconds(costs: Costs, source: Neural, cells: int) -> float:
    """Seconds to read what is pending beyond what every round reads."""
    backlog = max(0, source.pending - RECURRING_READS)
    return costs.draft(source.name, backlog + 1, 0, cells)


def wait_seconds(costs: Costs, source: Neural, view: View, missing_seconds: float) -> float:
    """How long it takes until an answer may lose so much more; math.inf for ever.

    Each token of it is one more to read meanwhile.
    """
    if missing_seconds <= 0 or view.always:
        return 0.0
    one = costs.draft(source.name, 2, 0, view.cells)
    income = REGRET_SHARE - one / costs.target(1, view.cells)
    return missing_seconds / income if income > 0 else math.inf


def readable(costs: Costs, source: Neural, view: View, seconds: float) -> int:
    """How many pending tokens may be read in so many seconds; 0 if that is next to nothing."""
    if view.always or backlog_seconds(costs, source, view.cells) <= seconds:
        return READ_ROWS
    some = costs.draft(source.name, LEAST + 1, 0, view.cells)
    count = int(LEAST * seconds / some)
    return count if count >= min(LEAST, source.pending - RECURRING_READS) else 0


def shares(costs: Costs, name: str, cells: int) -> tuple[float, float]:
    """Costs of one more token in a source's forward, and of rows that come and go again.

    Both as shares of a forward of its own.
    """
    step = costs.draft(name, 1, 1, cells)
    read = costs.draft(name, 2, 1, cells) - step
    changes = costs.draft(name, 1, 1, cells, changes=2) - step
    return read / step, changes / step
