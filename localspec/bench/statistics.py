"""The statistics of a report. Pure; the resampling is seeded, so a report can be computed again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

RESAMPLES = 2000
"""Enough for two digits of an interval's ends."""
LEVEL = 0.95


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, interpolated between neighbours.

    Raises ValueError for no values or a share outside 0 to 1.
    """
    if not values:
        raise ValueError("no values have no percentile")
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is not a share")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return min(high, max(low, low + (high - low) * (place - below)))


def median(values: Sequence[float]) -> float:
    """The middle value. Raises ValueError for no values."""
    return percentile(values, 0.5)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean that suits ratios: those of 2 and of 1/2 cancel out. Values must be positive."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile bootstrap interval of `statistic` over `values`.

    It shows how much the figure would move with other prompts of the same kind. A single value says
    nothing about that: its interval is a point, and a report must show the number of prompts.
    """
    if len(values) == 1:
        return (statistic(values),) * 2
    draw = random.Random(seed)  # noqa: S311  resampling, not secrets
    found = [statistic(draw.choices(values, k=len(values))) for _ in range(resamples)]
    tail = (1 - level) / 2
    return percentile(found, tail), percentile(found, 1 - tail)
