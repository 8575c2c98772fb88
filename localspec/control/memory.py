"""How fast what was observed is forgotten: memories that several quantities share. Pure.

Each is the share that is kept when there is something new, so that about `1 / (1 - share)`
observations count.
"""

from __future__ import annotations

from collections.abc import Iterable

SESSION = 0.98  # as the forgiveness of neural drafts doubled 1.00 (0.98), halved 0.81 (0.46)
"""The last 50: of the doubt of a source that does not draft, of confidence, of what a new answer
begins with, and of what else the device does."""
RECENT = 0.95
"""The last 20 rounds: of their costs beside forwards, of the pace, of what drafts save."""


def moved(before: float, now: float, kept: float) -> float:
    """A mean that forgets, after one more observation."""
    return before + (1 - kept) * (now - before)


def blended(before: Iterable[float], now: Iterable[float], kept: float) -> tuple[float, ...]:
    """Several of them."""
    return tuple(moved(old, new, kept) for old, new in zip(before, now, strict=True))
