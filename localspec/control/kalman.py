"""Beliefs about positive quantities, learned from noisy measurements of their sums.

Every quantity is held as a logarithm, because costs are wrong by factors. A measurement is the
logarithm of a weighted sum: `log(sum(weight * exp(quantity)))`. Its derivative by a quantity is the
share of that quantity in the sum, so a measurement corrects each quantity by its share (an extended
Kalman filter). It is robust: an outlier moves beliefs in its direction by a bounded amount.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_NOISE = 0.01  # doubled 0.98 (0.93), halved 0.83 (0.46)
"""Variance of one log measurement: an error of 10 %. With less, one lost time slice would move a
belief."""
_CLIP = 2.0
"""Standard deviations to which the error of a measurement is cut."""
_FEW = 1.0
"""Added to the variance of x: where x hardly varies, little is known and a slope is near 0."""


class Beliefs:
    """Log quantities with their covariance. State only."""

    def __init__(self) -> None:
        self.means: Array = np.empty(0)
        self._covariance: Array = np.empty((0, 0))
        self._diagonal: Array = np.empty(0)  # a view of the covariance
        self._drifts: Array = np.empty(0)

    def add(self, mean: float, variance: float, drift: float) -> int:
        """Add a quantity, whose variance grows by `drift` at each measurement; return its place."""
        self.means = np.append(self.means, mean)
        self._drifts = np.append(self._drifts, drift)
        self._covariance = np.pad(self._covariance, (0, 1))
        self._covariance[-1, -1] = variance
        self._diagonal = self._covariance.reshape(-1)[:: len(self.means) + 1]
        return len(self.means) - 1

    def measured(self, slopes: Sequence[tuple[int, float]], error: float) -> None:
        """Learn from one log measurement that was `error` above its expectation.

        Args:
            slopes: Places and the derivative of the expectation by each; by all others it is 0.
            error: Measured less expected.
        """
        shares: Array = sum(value * self._covariance[place] for place, value in slopes)
        total = sum(value * float(shares[place]) for place, value in slopes) + _NOISE
        limit = _CLIP * math.sqrt(total)
        self.means += shares * (max(-limit, min(limit, error)) / total)
        self._covariance -= shares[:, None] * (shares / total)
        self._diagonal += self._drifts

    def variance(self, place: int, given: int | None = None) -> float:
        """The variance of a quantity, or what it would be if the one at `given` were known."""
        covariance = self._covariance
        own = float(covariance[place, place])
        if given is not None:
            own -= float(covariance[place, given]) ** 2 / float(covariance[given, given])
        return max(own, float(self._drifts[place]))


class Slope:
    """The slope of a line through noisy pairs (x, y), by least squares. State only.

    Each new pair keeps the share `kept` of the weight of earlier ones. The intercept, what y is
    where x is 0, is no part of the slope.
    """

    def __init__(self, kept: float) -> None:
        self._kept = kept
        self._mean_x = self._mean_y = 0.0
        self._variance = self._covariance = 0.0
        self._known = False

    @property
    def value(self) -> float:
        """The slope, at least 0."""
        return max(0.0, self._covariance) / (self._variance + _FEW)

    def measured(self, x: float, y: float) -> None:
        """Learn from one pair."""
        if not self._known:
            self._mean_x, self._mean_y, self._known = x, y, True
        more_x, more_y = x - self._mean_x, y - self._mean_y
        kept, share = self._kept, 1 - self._kept
        self._mean_x += share * more_x
        self._mean_y += share * more_y
        self._variance = kept * (self._variance + share * more_x * more_x)
        self._covariance = kept * (self._covariance + share * more_x * more_y)

    def to_list(self) -> list[float]:
        """Means, variance and covariance; nothing before the first pair."""
        known = [self._mean_x, self._mean_y, self._variance, self._covariance]
        return known if self._known else []

    @classmethod
    def from_list(cls, kept: float, data: Sequence[float]) -> Slope:
        """A slope from the list that `to_list` gave.

        Raises:
            ValueError: the list is something else.
        """
        slope = cls(kept)
        if data:
            slope._mean_x, slope._mean_y, slope._variance, slope._covariance = data
            slope._known = True
        if slope._variance < 0:
            raise ValueError("not a slope: its variance is negative")
        return slope
