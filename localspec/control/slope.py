"""How much a quantity grows with another one, lately. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_FEW = 1.0
"""Variance of what it grows with below which little is known."""


class Slope:
    """Least squares of noisy pairs, of which each new one counts for `share`. State only.

    What is there without the other quantity is no part of it.
    """

    def __init__(self, share: float) -> None:
        self._share = share
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
        self._mean_x += self._share * more_x
        self._mean_y += self._share * more_y
        kept = 1 - self._share
        self._variance = kept * (self._variance + self._share * more_x * more_x)
        self._covariance = kept * (self._covariance + self._share * more_x * more_y)

    def to_list(self) -> list[float]:
        """Means, variance and covariance; nothing before the first pair."""
        known = [self._mean_x, self._mean_y, self._variance, self._covariance]
        return known if self._known else []

    @classmethod
    def from_list(cls, share: float, data: Sequence[float]) -> Slope:
        """A slope from the list that `to_list` gave.

        Raises:
            ValueError: it is something else.
        """
        slope = cls(share)
        if data:
            slope._mean_x, slope._mean_y, slope._variance, slope._covariance = data
            slope._known = True
        if slope._variance < 0:
            raise ValueError("not a slope: its variance is negative")
        return slope
