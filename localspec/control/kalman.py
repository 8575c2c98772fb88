"""Beliefs about positive quantities, learned from noisy sums of them.

Every quantity is held as a logarithm, because costs are wrong by factors, and every measurement is
the logarithm of a weighted sum: `log(sum(weight * exp(quantity)))`. Its slope in a quantity is the
share that this quantity has in the sum, so a measurement corrects what it is made of (an extended
Kalman filter). Robust: an outlier says only its direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_NOISE = 0.01  # doubled 0.98 (0.93), halved 0.83 (0.46)
"""Variance of one log measurement: 10 %. Less would let one stolen time slice move a belief."""
_CLIP = 2.0
"""Standard deviations beyond which a measurement says only its direction."""
_FEW = 1.0
"""Variance of what a slope grows with below which little is known."""


class Beliefs:
    """Log quantities with their covariance. State only."""

    def __init__(self) -> None:
        self.means: Array = np.empty(0)
        self._covariance: Array = np.empty((0, 0))
        self._diagonal: Array = np.empty(0)  # a view of it
        self._drifts: Array = np.empty(0)

    def add(self, mean: float, variance: float, drift: float) -> int:
        """Another quantity, and by how much its variance grows with each measurement; its place."""
        self.means = np.append(self.means, mean)
        self._drifts = np.append(self._drifts, drift)
        self._covariance = np.pad(self._covariance, (0, 1))
        self._covariance[-1, -1] = variance
        self._diagonal = self._covariance.reshape(-1)[:: len(self.means) + 1]
        return len(self.means) - 1

    def measured(self, slopes: Sequence[tuple[int, float]], error: float) -> None:
        """One log measurement that was `error` above what was expected of it.

        Args:
            slopes: Places and by how much the expectation moves with each; others have none.
            error: Measured less expected.
        """
        shares: Array = sum(value * self._covariance[place] for place, value in slopes)
        total = sum(value * float(shares[place]) for place, value in slopes) + _NOISE
        limit = _CLIP * math.sqrt(total)
        self.means += shares * (max(-limit, min(limit, error)) / total)
        self._covariance -= shares[:, None] * (shares / total)
        self._diagonal += self._drifts

    def variance(self, place: int, given: int | None = None) -> float:
        """How uncertain a quantity is, or would be if another one were known."""
        covariance = self._covariance
        own = float(covariance[place, place])
        if given is not None:
            own -= float(covariance[place, given]) ** 2 / float(covariance[given, given])
        return max(own, float(self._drifts[place]))


class Slope:
    """Least squares of noisy pairs, of which the `kept` share is kept by each new one. State only.

    What is there without the other quantity is no part of it.
    """

    def __init__(self, kept: float) -> None:
        self._kept = kept
        self._mean_x = self._mean_y = 0.0
        self._variance = self._covariance = 0.0
        self._known = False

    @property
    def value(self) -> float:
        """Never below nothing."""
        return max(0.0, self._covariance) / (self._variance + _FEW)

    def measured(self, x: float, y: float) -> None:
        """One pair."""
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
            ValueError: it is something else.
        """
        slope = cls(kept)
        if data:
            slope._mean_x, slope._mean_y, slope._variance, slope._covariance = data
            slope._known = True
        if slope._variance < 0:
            raise ValueError("not a slope: its variance is negative")
        return slope
