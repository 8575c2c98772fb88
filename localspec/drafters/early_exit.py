"""Early exit: the target's own first layers draft for it, with its last norm and output.

There is no second file and no second memory. A draft's forwards run in the target's own context,
which holds the keys and values of the text for these layers too, so nothing is read beforehand.
What they add is forgotten before the draft is verified. LayerSkip (Elhoushi et al., 2024) trains
models for that; Draft & Verify (Zhang et al., 2023) is the same without training.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from localspec.forward_counts import ForwardCounts
from localspec.types import (
    Draft,
    DraftRequest,
    Floats,
    ForwardOutput,
    Probs,
    Proposing,
    Row,
    Signal,
    Token,
)

NAME = "early_exit"

_EDGES = (0.3, 0.5, 0.8, 0.9, 0.97)
_PRIORS = (0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
"""Acceptance by the draft's own probability. Untrained exits are overconfident."""
_FAR = 16.0
"""Logits so far below the largest add less than 2 % together."""


class ExitBackend(Protocol):
    """A target whose forwards can end early; `engine/llama/early_exit.py` implements it."""

    n_vocab: int
    max_rows: int
    layers: int
    """The number of layers after which a forward ends; 0 while no exit pays."""

    @property
    def context(self) -> int:
        """Tokens that one slot may hold."""

    def length(self, slot: int) -> int:
        """Tokens that a slot holds."""

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Decode all rows by the first layers."""

    def truncate(self, slot: int, length: int) -> int:
        """Forget a slot's tokens from `length` on. Returns how many remain."""


def build(*, early: ExitBackend, n_vocab: int, ends: frozenset[Token]) -> EarlyExitDrafter:
    """A drafter on the target's own context, which is only lent.

    Args:
        early: The target.
        n_vocab: Its vocabulary.
        ends: End-of-generation tokens, after which drafting stops.
    """
    return EarlyExitDrafter(early, n_vocab, ends)


@dataclass(slots=True)
class EarlyExitSession:
    """A request's text; its memory is the target's."""

    slot: int
    tokens: list[Token]
    sampler: Proposing
    target: ExitBackend
    pending: int = 1
    """Always the last token alone, which the target reads with the draft and not before."""

    @property
    def ready(self) -> bool:
        """Whether there is a layer after which drafts pay."""
        return self.target.layers > 0

    def commit(self, tokens: Sequence[Token]) -> None:
        """The text goes on."""
        self.tokens += tokens

    def close(self) -> None:
        """Nothing is kept."""


class EarlyExitDrafter:
    """A `Drafter`. All sessions of a round draft in lockstep, one forward for each depth."""

    name = NAME
    free = False
    live = True
    """It drafts in slots of the target: outside of rounds it cannot be measured nor replayed."""

    def __init__(self, target: ExitBackend, n_vocab: int, ends: frozenset[Token]) -> None:
        self.target, self._n_vocab, self._ends = target, n_vocab, ends
        self.forwards = ForwardCounts()

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> EarlyExitSession:
        """Begin a request; there is nothing to read."""
        del prediction
        return EarlyExitSession(slot, list(prompt), sampler, self.target)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft until the budget ends or `worth` says stop, then restore the slots.

        Raises:
            EngineError: llama.cpp failed.
        """
        chains = [_Chain(request) for request in requests]
        begun = [chain for chain in chains if self._begins(chain)]
        active, rows = begun, [row for chain in begun for row in chain.first_rows()]
        try:
            while active:
                logits = iter(self._decode(rows))
                active = [chain for chain in active if self._hear(chain, next(logits))]
                rows = [chain.row() for chain in active]
        finally:
            for chain in begun:
                self.target.truncate(chain.session.slot, len(chain.session.tokens) - 1)
        return [Draft.chain(chain.tokens, chain.signals, chain.laws) for chain in chains]

    def close(self) -> None:
        """Nothing to free: the context is the target's."""

    def _begins(self, chain: _Chain) -> bool:
        """Whether a draft has room, and the slot holds the text but for its last token.

        The slot does not hold it where tokens are to be read again, or stand for images.
        """
        request, session = chain.request, chain.session
        prefix = request.prefix.tokens
        length = len(session.tokens) + len(prefix) + request.budget
        ended = any(token in self._ends for token in prefix)
        held = self.target.length(session.slot) == len(session.tokens) - 1
        fits = request.budget > 0 and length < self.target.context
        return session.ready and held and fits and not ended

    def _decode(self, rows: Sequence[Row]) -> Floats:
        self.forwards.ran(len(rows))
        most = self.target.max_rows
        if len(rows) <= most:
            return self.target.decode(rows).logits
        parts = [
            self.target.decode(rows[start : start + most]).logits.copy()
            for start in range(0, len(rows), most)
        ]
        return np.concatenate(parts)

    def _hear(self, chain: _Chain, logits: Floats) -> bool:
        """Add one node; whether to draft another one."""
        logits = logits[: self._n_vocab]
        request, session = chain.request, chain.session
        path = [*request.prefix.tokens, *chain.tokens]
        back = session.sampler.looks_back
        recent = session.tokens[-back:] if back else []
        token, law = session.sampler.propose(logits, recent, path, len(session.tokens) + len(path))
        chain.tokens.append(token)
        chain.laws.append(law)
        chain.signals.append(_signal(logits, token, session.sampler))
        going = token not in self._ends and len(chain.tokens) < request.budget
        return going and request.worth(chain.signals)


@dataclass(slots=True)
class _Chain:
    """A draft in the making."""

    request: DraftRequest
    tokens: list[Token] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    laws: list[Probs | None] = field(default_factory=list)

    @property
    def session(self) -> EarlyExitSession:
        return cast("EarlyExitSession", self.request.session)

    def first_rows(self) -> list[Row]:
        """The text's last token and the prefix, behind which the draft begins."""
        session = self.session
        tokens, start = [session.tokens[-1], *self.request.prefix.tokens], len(session.tokens) - 1
        last = len(tokens) - 1
        return [
            Row(token, start + at, session.slot, wants_logits=at == last)
            for at, token in enumerate(tokens)
        ]

    def row(self) -> Row:
        """The row of the last node."""
        before = len(self.session.tokens) + len(self.request.prefix) + len(self.tokens) - 1
        return Row(self.tokens[-1], before, self.session.slot, wants_logits=True)


def _signal(logits: Floats, token: Token, sampler: Proposing) -> Signal:
    """The bin of the token's probability; sampled tokens have bins of their own."""
    peak = logits.max()
    total = float(np.exp(logits[logits > peak - _FAR] - peak).sum())
    bucket = bisect_right(_EDGES, float(np.exp(logits[token] - peak)) / total)
    return Signal(NAME, bucket + len(_PRIORS) * (not sampler.greedy), _PRIORS[bucket])
