"""How far drafts fall short of their expected acceptance. Pure.

Chances are right on average, and a draft is taken where they are highest, so the best of many
promises is an optimist: behind the number of a list's next point, or a heading, texts that repeat
themselves promise most and go on otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT_TOKENS = 6.0
"""Tokens of cost for which the doubt counts that an answer begins with."""
_DRAFT_MEMORY = 0.99
"""The last hundred drafts count."""


@dataclass(slots=True)
class AcceptanceBias:
    """The shortfall of drafts, their cost and their expected tokens, in tokens.

    The next draft must be expected to repay its cost by that share more; it is a share because
    machines differ in how much a draft costs.
    """

    shortfall: float = 0.0
    spent: float = _WEIGHT_TOKENS
    promised: float = _WEIGHT_TOKENS

    @classmethod
    def doubted(cls, doubt: float) -> AcceptanceBias:
        """Of which nothing was seen yet but so much doubt."""
        return cls(doubt * _WEIGHT_TOKENS)

    @property
    def doubt(self) -> float:
        """By what share of their cost drafts have lately disappointed; luck is less than none."""
        return self.shortfall / self.spent

    @property
    def kept(self) -> float:
        """The share of the tokens promised lately that came, at most 1."""
        return min(1.0, max(0.0, 1 - self.shortfall / self.promised))

    def forgive(self, kept: float) -> None:
        """Another round, after which the text may be another: this share of the doubt is kept."""
        self.shortfall *= kept

    def observe(self, missing: float, cost: float, promised: float) -> None:
        """A draft for `cost` tokens' time gave `missing` tokens less than the `promised` ones."""
        self.shortfall = _DRAFT_MEMORY * self.shortfall + missing
        self.spent = _WEIGHT_TOKENS + _DRAFT_MEMORY * (self.spent - _WEIGHT_TOKENS) + cost
        self.promised = _WEIGHT_TOKENS + _DRAFT_MEMORY * (self.promised - _WEIGHT_TOKENS) + promised
