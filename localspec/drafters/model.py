"""A smaller language model as drafter: same vocabulary, its own llama.cpp context.

The cells of a draft stay in its memory after the round, so that no token is ever decoded twice:
after a rejection it reads the correction, after a full acceptance its own last token and the bonus.
llama-server throws the drafted cells away and decodes them again each round.

A memory that is a state is copied before the first token of a draft. After a rejection the copy is
restored, and the accepted tokens are read again in the forward that reads the correction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import cast

import numpy as np

from localspec.drafters._siblings import Second, beside, second
from localspec.engine.kv.prefixes import Storable
from localspec.engine.kv.rollback import Stored, restores
from localspec.engine.kv.slots import common_prefix
from localspec.errors import EngineError, GrammarError
from localspec.forward_counts import ForwardCounts
from localspec.types import (
    READ_ROWS,
    Backend,
    Draft,
    DraftRequest,
    DraftSession,
    Floats,
    Probs,
    Proposing,
    Row,
    Sharing,
    Signal,
    Token,
)

NAME = "model"

SINKS = 4
"""First tokens of a text, which are never skipped: a model attends to them where it attends to
nothing in particular (Xiao et al., 2023, "Efficient Streaming Language Models with Attention
Sinks")."""
_EDGES = (0.3, 0.5, 0.8, 0.9, 0.97)
_PRIORS = (0.28, 0.47, 0.7, 0.9, 0.97, 0.996)
"""Acceptance by the draft's own probability, measured of the 0.5B with the 1.5B target: a draft
model is well calibrated."""
_LASTING_TOKENS = 32
"""The shortest text of which a lasting copy is made: less is read again as fast as it is copied."""
_FAR = 16.0
"""Logits so far below the largest add less than 2 % together: no bin would notice."""


def build(*, context: Backend, n_vocab: int, ends: frozenset[Token]) -> ModelDrafter:
    """A drafter on an open context.

    Args:
        context: The draft model's context, with as many slots as the target's. Owned from now on.
        n_vocab: The target's vocabulary; the draft's own may be larger or smaller.
        ends: End-of-generation tokens, after which drafting stops.
    """
    return ModelDrafter(context, n_vocab, ends)


class ModelDrafter:
    """A `Drafter`. All sessions of a round draft in lockstep, one forward for each depth."""

    name = NAME
    free = False
    beside = True
    """It needs nothing of the target, and can draft while the target computes."""

    def __init__(self, context: Backend, n_vocab: int, ends: frozenset[Token]) -> None:
        self._context = context
        self.n_vocab = min(n_vocab, context.n_vocab)
        """The tokens that both models have: one may be padded further than the other."""
        self._ends = ends
        self.forwards = ForwardCounts()
        self._held: list[list[Token]] = [[] for _ in range(context.n_slots)]
        self._open: dict[int, ModelSession] = {}
        self._reading: set[int] = set()
        self._restores = restores(context)
        if isinstance(context, Sharing):
            context.on_full = self._forget_one
        for slot in range(context.n_slots):
            context.truncate(slot, 0)

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> ModelSession:
        """Begin a request; nothing is decoded before the first `propose`."""
        del prediction  # the draft model has an opinion of its own
        held = self._held[slot]
        agreed = common_prefix(held, prompt)
        session = ModelSession(slot, list(prompt), list(prompt), sampler, held, agreed)
        self._open[slot] = session
        return session

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Read what is pending, then draft until the budget ends or `worth` says stop.

        Raises:
            EngineError: llama.cpp failed; the slots of these sessions are empty then.
        """
        chains = [_Chain(request) for request in requests]
        for chain in chains:
            chain.session.skip(chain.request.skip)
        try:
            self._extend(chains)
        except EngineError:
            for chain in chains:
                chain.session.forget()
                self._context.truncate(chain.session.slot, 0)
            raise
        return [beside(chain.draft(), chain.seconds) for chain in chains]

    def _extend(self, chains: list[_Chain]) -> None:
        active = [chain for chain in chains if self._room(chain)]
        feeds = [self._feed(chain) for chain in active]
        active = [chain for chain, feed in zip(active, feeds, strict=True) if feed[1]]
        rows = [row for feed in feeds for row in feed[0]]
        self._reading = {chain.session.slot for chain in active}
        if self._restores:
            rows = self._committed_first(active, rows)
        while len(rows) > READ_ROWS and not any(row.wants_logits for row in rows[:READ_ROWS]):
            self._decode(rows[:READ_ROWS])
            del rows[:READ_ROWS]
        roots = [chain for chain in active if self._restores and not chain.request.prefix.tokens]
        while rows:
            logits = iter(self._decode(rows))
            for chain in roots:
                self._checkpoint(chain.session)
            roots.clear()
            active = [chain for chain in active if self._hear(chain, logits)]
            rows = [row for chain in active for row in self._next_rows(chain)]

    def _committed_first(self, active: Sequence[_Chain], rows: list[Row]) -> list[Row]:
        """Read alone the texts that a prefix follows, and copy their states; the rows left."""
        texts = {
            chain.session.slot: chain.session for chain in active if chain.request.prefix.tokens
        }
        first = [
            row for row in rows if row.slot in texts and row.position < len(texts[row.slot].seen)
        ]
        if not first:
            return rows
        self._decode(first)
        for slot in dict.fromkeys(row.slot for row in first):
            self._checkpoint(texts[slot])
        read = set(first)
        return [row for row in rows if row not in read]

    def _checkpoint(self, session: ModelSession) -> None:
        """Copy the state behind the text; the first copy is kept for the next prompt."""
        lasting = not session.kept and len(session.seen) >= _LASTING_TOKENS
        self._context.checkpoint(session.slot, lasting=lasting)
        session.kept = True

    def read(self, session: DraftSession, most: int) -> int:
        """Read at most `most` pending tokens and return their number.

        The last one is left, because the next draft begins with it.

        Raises:
            EngineError: llama.cpp failed; the slot is empty then.
        """
        mine = cast("ModelSession", session)
        start = mine.agreed
        new = mine.seen[start:-1][: min(most, self._context.context - start)]
        if not new:
            return 0
        try:
            back = self._context.truncate(mine.slot, start)
            new[:0] = mine.seen[back:start]
            self._reading = {mine.slot}
            self._decode([Row(token, back + at, mine.slot) for at, token in enumerate(new)])
        except EngineError:
            mine.forget()
            self._context.truncate(mine.slot, 0)
            raise
        mine.held[back:] = new
        mine.agreed = back + len(new)
        return mine.agreed - start

    def held(self, slot: int) -> list[Token]:
        """The tokens that the slot holds, those of a rejected draft included."""
        return list(self._held[slot]) if isinstance(self._context, Storable) else []

    def stored(self, slot: int) -> Stored:
        """A copy of what the slot holds. Raises MemoryError."""
        return self._storing.stored(slot)

    def stored_size(self, slot: int) -> int:
        """Bytes of such a copy."""
        return self._storing.stored_size(slot)

    def take_over(self, slot: int, tokens: Sequence[Token], stored: Stored) -> None:
        """Hold these tokens in a slot without a request. Raises NoRoom; then the slot is empty."""
        self._held[slot].clear()
        self._context.truncate(slot, 0)
        self._storing.put_back(slot, stored)
        held = self._context.truncate(slot, len(tokens))  # a state goes back to a copy, or to 0
        self._held[slot][:] = tokens[:held]

    @property
    def _storing(self) -> Storable:
        assert isinstance(self._context, Storable)  # noqa: S101 - without, it holds nothing to store
        return self._context

    def close(self) -> None:
        """Free the draft's context."""
        close = getattr(self._context, "close", None)
        if close is not None:
            close()

    def _room(self, chain: _Chain) -> bool:
        request = chain.request
        length = len(chain.session.seen) + len(request.prefix) + request.budget
        return request.budget > 0 and length < self._context.context

    def _feed(self, chain: _Chain) -> tuple[list[Row], bool]:
        """Rows that bring the draft's memory up to the chain's root, and whether they reach it."""
        session = chain.session
        wanted = [*session.seen, *chain.request.prefix.tokens]
        held = session.held
        keep = session.agreed
        if keep == len(session.seen):
            keep += common_prefix(held[keep:], chain.request.prefix.tokens)
        keep = min(keep, len(wanted) - 1)
        if keep < len(held):
            keep = self._context.truncate(session.slot, keep)
            del held[keep:]
        new = wanted[keep : keep + chain.request.read]
        complete = keep + len(new) == len(wanted)
        held += new
        session.agreed = min(len(held), len(session.seen))
        rows = [Row(token, keep + index, session.slot) for index, token in enumerate(new)]
        if complete:
            rows[-1:] = self._asking(chain)
        return rows, complete

    def _asking(self, chain: _Chain) -> list[Row]:
        """Rows of the last token held, and of the tokens guessed to follow it; all want logits.

        Nothing is guessed where memory is a state, which could not forget wrong guesses.
        """
        session, request = chain.session, chain.request
        room = request.budget - len(chain.tokens) - 1
        if not self._restores:
            chain.guess = list(request.guess(chain.draft()))[:room]
        first = len(session.held) - 1
        session.held += chain.guess
        return [
            Row(token, place, session.slot, wants_logits=True)
            for place, token in enumerate(session.held[first:], first)
        ]

    def _decode(self, rows: Sequence[Row]) -> Floats:
        """One forward, or several when many sessions catch up; logits of rows that want them."""
        most = self._context.max_rows
        if len(rows) <= most:
            return self._forward(rows)
        parts = [
            self._forward(rows[start : start + most]).copy() for start in range(0, len(rows), most)
        ]
        return np.concatenate(parts)

    def _forward(self, rows: Sequence[Row]) -> Floats:
        self.forwards.ran(len(rows))
        return self._context.decode(rows).logits

    def _forget_one(self) -> bool:
        """Make room: drop the longest text of a slot that these forwards do not read in."""
        slots = [slot for slot in range(len(self._held)) if slot not in self._reading]
        slot = max(slots, key=lambda slot: len(self._held[slot]), default=None)
        if slot is None or not self._held[slot]:
            return False
        self._held[slot].clear()
        if slot in self._open:
            self._open[slot].forget()
        self._context.truncate(slot, 0)
        return True

    def _hear(self, chain: _Chain, logits: Iterator[Floats]) -> bool:
        """Add nodes, one and as many more as were guessed right; whether to draft another one.

        Takes as many rows of logits as the chain has asked for.
        """
        mine = list(islice(logits, 1 + len(chain.guess)))
        ended = False
        for row, guess in zip_longest(mine, chain.guess):
            token = self._draw(chain, row)
            ended = token is None or token in self._ends
            if ended or token != guess:
                break
        request = chain.request
        return not ended and len(chain.tokens) < request.budget and request.worth(chain.signals)

    def _draw(self, chain: _Chain, logits: Floats) -> Token | None:
        """Add one node; None where the draft's vocabulary has no token that is allowed."""
        logits = logits[: self.n_vocab]
        request, sampler = chain.request, chain.session.sampler
        path = [*request.prefix.tokens, *chain.tokens]
        back = sampler.looks_back
        recent = chain.session.tokens[-back:] if back else []
        position = len(chain.session.tokens) + len(path)

        def propose(values: Floats) -> tuple[Token, Probs | None]:
            return sampler.propose(values, recent, path, position)

        try:
            token, law = propose(logits)
        except GrammarError:
            return None
        chain.tokens.append(token)
        chain.laws.append(law)
        chain.signals.append(_signal(logits, token, sampler))
        if request.siblings and law is None:
            chain.seconds.append(second(logits, token, propose))
        return token

    def _next_rows(self, chain: _Chain) -> list[Row]:
        """The rows of the last node and its guesses, after wrong guesses before are forgotten."""
        session = chain.session
        before = len(session.seen) + len(chain.request.prefix) + len(chain.tokens) - 1
        if before < len(session.held):
            self._context.truncate(session.slot, before)
            del session.held[before:]
        session.held.append(chain.tokens[-1])
        return self._asking(chain)


@dataclass(slots=True)
class ModelSession:
    """The draft model's memory of one request.

    `tokens` are the text, and `seen` is the text as the draft model has it, without the tokens that
    it leaves out. `held` is what the slot's KV cache holds, drafted tokens of the last round
    included; its first `agreed` tokens are those of `seen`. `kept` is whether there is a lasting
    copy of the state for later prompts.
    """

    slot: int
    tokens: list[Token]
    seen: list[Token]
    sampler: Proposing
    held: list[Token]
    agreed: int
    kept: bool = False

    @property
    def pending(self) -> int:
        """Tokens to read before the next draft."""
        return len(self.seen) - self.agreed

    @property
    def skipped(self) -> int:
        """Tokens of the text that it has left out."""
        return len(self.tokens) - len(self.seen)

    def skip(self, count: int) -> None:
        """Leave out the oldest `count` pending tokens, but not the last, nor the text's first."""
        start = max(self.agreed, SINKS)
        del self.seen[start : min(start + count, len(self.seen) - 1)]

    def commit(self, tokens: Sequence[Token]) -> None:
        """Extend the text; drafted tokens that became text need no second reading."""
        for token in tokens:
            at = len(self.seen)
            if self.agreed == at and at < len(self.held) and self.held[at] == token:
                self.agreed += 1
            self.seen.append(token)
        self.tokens += tokens

    def rewrite(self, first: int, tokens: Sequence[Token]) -> None:
        """Replace the text from `first` on by `tokens`; those that are held are not read again."""
        self.tokens[first:] = tokens
        self.seen[first:] = tokens
        self.agreed = min(self.agreed, first)
        self.agreed += common_prefix(self.held[self.agreed :], self.seen[self.agreed :])

    def forget(self) -> None:
        """Note that the slot's memory is gone: everything is to be read again."""
        self.held.clear()
        self.agreed = 0
        self.seen[:] = self.tokens

    def close(self) -> None:
        """Nothing to free: the slot's cells serve the next request that begins the same."""


@dataclass(slots=True)
class _Chain:
    """A draft in the making; `guess` is read along with its last token."""

    request: DraftRequest
    guess: list[Token] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    laws: list[Probs | None] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)

    @property
    def session(self) -> ModelSession:
        return cast("ModelSession", self.request.session)

    def draft(self) -> Draft:
        return Draft.chain(self.tokens, self.signals, self.laws)


def _signal(logits: Floats, token: Token, sampler: Proposing) -> Signal:
    """The drawn token's probability under the draft's plain softmax, in one of a few bins.

    Sampled requests have bins of their own: there a draft is kept when two draws agree.
    """
    peak = logits.max()
    total = float(np.exp(logits[logits > peak - _FAR] - peak).sum())
    probability = float(np.exp(logits[token] - peak)) / total
    return _binned(probability, sampler)


def _binned(probability: float, sampler: Proposing) -> Signal:
    bucket = bisect_right(_EDGES, probability)
    return Signal(NAME, bucket + (0 if sampler.greedy else len(_PRIORS)), _PRIORS[bucket])
