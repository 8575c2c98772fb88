"""Decides how fast a head learns, and when it has learned enough.

The learning rate rises, stays, and falls to a small share over the last rounds, which bring most of
the remaining gain. They begin after the first round that hardly raises agreement on held-out texts.
A round is one pass over the texts, or several where passes are short. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

RATE = 5e-4
FEWEST_STEPS = 100
"""The fewest steps of a round: fewer show no progress."""
_RISE = 0.006
"""A round that raises agreement by less is the last one at the full rate. The standard error of
agreement over ten thousand tokens is 0.005."""
MOST_ROUNDS = 12
"""The most rounds at the full rate. By then the texts are memorized."""
_COOLING_ROUNDS = 2
_LAST = 0.02
"""The rate at the end, as a share of the full one."""


@dataclass(slots=True)
class Schedule:
    """The schedule of one training, with `each` steps in a round; the first round warms up."""

    each: int
    step: int = 0
    cooling: int | None = None
    agreements: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        if self.cooling is None:
            return RATE * min(1.0, (self.step + 1) / min(FEWEST_STEPS, self.each))
        done = (self.step - self.cooling) / (_COOLING_ROUNDS * self.each)
        return RATE * (_LAST + (1 - _LAST) * (1 + math.cos(math.pi * done)) / 2)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self.steps_left[0] == 0

    @property
    def steps_left(self) -> tuple[int, int]:
        """The fewest and the most steps that may be left."""
        tail = _COOLING_ROUNDS * self.each
        if self.cooling is not None:
            left = self.cooling + tail - self.step
            return left, left
        rounds = max(2, len(self.agreements) + 1)
        return rounds * self.each - self.step + tail, MOST_ROUNDS * self.each - self.step + tail

    def heard(self, agreement: float) -> None:
        """Take the agreement that was measured at the end of a round."""
        before = max(self.agreements, default=0.0)
        self.agreements.append(agreement)
        enough = len(self.agreements) > 1 and agreement < before + _RISE
        if self.cooling is None and (enough or len(self.agreements) >= MOST_ROUNDS):
            self.cooling = self.step
