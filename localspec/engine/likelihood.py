"""Log-probabilities of tokens under the target, before any sampler. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.engine.block_max import BlockMax
from localspec.types import Draft, Probs, Token, Verified


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token of a text with its log-probability, and the likeliest ones there, best first."""

    token: Token
    logprob: float
    top: tuple[tuple[Token, float], ...]


def likelihood(row: BlockMax, token: Token, count: int) -> Likelihood:
    """The likelihood of one token by the logits before it, with `count` alternatives."""
    logits = row.logits.astype(np.float64)
    best = logits.max()
    logprobs = logits - (best + np.log(np.exp(logits - best).sum()))
    top = row.top_k(count) if count else ()
    return Likelihood(
        token,
        float(logprobs[token]),
        tuple((int(other), float(logprobs[other])) for other in top),
    )


def of_law(law: Probs, token: Token, count: int) -> Likelihood:
    """The likelihood of one token by the law it was drawn from, with `count` alternatives."""
    order = np.lexsort((law.tokens, -law.logp))[:count]
    chosen = law.logp[law.tokens == token]
    return Likelihood(
        token,
        float(chosen[0]) if chosen.size else -np.inf,
        tuple((int(law.tokens[place]), float(law.logp[place])) for place in order),
    )


def likelihoods(
    rows: Sequence[BlockMax], draft: Draft, verdict: Verified, count: int
) -> list[Likelihood]:
    """The likelihoods of the tokens that a verdict gives, each by the row of its parent."""
    nodes = (-1, *verdict.accepted)
    tokens = [*(draft.tokens[node] for node in verdict.accepted), verdict.token]
    return [
        likelihood(rows[node + 1], token, count) for node, token in zip(nodes, tokens, strict=True)
    ]
