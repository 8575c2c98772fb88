"""How many threads a forward gets, by what forwards took. Pure: time is told, nothing is measured.

A forward waits for its slowest thread. One whose core another process uses is held up by whole time
slices, and all others wait for it: then a thread less may be twice as fast.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

MARGIN = 0.05
"""By so much fewer threads have to be faster: otherwise it stays at most threads."""
_ENOUGH = ((2, 1.5), (4, 1.2), (8, 1.0))
"""A trial ends after so many forwards of each count, if all take so many times as long as one."""

DISTURBED_PER_SECOND = 150.0
"""Threads that are pushed aside so often have a neighbour: two on a quiet machine are 20 to 70
times in a second, and a thousand times beside one busy process."""
_WINDOW_SECONDS = 0.25
REST_SECONDS, LONGEST_REST_SECONDS = 2.0, 5.0
"""Between trials: twice as long each time that one changes nothing."""


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
        """A forward of so many threads."""
        self._took[kind][count].append(seconds)

    @property
    def fastest(self) -> int | None:
        """How many threads to have: the first, unless another is clearly faster. None so far."""
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
        """How many the next forward of this kind gets; None is too long to be tried."""
        return self.chosen if self._trial is None or kind is None else self._trial.count(kind)

    def took(
        self, kind: Hashable | None, count: int, seconds: float, waits: int, now: float
    ) -> None:
        """A forward took so long, and its threads were pushed aside so many times."""
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
