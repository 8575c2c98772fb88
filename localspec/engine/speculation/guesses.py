"""Guesses of free drafters, which a neural drafter reads along in its own forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.control.round import DraftPlan
from localspec.types import Draft, Token

_GUESSED = 8
"""The most tokens guessed for one forward: the next forward asks again, with more known."""


class Guesses:
    """The tokens that free drafters expect, for a neural drafter that reads them along.

    Args:
        expected: Gives the free drafters' drafts after a prefix, of at most so many nodes each, and
            the seconds of those that take a while.
        plan: The plan that the neural drafter carries out.
    """

    def __init__(
        self,
        expected: Callable[[Draft, int], tuple[list[Draft], dict[str, float]]],
        plan: DraftPlan,
    ) -> None:
        self._expected = expected
        self._plan = plan
        self.asked = self.tokens = 0
        self.asked_seconds = 0.0

    def __call__(self, nodes: Draft) -> Sequence[Token]:
        """The tokens expected after `nodes`, as many as it pays to read along."""
        self.asked += 1
        plan = self._plan
        room = min(plan.budget - len(nodes) - 1, _GUESSED)
        drafts, asked = self._expected(plan.base.then(nodes), room)
        self.asked_seconds += sum(asked.values())
        best = max((chain.head(plan.along(chain)) for chain in drafts), key=len, default=Draft())
        self.tokens += len(best)
        return best.tokens
