"""Sessions with other adapters take turns, whatever is read between their forwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from localspec.engine.adapters import Adapters, Scales


class Adapted:
    """A target with two adapters, which notes their scales."""

    adapters = 2

    def __init__(self) -> None:
        self.set: list[Scales] = []

    def adapt(self, scales: Scales) -> None:
        """Note the scales."""
        self.set.append(scales)

    def __getattr__(self, name: str) -> Any:
        return name


def test_a_reading_in_between_takes_no_turn() -> None:
    """Two sessions have as many forwards each, beside a replay with the scales of one of them."""
    target = Adapted()
    adapters = Adapters(cast("Any", target))
    sessions = [
        cast("Any", SimpleNamespace(request=SimpleNamespace(adapters=scales)))
        for scales in ((1.0, 0.0), (0.0, 1.0))
    ]
    for read in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        went = []
        for _ in range(6):
            (one,) = adapters.turn(sessions)
            assert target.set[-1] == one.request.adapters
            went.append(sessions.index(one))
            adapters.use(read)
        assert sorted(went) == [0, 0, 0, 1, 1, 1]
