"""How far a draft, or what a client predicted, was what the target said. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control import trees
from localspec.types import PREDICTION, Draft, Token


def predicted(chains: Sequence[Draft], committed: Sequence[Token]) -> int:
    """How many of these tokens a prediction told, up to the first that was different."""
    told = (
        chain.signals[: agreement(chain, committed)]
        for chain in chains
        if any(signal.source == PREDICTION for signal in chain.signals[: len(committed)])
    )
    return max((sum(signal.source == PREDICTION for signal in each) for each in told), default=0)


def agreement(draft: Draft, committed: Sequence[Token]) -> int:
    """How many nodes of a draft are what the target said, an end of generation included."""
    return len(trees.path(draft, committed))
