"""Whether to ask a source that takes a while to answer. Pure.

A draft head is asked before anybody knows what it will say. What that took and brought in the
rounds before tells whether it is worth it: of a text that it does not foretell it is asked seldom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHARE = 0.05
"""Of the latest answer in what asking is taken to bring."""
_SELDOM = 8
"""One round in so many asks all the same: texts change."""
BENEFIT = 2.0
"""How many times over asking is taken to be repaid before anybody knows."""


@dataclass(slots=True)
class Asking:
    """What asking one source lately brought in one session, in seconds."""

    brings_seconds: float
    skipped: int = 0

    def due(self, takes_seconds: float) -> bool:
        """Whether to ask now, if that takes so long."""
        self.skipped += 1
        if self.brings_seconds < takes_seconds and self.skipped < _SELDOM:
            return False
        self.skipped = 0
        return True

    def brought(self, seconds: float) -> None:
        """It was asked, and this is what the round is worth more for it."""
        self.brings_seconds += _SHARE * (seconds - self.brings_seconds)


def lead(name: str, options: Iterable[tuple[str | None, float]]) -> float:
    """By how much the best option that begins with this source is worth more than the best other.

    `options` are the source that each begins with and its worth; there is always that of nothing.
    """
    own, other = 0.0, 0.0
    for begins, worth in options:
        if begins == name:
            own = max(own, worth)
        else:
            other = max(other, worth)
    return max(0.0, own - other)
