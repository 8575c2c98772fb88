"""Accept or correct: what the target keeps of a draft. Pure functions of logits, draft and noise.

Both rules leave the target's law untouched. `coupled` (the default) asks the target for its own
token at each node and follows the child that agrees: exact for every drafter and every tree, and
under a seed the tokens do not depend on the drafter at all. `rejection` is the rule of Leviathan et
al. (arXiv 2211.17192) and Chen et al. (arXiv 2302.01318). It is exact if the decision to verify a
drawn token does not depend on that token. So every drawn token is verified (`Draft.drawn`): their
number is a stopping time of the draft. Each draw has noise of its own (`Sampler.propose`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from localspec.engine.block_max import BlockMax
from localspec.engine.sampling import Purpose, Sampler
from localspec.types import Draft, Floats, Probs, Token, VerificationRule, Verified


@dataclass(frozen=True, slots=True)
class Frontier:
    """The end of a session's text: the input, besides logits, that decides its next tokens.

    `recent` are committed tokens, at least the last `sampler.looks_back`; `position` is the index
    of the first token to be decided; nothing may follow a token of `ends`.
    """

    sampler: Sampler
    recent: Sequence[Token]
    position: int
    ends: Collection[Token]


Rows: TypeAlias = "Floats | Sequence[BlockMax]"
"""Logits of one session's rows: an array (rows, n_vocab), or each row's peaks."""


class Verifier(Protocol):
    """Decides which nodes of one session's draft the target keeps."""

    def __call__(self, draft: Draft, logits: Rows, frontier: Frontier) -> Verified:
        """Judge `draft` by the 1 + len(draft) rows of `logits`.

        Row 0 follows the last committed token, row i + 1 follows node i.
        """


def coupled(draft: Draft, logits: Rows, frontier: Frontier) -> Verified:
    """Walk the draft along the target's own tokens; stop where no child agrees."""
    sampler, position = frontier.sampler, frontier.position
    accepted: list[int] = []
    path: list[Token] = []
    node = -1
    while True:
        token = sampler.pick(logits[node + 1], frontier.recent, path, position + len(path))
        child = _child(draft, node, token)
        if child is None or token in frontier.ends:
            return Verified(tuple(accepted), token)
        accepted.append(child)
        path.append(token)
        node = child


def _child(draft: Draft, node: int, token: Token) -> int | None:
    for child in range(node + 1, len(draft)):
        if draft.parents[child] == node and draft.tokens[child] == token:
            return child
    return None


def rejection(draft: Draft, logits: Rows, frontier: Frontier) -> Verified:
    """Accept each node with min(1, p/q); on rejection draw from norm(max(p - q, 0)).

    Follows first children only: a tree is judged along its first path. A node without a law is a
    point mass.
    """
    sampler = frontier.sampler
    accepted: list[int] = []
    path: list[Token] = []
    node = -1
    while True:
        here = frontier.position + len(path)
        law = sampler.law(logits[node + 1], frontier.recent, path, here)
        child = next((i for i in range(node + 1, len(draft)) if draft.parents[i] == node), None)
        if child is None:
            return Verified(tuple(accepted), sampler.draw(law, here, Purpose.TOKEN))
        token, drawn_from = draft.tokens[child], draft.laws[child]
        p, q = _probability(law, token), _probability(drawn_from, token)
        if sampler.uniform(here, Purpose.ACCEPT) * q >= p:
            residual = _residual(law, drawn_from, token)
            return Verified(tuple(accepted), sampler.draw(residual, here, Purpose.RESIDUAL))
        if token in frontier.ends:
            return Verified(tuple(accepted), token)
        accepted.append(child)
        path.append(token)
        node = child


def _probability(law: Probs | None, token: Token) -> float:
    if law is None:
        return 1.0
    return float(np.exp(law.logp[law.tokens == token]).sum())


def _residual(law: Probs, drawn_from: Probs | None, token: Token) -> Probs:
    """norm(max(p - q, 0)) on the support of p; p itself where rounding left no mass."""
    mass = np.exp(law.logp)
    if drawn_from is None:
        mass = np.where(law.tokens == token, 0.0, mass)
    else:
        order = np.argsort(drawn_from.tokens)
        sorted_tokens = drawn_from.tokens[order]
        at = np.minimum(np.searchsorted(sorted_tokens, law.tokens), sorted_tokens.size - 1)
        q = np.where(sorted_tokens[at] == law.tokens, np.exp(drawn_from.logp[order][at]), 0.0)
        mass = np.maximum(mass - q, 0.0)
    keep = mass > 0
    if not keep.any():
        return law
    return Probs(law.tokens[keep], np.log(mass[keep] / mass[keep].sum()))


VERIFIERS: dict[VerificationRule, Verifier] = {"coupled": coupled, "rejection": rejection}
