"""The target's staircase, measured forward by forward while nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from localspec.types import Backend, Row


def measurements(
    target: Backend, row_counts: Sequence[int], repeats: int, slot: int, clock: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Forwards of each row count, interleaved, as (rows, seconds); one forward for each `next`.

    `slot` must be free while an item is computed, and is left empty. The first forward of all warms
    up and is not given.
    """
    fitting = [rows for rows in row_counts if rows <= min(target.max_rows, target.context)]
    for repeat in range(repeats + 1):
        for rows in fitting if repeat else fitting[:1]:
            target.truncate(slot, 0)
            began = clock()
            target.decode([Row(0, index, slot, wants_logits=True) for index in range(rows)])
            seconds = clock() - began
            target.truncate(slot, 0)
            if repeat:
                yield rows, seconds
