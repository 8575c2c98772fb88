"""The target's staircase, measured forward by forward while nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from localspec.types import Backend, Row

CONTEXT = 64
"""Positions before the measured rows: about the attention of a short chat."""


def measurements(
    target: Backend, row_counts: Sequence[int], repeats: int, slot: int, clock: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Forwards of each row count, interleaved, as (rows, seconds); one forward for each `next`.

    Uses slot 0, which must be free while an item is computed, and leaves it empty. The first
    forward of all warms up and is not given.
    """
    prefix = [Row(position % target.n_vocab, position, slot) for position in range(CONTEXT)]
    for repeat in range(repeats + 1):
        for rows in row_counts if repeat else row_counts[:1]:
            if max(rows, CONTEXT) > target.max_rows or CONTEXT + rows > target.context:
                continue
            target.truncate(slot, 0)
            target.decode(prefix)
            began = clock()
            target.decode(
                [Row(0, CONTEXT + index, slot, wants_logits=True) for index in range(rows)]
            )
            seconds = clock() - began
            target.truncate(slot, 0)
            if repeat:
                yield rows, seconds
