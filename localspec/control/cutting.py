"""How many nodes of each draft share the decode: the likeliest, as many as are worth most. Pure.

A forward may be padded, and a staircase of costs is flat in places: those rows can be filled. Nodes
there are seldom accepted; that the target says something behind them is what they are made for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from localspec.control.batch_cost import BatchCost

_MOST_FILLED = 15
"""Nodes of one session in rows that are as good as paid: as wide as the window that Fu et al.
(2024) measured to be best of small models; it costs host time."""


class Candidate(NamedTuple):
    """A draft by the chance that each of its nodes survives.

    At least its first `least` nodes are verified, and each looks back on `cells` tokens.
    """

    survival: Sequence[float]
    least: int
    cells: int


def cut(
    candidates: Sequence[Candidate],
    batch_cost: BatchCost,
    rate: float,
    others: Sequence[int],
    margin: float,
) -> list[int]:
    """How many leading nodes of each to verify, in a decode that has rows of `others` as well.

    Rows go to the likeliest nodes over all drafts, and their number is the one of most worth:
    tokens less seconds at `rate`. Where a forward holds as many rows of each session, they may also
    all have the same number. More than what is verified anyway must promise `margin` tokens.
    """
    # Never rising, so that the likeliest nodes of a draft are always its first ones.
    chances = [list(accumulate(each.survival, min)) for each in candidates]
    rollback_costs = [batch_cost.rollback_costs(each) for each in chances]
    gains = [list(accumulate(each, initial=0.0)) for each in chances]

    def worth(counts: Sequence[int]) -> float:
        rows: list[int] = []
        gain, back, attended = 0.0, 0.0, 0
        for place, count in enumerate(counts):
            extra = batch_cost.extra_rows(count)
            rows.append(batch_cost.multiple + extra)
            attended += extra * candidates[place].cells
            gain += gains[place][count]
            back += rollback_costs[place][count].seconds
        rows += others
        return gain - rate * (batch_cost.together(rows, attended) + back)

    chosen = [each.least for each in candidates]
    best = worth(chosen) + margin
    ways = [_likeliest(candidates, chances)]
    if not batch_cost.whole:
        ways.append(_alike(candidates))
    for counts in chain.from_iterable(ways):
        if (promised := worth(counts)) > best:
            best, chosen = promised, counts
    return chosen


def _likeliest(
    candidates: Sequence[Candidate], chances: Sequence[Sequence[float]]
) -> Iterator[list[int]]:
    """Yields the numbers of nodes after adding the likeliest remaining one, again and again."""
    counts = [each.least for each in candidates]
    heap = [
        (-each[n], i) for i, (each, n) in enumerate(zip(chances, counts, strict=True)) if each[n:]
    ]
    heapq.heapify(heap)
    while heap:
        _, index = heapq.heappop(heap)
        counts[index] = count = counts[index] + 1
        if count < len(chances[index]):
            heapq.heappush(heap, (-chances[index][count], index))
        yield list(counts)


def _alike(candidates: Sequence[Candidate]) -> Iterator[list[int]]:
    """Yields equal numbers of nodes for all, 1, 2, 3 ..., as far as each has them."""
    longest = max((len(each.survival) for each in candidates), default=0)
    for most in range(1, longest + 1):
        yield [max(each.least, min(most, len(each.survival))) for each in candidates]


def spare(batch_cost: BatchCost, nodes: Sequence[int]) -> list[int]:
    """How many nodes more each session may have beside those of its draft."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    own = [each - 1 - count for each, count in zip(rows, nodes, strict=True)]
    if not batch_cost.whole:
        return own
    more, first = divmod(batch_cost.paid(sum(rows)) - sum(rows), len(rows))
    return [min(each + more + first * (not place), _MOST_FILLED) for place, each in enumerate(own)]


def added_seconds(batch_cost: BatchCost, nodes: Sequence[int], more: Sequence[int]) -> float:
    """Seconds that so many more nodes take: next to nothing, but not nothing."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    filled = [
        batch_cost.multiple + batch_cost.extra_rows(count + added)
        for count, added in zip(nodes, more, strict=True)
    ]
    host = sum(more) * batch_cost.costs.host_row_seconds
    return max(0.0, batch_cost.together(filled, 0.0) - batch_cost.together(rows, 0.0)) + host
