"""The options of a round. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.control.round import Neural
from localspec.types import READ_ROWS, Draft

NONE = Draft()


@dataclass(frozen=True, slots=True)
class Option:
    """One way to spend the round for one session.

    `worth` is in tokens above plain decoding in the same time; `gain` are the accepted tokens to
    expect, `nodes` those verified for them. `base` ends where `extend` goes on with `budget` nodes
    at most, after it has skipped `skip` pending tokens and read at most `read`, `stride` of them in
    a forward. `wish` would be its worth if changes of rows were free.
    """

    base: Draft = NONE
    extend: Neural | None = None
    worth: float = 0.0
    gain: float = 0.0
    nodes: int = 0
    budget: int = 0
    read: int = READ_ROWS
    stride: int = READ_ROWS
    wish: float = 0.0
    skip: int = 0


def handovers(survival: Sequence[float], target_confidence: float) -> Iterator[int]:
    """Where a chain may be handed over: at its end, and where it is less sure than the text."""
    for nodes in range(1, len(survival)):
        if survival[nodes] < target_confidence * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)
