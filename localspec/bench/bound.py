"""Bounds: the time of a text if every decision were the best one, or always the same one. Pure.

The inputs are how many drafted tokens survive at each position of a text, and the costs of rows, of
drafted tokens and of a round's host work. Dynamic programming finds the rounds that take the least
time. A forward may have more rows than it needs, where that is cheaper, and it may cost more after
a forward of another row count. Drafters read the text at no cost, draft each token by a forward of
one row, and never draft a token that is rejected, so no controller can be faster. `fixed_ms` is the
time of a setting that drafts equally deep in every round, as other servers can be told to.
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
"""After this many forwards with as many rows, a forward costs no more for a change of row count."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs of the parts of a round, in milliseconds.

    Args:
        forwards: Forwards of the target.
        draft_ms: One drafted token of each source that is not free.
        host: Everything in a round besides target and drafter.
        row_multiple: Rows are padded to a multiple of this.
        behind: Tokens before the target's rows, which these attend to.
    """

    forwards: Forwards
    draft_ms: Mapping[str, float]
    host: Host = Host()  # noqa: RUF009 - frozen value
    row_multiple: int = 1
    behind: float = 0.0

    @classmethod
    def of(cls, model: Mapping[str, Any], cells: float = 0) -> Self | None:
        """The costs in a model's status after `cells` tokens; None if it has no staircase."""
        stairs = staircase(model, cells)
        if not stairs:
            return None
        rows, measured = zip(*stairs, strict=True)
        # Fewer rows never cost more, which the daemon assumes too.
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
        """Costs on `machine` after `cells` tokens; a neural source costs as much as its draft."""
        token_ms = machine.draft.forward_ms(1, _STEADY, cells)
        return cls(machine.target, dict.fromkeys(neural, token_ms), machine.host, behind=cells)

    def padded(self, rows: int) -> int:
        """The rows of a forward that needs `rows` rows, with padding."""
        return rows + -rows % self.row_multiple

    def forward_ms(self, rows: int, alike: int) -> float:
        """Milliseconds of a forward after `alike` forwards with as many rows."""
        return self.forwards.forward_ms(rows, alike, self.behind)


def plain_ms(tokens: int, prices: Prices) -> float:
    """Milliseconds of decoding `tokens` tokens one by one."""
    return fixed_ms([], tokens, prices)


def best_ms(
    free: Sequence[int],
    neural: Mapping[str, Sequence[int]],
    prices: Prices,
    most_nodes: int,
) -> float:
    """The least milliseconds in which n tokens can be decoded.

    A round verifies surviving tokens of a free chain, or of a source that is not free, or of a free
    chain continued by such a source. The forward before the first round had another row count.

    Args:
        free: (n,) how many tokens drafted for free survive at each position.
        neural: The same by name for sources that are not free; those without a price in
            `prices.draft_ms` are left out.
        prices: The costs of all parts of a round.
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
    """Forwards by row count: their steady cost, additions to it, and the nodes that they can hold.

    `change` is added after another row count, `settle` to the second forward with as many rows.
    """

    steady: _Array
    change: _Array
    settle: _Array
    nodes: NDArray[np.int64]


class _Remaining(NamedTuple):
    """Milliseconds from a position on, depending on the forward before it.

    `other` is for a forward whose row count is none of `_Stairs`. The arrays are by row count:
    `first` for a forward after one of another row count, `later` for any further one.
    """

    other: float
    first: _Array
    later: _Array


def _stairs(prices: Prices, most_nodes: int) -> _Stairs:
    """All row counts that a round may need, and larger ones, which might be cheaper."""
    wanted = {prices.padded(1 + nodes) for nodes in range(most_nodes + 1)}
    larger = {prices.padded(rows) for rows in prices.forwards.steady_ms if rows > max(wanted)}
    counts = sorted(wanted | larger)
    by_alike = [[prices.forward_ms(rows, alike) for rows in counts] for alike in range(_STEADY + 1)]
    changed, settling, steady = map(np.array, by_alike)
    return _Stairs(steady, changed - steady, settling - steady, np.array(counts) - 1)


def _rest(spent: _Array, rests: Sequence[_Remaining], stairs: _Stairs) -> _Remaining:
    """The best round and all after it; `spent[k]` and `rests[k]` belong to a round with k nodes."""
    too_many = np.arange(spent.size)[:, None] > stairs.nodes
    after_first, after_later = (
        np.where(too_many, np.inf, spent[:, None] + np.stack(column)).min(axis=0)
        for column in zip(*((rest.first, rest.later) for rest in rests), strict=True)
    )
    changed = stairs.steady + stairs.change + after_first
    alike = stairs.steady + after_later
    best = int(changed.argmin())
    others = np.full(changed.size, changed[best])
    others[best] = np.delete(changed, best).min(initial=np.inf)  # the same count is no change
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
    """The least milliseconds of drafting 0, 1 ... `most` tokens that survive at a position."""
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
    """One source that drafts `depth` tokens whenever it has a draft, right or wrong.

    `survives` counts the tokens that would survive at each position; None where it has no draft.
    One drafted token takes `token_ms`.
    """

    survives: Sequence[int | None]
    depth: int
    token_ms: float = 0.0


def fixed_ms(habits: Sequence[FixedDepth], tokens: int, prices: Prices) -> float:
    """Milliseconds of `tokens` tokens if each round drafts by the first of `habits` with a draft.

    The forward before the first round had another row count.
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
