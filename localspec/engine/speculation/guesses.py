"""The tokens that free drafters expect while another one drafts, which reads them along."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.control.round import Plan
from localspec.types import Draft, Token

_GUESSED = 8
"""Tokens guessed for one forward at most: the next forward asks again, knowing more."""


class Guesses:
    """The tokens that free drafters expect while another one drafts and reads them along.

    Args:
        expected: Their drafts after a prefix, of so many nodes at most, and what asking took.
        plan: What the other one was told.
    """

    def __init__(
        self, expected: Callable[[Draft, int], tuple[list[Draft], dict[str, float]]], plan: Plan
    ) -> None:
        self._expected = expected
        self._plan = plan
        self.asked = self.tokens = 0
        self.asked_seconds = 0.0

    def __call__(self, nodes: Draft) -> Sequence[Token]:
        """Those expected behind `nodes`."""
        self.asked += 1
        plan = self._plan
        room = min(plan.budget - len(nodes) - 1, _GUESSED)
        drafts, asked = self._expected(plan.base.then(nodes), room)
        self.asked_seconds += sum(asked.values())
        best = max((chain.head(plan.along(chain)) for chain in drafts), key=len, default=Draft())
        self.tokens += len(best)
        return best.tokens
