"""Decides how many threads a forward gets, by the times of earlier ones. Pure: measures nothing.

A forward waits for its slowest thread. If another process, a neighbour, uses the core of a thread,
that thread is held up by whole time slices and all others wait for it. Then a forward with one
thread less may be twice as fast.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

MARGIN = 0.05
"""Fewer threads are chosen only if they are faster by this share."""
_ENOUGH = ((2, 1.5), (4, 1.2), (8, 1.0))
"""A trial ends after so many forwards of each count, if every other count takes so many times as
long as the fastest."""

DISTURBED_PER_SECOND = 150.0
"""Threads that are pushed aside more often than this have a neighbour. Two threads are pushed aside
20 to 70 times in a second on a quiet machine, and a thousand times beside one busy process."""
_WINDOW_SECONDS = 0.25
REST_SECONDS, LONGEST_REST_SECONDS = 2.0, 5.0
"""The pause between trials, and the longest one: each trial that changes nothing doubles it."""


class Trial:
    """Forwards by several numbers of threads, in turns; forwards of one kind are compared."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = counts
        self._took: defaultdict[Hashable, dict[int, list[float]]] = defaultdict(
            lambda: {count: [] for count in counts}
        )

    def count(self, kind: Hashable) -> int:
        """How many threads the next forward of this kind should have."""
        taken = self._took[kind]
        return min(self._counts, key=lambda count: len(taken[count]))

    def took(self, kind: Hashable, count: int, seconds: float) -> None:
        """Note the seconds of a forward with so many threads."""
        self._took[kind][count].append(seconds)

    @property
    def fastest(self) -> int | None:
        """The count to choose: the first, unless another is clearly faster. None if undecided."""
        spent = dict.fromkeys(self._counts, 0.0)
        forwards = 0
        for by_count in self._took.values():
            alike = min(map(len, by_count.values()))
            forwards += alike
            for count, spans in by_count.items() if alike else ():
                spent[count] += alike * sum(spans) / len(spans)
        low, next_low, *_ = sorted(spent.values())
        if not any(forwards >= enough and next_low >= apart * low for enough, apart in _ENOUGH):
            return None
        first, best = self._counts[0], min(self._counts, key=lambda count: spent[count])
        return best if spent[best] < (1 - MARGIN) * spent[first] else first


class Threads:
    """One number of threads, or, if it `varies`, one less while a neighbour makes that faster."""

    def __init__(self, most: int, *, varies: bool = True) -> None:
        self.most = self.chosen = most
        self.varies = varies and most > 1
        self._counts = most, most - 1
        self._trial: Trial | None = None
        self._seconds = self._waits = 0.0
        self._rest, self._until = REST_SECONDS, -math.inf

    def count(self, kind: Hashable | None) -> int:
        """How many threads the next forward of a kind gets; None is a forward too long to try."""
        return self.chosen if self._trial is None or kind is None else self._trial.count(kind)

    def took(
        self, kind: Hashable | None, count: int, seconds: float, waits: int, now: float
    ) -> None:
        """Note how long a forward took, and how often its threads were pushed aside (`waits`)."""
        if not self.varies:
            return
        if self._trial is not None:
            if kind is not None:
                self._trial.took(kind, count, seconds)
                self._end_trial(self._trial.fastest, now)
            return
        self._seconds += seconds
        self._waits += waits
        if self._seconds < _WINDOW_SECONDS:
            return
        disturbed = self._waits > DISTURBED_PER_SECOND * self._seconds
        self._seconds = self._waits = 0.0
        if now < self._until:
            return
        if disturbed or self.chosen < self.most:  # then the neighbour may be gone
            self._trial = Trial(self._counts)
        else:
            self._rest = REST_SECONDS

    def _end_trial(self, fastest: int | None, now: float) -> None:
        if fastest is None:
            return
        same = fastest == self.chosen
        self._rest = min(2 * self._rest, LONGEST_REST_SECONDS) if same else REST_SECONDS
        self._until = now + self._rest
        self.chosen, self._trial = fastest, None
