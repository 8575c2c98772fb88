"""Rows that a forward has anyway, or for next to nothing, and whether it pays to fill them. Pure.

A forward may be padded, and a staircase of costs is flat in places. Nodes in such rows are seldom
accepted; that the target says something behind them is what they are made for.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control.batch_cost import BatchCost

_MOST = 15
"""Nodes of one session: as wide as the window that Fu et al. (2024) measured to be best of small
models; it costs host time."""


LEAST = 0.01
"""Tokens that a node is charged at least: beliefs about neighbouring row counts differ by their
noise. Where rows are free, three of a hundred are accepted (docs/internals/measured.md)."""


def spare(batch_cost: BatchCost, nodes: Sequence[int]) -> list[int]:
    """How many nodes more each session may have beside those of its draft."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    own = [each - 1 - count for each, count in zip(rows, nodes, strict=True)]
    if not batch_cost.whole:
        return own
    more, first = divmod(batch_cost.paid(sum(rows)) - sum(rows), len(rows))
    return [min(each + more + first * (not place), _MOST) for place, each in enumerate(own)]


def seconds(batch_cost: BatchCost, nodes: Sequence[int], more: Sequence[int]) -> float:
    """Seconds that so many more nodes take: next to nothing, but not nothing."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    filled = [
        batch_cost.multiple + batch_cost.extra_rows(count + added)
        for count, added in zip(nodes, more, strict=True)
    ]
    host = sum(more) * batch_cost.costs.host_row_seconds
    return max(0.0, batch_cost.together(filled, 0.0) - batch_cost.together(rows, 0.0)) + host
