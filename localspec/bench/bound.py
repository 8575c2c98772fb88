"""Bounds: the time of a text if every decision were right, or the same one. Pure.

Given how many drafted tokens survive at each position of a text, and what rows, drafted tokens and
a round's host work cost, dynamic programming finds the rounds that take the least time. A forward
may have more rows than it needs, where that is cheaper, and it may cost more after another row
count. Drafters read for free here, draft their tokens by forwards of one row, and nothing is ever
drafted in vain: no controller can be faster. `fixed_ms` is what a setting reaches that drafts as
deep in every round, as other servers are told to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.bench.results import draft_ms, host, staircase
from localspec.machine import Forwards, History, Host, Machine

_Array: TypeAlias = NDArray[np.float64]
_STEADY = 2
"""So many forwards alike before it, and a forward costs no more for what was before them."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs of the parts of a round, in milliseconds.

    Args:
        forwards: Of the target.
        draft_ms: One drafted token of each source that is not free.
        host: Everything of a round that is neither target nor drafter.
        row_multiple: Rows are padded to a multiple of this.
        behind: Tokens that the target's rows look back on.
    """

    forwards: Forwards
    draft_ms: Mapping[str, float]
    host: Host = Host()  # noqa: RUF009 — frozen value
    row_multiple: int = 1
    behind: float = 0.0

    @classmethod
    def of(cls, model: Mapping[str, Any], cells: float = 0) -> Self | None:
        """Costs in a model's status behind so many tokens; None where it has no staircase."""
        stairs = staircase(model, cells)
        if not stairs:
            return None
        rows, measured = zip(*stairs, strict=True)
        # Fewer rows never cost more, as the daemon too takes it.
        costs = list(accumulate(reversed(measured), min))[::-1]
        by_rows = dict(zip(rows, costs, strict=True))
        return cls(
            Forwards(by_rows, read_row_ms=costs[-1] / rows[-1]),
            draft_ms(model, cells),
            host(model),
            model.get("row_multiple") or 1,
        )

    @classmethod
    def on(cls, machine: Machine, neural: Iterable[str], cells: float = 0) -> Self:
        """Costs of a simulated machine behind so many tokens; each neural source is its draft."""
        token_ms = machine.draft.forward_ms(1, _STEADY, cells)
        return cls(machine.target, dict.fromkeys(neural, token_ms), machine.host, behind=cells)

    def padded(self, rows: int) -> int:
        """Rows of a forward that needs so many, with padding."""
        return rows + -rows % self.row_multiple

    def forward_ms(self, rows: int, alike: int) -> float:
        """One forward after so many with as many rows."""
        return self.forwards.forward_ms(rows, alike, self.behind)


def plain_ms(tokens: int, prices: Prices) -> float:
    """Milliseconds of decoding so many tokens one by one."""
    return fixed_ms([], tokens, prices)


def best_ms(
    free: Sequence[int],
    neural: Mapping[str, Sequence[int]],
    prices: Prices,
    most_nodes: int,
) -> float:
    """The least milliseconds in which n tokens can be decoded.

    A round may verify part of what survives of a free chain, or of a source that drafts for money,
    or of the first continued by the second. Before the first round was a forward of other rows.

    Args:
        free: (n,) how many tokens drafted for free survive at each position.
        neural: The same by name for sources that cost `prices.draft_ms` a token; others of them
            are left out.
        prices: What everything costs.
        most_nodes: Most drafted tokens in a round.
    """
    paid = [(neural[name], ms) for name, ms in prices.draft_ms.items() if name in neural]
    stairs = _stairs(prices, most_nodes)
    host = np.array([prices.host.work_ms(1 + nodes) for nodes in range(most_nodes + 1)])
    ends = _Remaining(0.0, np.zeros(stairs.steady.size), np.zeros(stairs.steady.size))
    rests = [ends] * (len(free) + 1)
    for position in reversed(range(len(free))):
        most = min(most_nodes, len(free) - position - 1)
        spent = host[: most + 1] + _drafting_ms(position, most, free, paid)
        rests[position] = _rest(spent, rests[position + 1 : position + 2 + most], stairs)
    return rests[0].other


