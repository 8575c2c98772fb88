"""Second choices of a drafter with logits: siblings of a chain's nodes, where rows are cheap.

They cost no forward of the drafter. A second choice is the target's token about as often as the
drafter's own probability of it says (EAGLE-2, Li et al., arXiv 2406.16858: confidence is
acceptance).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from localspec.errors import GrammarError
from localspec.types import Draft, Floats, Probs, Signal, Token

Second: TypeAlias = "tuple[Token, float] | None"
"""A second choice and the drafter's probability of it, if there is one."""

FIRST = 100
"""The first bucket of siblings; the buckets of a source's own choices are below it."""
_EDGES = (0.02, 0.05, 0.1, 0.2, 0.3)
_PRIORS = (0.01, 0.03, 0.07, 0.14, 0.24, 0.36)
"""Acceptance in each bin: as often as the drafter's probability says."""


def second(
    logits: Floats, token: Token, propose: Callable[[Floats], tuple[Token, Probs | None]]
) -> Second:
    """The token that would be proposed if `token` were impossible."""
    others = logits.copy()
    others[token] = -np.inf
    try:
        other, _ = propose(others)
    except GrammarError:  # nothing else is allowed
        return None
    if other == token or not np.isfinite(others[other]):
        return None
    peak = logits.max()
    return other, float(np.exp(logits[other] - peak) / np.exp(logits - peak).sum())


def beside(chain: Draft, seconds: Sequence[Second]) -> Draft:
    """The chain with `seconds` hung beside its first nodes; the chain's own nodes come first."""
    found = [(node, *each) for node, each in enumerate(seconds[: len(chain)]) if each is not None]
    if not found:
        return chain
    signals = [_signal(chain.signals[node].source, probability) for node, _, probability in found]
    return Draft(
        chain.tokens + tuple(token for _, token, _ in found),
        chain.parents + tuple(node - 1 for node, _, _ in found),
        chain.signals + tuple(signals),
        chain.laws + (None,) * len(found),
    )


def _signal(source: str, probability: float) -> Signal:
    bucket = bisect_right(_EDGES, probability)
    return Signal(source, FIRST + bucket, _PRIORS[bucket])
