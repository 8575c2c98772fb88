"""How far a draft, or a client's prediction, agrees with the committed tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control import trees
from localspec.types import PREDICTION, Draft, Token


def predicted(chains: Sequence[Draft], committed: Sequence[Token]) -> int:
    """How many committed tokens the client's prediction had right, up to the first difference."""
    told = (
        chain.signals[: agreement(chain, committed)]
        for chain in chains
        if any(signal.source == PREDICTION for signal in chain.signals[: len(committed)])
    )
    return max((sum(signal.source == PREDICTION for signal in each) for each in told), default=0)


def agreement(draft: Draft, committed: Sequence[Token]) -> int:
    """How many nodes of a draft agree with the committed tokens, an end of generation included."""
    return len(trees.path(draft, committed))
