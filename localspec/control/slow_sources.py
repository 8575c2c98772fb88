"""Whether to ask a source that takes a while to answer. Pure.

A feature head takes time before its draft is known. The time and savings of earlier calls tell
whether to call it: where its drafts are mostly rejected it is called seldom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from localspec.control.costs import SHARE

_SELDOM = 8
"""One round in so many asks all the same: texts change."""
BENEFIT = 2.0
"""How many times over a call is taken to be repaid before one was measured."""


@dataclass(slots=True)
class SlowSource:
    """The recent saving by one source in one session, in seconds."""

    saving_seconds: float
    skipped: int = 0

    def due(self, takes_seconds: float) -> bool:
        """Whether to ask now, if that takes so long."""
        self.skipped += 1
        if self.saving_seconds < takes_seconds and self.skipped < _SELDOM:
            return False
        self.skipped = 0
        return True

    def brought(self, seconds: float) -> None:
        """Learn from a call: the seconds that the round is worth more for it."""
        self.saving_seconds += SHARE * (seconds - self.saving_seconds)


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
