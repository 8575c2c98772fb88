"""Counts a model's forwards by their rows, on which a forward's cost depends.

It imports nothing of LocalSpec.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST = 32
"""Larger row counts count as one: graphs are kept for up to so many rows (`native/graphs.cmake`).
"""


@dataclass(slots=True)
class ForwardCounts:
    """Counts of a model's forwards since it was loaded.

    There were `count` forwards; `changes` of them had another row count than the one before, and
    `firsts` were the first of their row count. The latest had `rows`, and so had the `alike`
    forwards right before it; `first` says whether it was the first with so many.
    """

    count: int = 0
    changes: int = 0
    firsts: int = 0
    rows: int = 0
    alike: int = 0
    first: bool = False
    _known: set[int] = field(default_factory=set)

    def ran(self, rows: int) -> None:
        """Count a forward."""
        self.count += 1
        self.alike = self.alike + 1 if rows == self.rows else 0
        self.changes += rows != self.rows
        kind = min(rows, _MOST + 1)
        self.first = kind not in self._known
        self.firsts += self.first
        self._known.add(kind)
        self.rows = rows