class _Stairs(NamedTuple):
    """Forwards by row count: steady, what comes on top, and for how many nodes there is room."""

    steady: _Array
    change: _Array
    settle: _Array
    nodes: NDArray[np.int64]


class _Remaining(NamedTuple):
    """Milliseconds from a position on, by the forward before.

    `other`: it had rows of no count here. By row count: `first` where it was the first of its
    count in a row, `later` where it was not.
    """

    other: float
    first: _Array
    later: _Array


def _stairs(prices: Prices, most_nodes: int) -> _Stairs:
    """Every row count that a round may want, and larger ones that might be cheaper."""
    wanted = {prices.padded(1 + nodes) for nodes in range(most_nodes + 1)}
    larger = {prices.padded(rows) for rows in prices.forwards.steady_ms if rows > max(wanted)}
    counts = sorted(wanted | larger)
    by_alike = [[prices.forward_ms(rows, alike) for rows in counts] for alike in range(_STEADY + 1)]
    changed, settling, steady = map(np.array, by_alike)
    return _Stairs(steady, changed - steady, settling - steady, np.array(counts) - 1)


def _rest(spent: _Array, rests: Sequence[_Remaining], stairs: _Stairs) -> _Remaining:
    """The best round and all after it; `spent[k]` and `rests[k]` are of one with k nodes."""
    too_many = np.arange(spent.size)[:, None] > stairs.nodes
    after_first, after_later = (
        np.where(too_many, np.inf, spent[:, None] + np.stack(column)).min(axis=0)
        for column in zip(*((rest.first, rest.later) for rest in rests), strict=True)
    )
    changed = stairs.steady + stairs.change + after_first
    alike = stairs.steady + after_later
    best = int(changed.argmin())
    others = np.full(changed.size, changed[best])
    others[best] = np.delete(changed, best).min(initial=np.inf)  # as many rows are no change
    return _Remaining(
        float(changed[best]),
        np.minimum(others, alike + stairs.settle),
        np.minimum(others, alike),
    )


def _drafting_ms(
    position: int,
    most: int,
    free: Sequence[int],
    paid: Collection[tuple[Sequence[int], float]],
) -> _Array:
    """The least milliseconds of drafting 0, 1 ... `most` tokens that survive here."""
    least = np.full(most + 1, np.inf)
    for copied in range(min(free[position], most) + 1):
        least[copied] = 0.0
        for survives, ms in paid:
            drafted = np.arange(1, min(survives[position + copied], most - copied) + 1)
            place = slice(copied + 1, copied + 1 + drafted.size)
            least[place] = np.minimum(least[place], ms * drafted)
    return least


@dataclass(frozen=True, slots=True)
class FixedDepth:
    """One source that drafts `depth` tokens whenever it has something to say, right or wrong.

    `survives` is how many of them would survive at each position, None where it has nothing; one
    of them takes `token_ms`.
    """

    survives: Sequence[int | None]
    depth: int
    token_ms: float = 0.0


def fixed_ms(habits: Sequence[FixedDepth], tokens: int, prices: Prices) -> float:
    """Milliseconds of a text of so many tokens if each round the first habit drafts that can.

    Before the first round was a forward of other rows.
    """
    history = History(prices.forwards)
    position, spent = 0, 0.0
    while position < tokens:
        room = tokens - position - 1
        drafting = (habit for habit in habits if habit.survives[position] is not None)
        habit = next(drafting, None)
        nodes = min(habit.depth, room) if habit else 0
        kept = min(nodes, habit.survives[position] or 0) if habit else 0
        spent += history.charge_ms(prices.padded(1 + nodes), prices.behind)
        spent += prices.host.work_ms(1 + nodes) + (nodes * habit.token_ms if habit else 0.0)
        position += 1 + kept
    return spent
