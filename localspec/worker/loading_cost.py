"""Decides whether a prefix is loaded or read, by what both took on this machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

Medium: TypeAlias = Literal["memory", "disk"]

_GUESSES: dict[Medium, float] = {"memory": 1 / 4e9, "disk": 1 / 5e8}
"""Seconds per byte before any was loaded: a copy in memory; a slow SSD and the checksum."""
_SHARE = 0.25
"""The weight of the latest measurement in the moving average."""
_FAR = 8.0
"""A measurement counts as at most this many times the average: it may be of a busy moment."""
_FORGIVEN = 0.9
"""Factor on the cost of loading each time it is passed over, so that loading is tried again."""
_LEAST_ROWS = 16
"""Forwards of fewer rows are not learned from: they read all weights for hardly any tokens."""


class LoadingCost:
    """Seconds to read a token of a prompt, and to load a byte of a copy. Model lifetime."""

    def __init__(self) -> None:
        self.token_seconds = 0.0
        """Seconds to read a token of a prompt; 0 while no prompt was read."""
        self._byte_seconds: dict[Medium, float] = dict(_GUESSES)

    def reading(self, tokens: float) -> float:
        """Seconds to read this many tokens; 0 while that is not known."""
        return tokens * self.token_seconds

    def loading(self, size: int, medium: Medium) -> float:
        """Seconds to load this many bytes into a slot; those on disk are read into memory first."""
        from_disk = self._byte_seconds["disk"] if medium == "disk" else 0.0
        return size * (self._byte_seconds["memory"] + from_disk)

    def worth(self, tokens: float, size: int, medium: Medium) -> bool:
        """Whether these bytes are loaded faster than these tokens are read."""
        reading = self.reading(tokens)
        return reading == 0 or self.loading(size, medium) < reading

    def passed_over(self, medium: Medium) -> None:
        """Lower the cost of loading a little, as it was too high to load a text."""
        self._byte_seconds[medium] *= _FORGIVEN

    def read(self, tokens: int, seconds: float) -> None:
        """Learn from a forward that read `tokens` of a prompt."""
        if tokens >= _LEAST_ROWS and 0 < seconds < math.inf:
            self.token_seconds = _learned(self.token_seconds or seconds / tokens, seconds / tokens)

    def loaded(self, size: int, seconds: float, medium: Medium) -> None:
        """Learn from a copy of `size` bytes into a slot, or from disk into memory."""
        if size > 0 and 0 < seconds < math.inf:
            known = self._byte_seconds[medium]
            self._byte_seconds[medium] = _learned(known, seconds / size)

    def to_dict(self) -> dict[str, float]:
        """Everything learned, as values for JSON."""
        return {"token": self.token_seconds, **{str(k): v for k, v in self._byte_seconds.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, float]) -> LoadingCost:
        """Read what `to_dict` gave; a value that is not a time counts as not known."""
        cost = cls()
        known = {name: value for name, value in data.items() if 0 < value < math.inf}
        cost.token_seconds = known.get("token", 0.0)
        for medium, guess in _GUESSES.items():
            cost._byte_seconds[medium] = known.get(medium, guess)
        return cost


def _learned(known: float, found: float) -> float:
    return known + _SHARE * (min(found, _FAR * known) - known)
