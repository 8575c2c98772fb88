"""Counts of a model's forwards by their rows, which decide what a forward costs. A leaf."""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST = 32
"""Larger row counts are all one: the graphs of these alone are kept (`native/graphs.cmake`)."""


@dataclass(slots=True)
class ForwardCounts:
    """Counts of a model's forwards since it was loaded.

    `count` of them; `changes` of which had other rows than the one before, `firsts` were the first
    of their row count. The latest had `rows`, `alike` right before it had as many, and `first` is
    whether none before it had.
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
