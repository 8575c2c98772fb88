"""What copies gave of what they promised. Pure.

Chances are right on average, and a copy is taken where they are highest: behind the number of a
list's next point, or a heading, texts that repeat themselves promise most and go on otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT_TOKENS = 6.0
"""Tokens of cost that what earlier answers showed counts for in a new one."""
_PASSED_ON = 0.5
"""No new answer begins with more doubt: it may be an edit behind many chats."""
_DRAFT_MEMORY, _FORGIVENESS = 0.99, 0.995
"""The last hundred drafts count; without new ones they are forgiven over two hundred rounds."""


@dataclass(slots=True)
class Promises:
    """By how much copies gave less than they promised, and what they cost, in tokens.

    By that share of its cost the next one has to promise more. Of one answer, or of all, with some
    of whose doubt a new one begins.
    """

    shortfall: float = 0.0
    spent: float = _WEIGHT_TOKENS

    @property
    def doubt(self) -> float:
        """By what share of their cost copies have lately disappointed; luck is no credit."""
        return max(0.0, self.shortfall / self.spent)

    def anew(self) -> Promises:
        """Those of a new answer."""
        return Promises(min(self.doubt, _PASSED_ON) * _WEIGHT_TOKENS)

    def forgive(self) -> None:
        """Another round of the answer: its text may have changed."""
        self.shortfall *= _FORGIVENESS

    def settle(self, promised: float, accepted: int, cost: float) -> None:
        """A copy of which `promised` tokens were expected, for so many tokens' time."""
        self.shortfall = _DRAFT_MEMORY * self.shortfall + promised - accepted
        self.spent = _WEIGHT_TOKENS + _DRAFT_MEMORY * (self.spent - _WEIGHT_TOKENS) + cost
