"""Memories: how fast means forget old observations. Several quantities share each. Pure.

A memory is the share of the old mean that is kept at a new observation, so that about the last
`1 / (1 - memory)` observations count.
"""

from __future__ import annotations

from collections.abc import Iterable

SESSION = 0.98  # as the forgiveness of neural drafts doubled 1.00 (0.98), halved 0.81 (0.46)
"""The last 50 observations: for the doubt of a neural source, the chance of each confidence level,
the savings that a new answer begins with, and contention on a device (`overlap.py`)."""
RECENT = 0.95
"""The last 20 rounds: for costs of the host and of copies, a session's pace, and its savings."""


def moved(before: float, now: float, kept: float) -> float:
    """The mean `before` after one more observation, `now`."""
    return before + (1 - kept) * (now - before)


def blended(before: Iterable[float], now: Iterable[float], kept: float) -> tuple[float, ...]:
    """Several such means at once."""
    return tuple(moved(old, new, kept) for old, new in zip(before, now, strict=True))
