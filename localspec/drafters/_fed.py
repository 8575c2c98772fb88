"""The drafter of heads that are fed with the target's features: EAGLE-3 heads and MTP.

A head reads pairs: a token of the text, and the target's features of the token before it. So it
knows of the text what the target knows, with one layer to compute. Behind the text it is fed with
its own vectors instead, one forward a token. These pairs are forgotten after the round, and the
accepted tokens are read again with the target's features.

Pairs have consecutive positions in the slot's memory, whatever gaps there are between their places
in the text: a prefix without features is such a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from localspec.drafters._siblings import Second, beside, second
from localspec.engine.kv.slots import common_prefix
from localspec.errors import EngineError, GrammarError
from localspec.forward_counts import ForwardCounts
from localspec.types import (
    STEPS,
    Draft,
    DraftRequest,
    FedBackend,
    Floats,
    Probs,
    Proposing,
    Row,
    Signal,
    Token,
)

KEPT = 256
"""The most features kept of a prompt: of its beginning and its last tokens, some kilobytes each.
Those of the last token hold what the target made of all before."""
SINKS = 4
"""First tokens of a text, which are never skipped: a layer attends to them where it attends to
nothing in particular (Xiao et al., 2023)."""
_EDGES = (0.3, 0.5, 0.8, 0.9, 0.97)
_FAR_LOGIT = 16.0
"""Logits so far below the largest add less than 2 % together."""


class FedDrafter:
    """A `Drafter` on a head. All sessions of a round draft in lockstep, a forward for each depth.

    Args:
        name: The source's name.
        priors: Acceptance by the head's confidence, in the bins of `_EDGES`.
        head: Owned from now on.
        n_vocab: The target's vocabulary.
        ends: End-of-generation tokens, after which drafting stops.
    """

    free = False
    stepwise = True
    """It reads a prefix as it drafts, one forward a token."""

    def __init__(
        self,
        name: str,
        priors: Sequence[float],
        head: FedBackend,
        n_vocab: int,
        ends: frozenset[Token],
    ) -> None:
        self.name, self._priors, self.head = name, tuple(priors), head
        self._n_vocab, self._ends = min(n_vocab, head.n_vocab), ends
        self.forwards = ForwardCounts()
        self._memories = [_Memory() for _ in range(head.n_slots)]
        for slot in range(head.n_slots):
            head.truncate(slot, 0)

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> FedSession:
        """Begin a request; what the slot's memory holds of its text stays."""
        del prediction
        memory = self._memories[slot]
        memory.begin(prompt)
        return FedSession(slot, memory.text, sampler, memory, self.head.inputs)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Read the pairs that are pending, then draft until the budget ends or `worth` says stop.

        Raises:
            EngineError: llama.cpp failed; the slots of these sessions are empty then.
        """
        chains = [_Chain(request) for request in requests]
        try:
            self._extend([chain for chain in chains if self._begins(chain)])
        except EngineError:
            for chain in chains:
                chain.session.memory.places.clear()
                self.head.truncate(chain.session.slot, 0)
            raise
        return [beside(chain.draft(), chain.seconds) for chain in chains]

    def close(self) -> None:
        """Free the head's context."""
        close = getattr(self.head, "close", None)
        if close is not None:
            close()

    def _begins(self, chain: _Chain) -> bool:
        """Whether a draft can begin. First leaves out the pairs that the request says to skip."""
        request, session = chain.request, chain.session
        session.skip(request.skip)
        prefix = request.prefix.tokens
        ended = any(token in self._ends for token in prefix) or len(prefix) > STEPS
        if not session.ready or request.budget <= 0 or ended:
            return False
        rows = len(session.places) + len(prefix) + request.budget
        if len(session.memory.places) + rows > self.head.context:
            session.memory.places.clear()
        return rows <= self.head.context

    def _extend(self, chains: list[_Chain]) -> None:
        if not chains:
            return
        self._read(chains)
        active = [chain for chain in chains if self._hear(chain)]
        while active:
            vectors = np.stack([chain.vector for chain in active])
            self._decode([(chain, chain.row()) for chain in active], vectors)
            active = [chain for chain in active if self._hear(chain)]

    def _read(self, chains: list[_Chain]) -> None:
        """Read the pending pairs of all chains."""
        rows: list[tuple[_Chain, Row]] = []
        features: list[Floats] = []
        for chain in chains:
            fresh, own = chain.session.read(wants_logits=not chain.request.prefix)
            self.head.truncate(chain.session.slot, fresh[0].position)
            rows += [(chain, row) for row in fresh]
            features.extend(own)
            chain.position = fresh[-1].position + 1
        vectors, most = self.head.fuse(np.stack(features)), self.head.max_rows
        for start in range(0, len(rows), most):
            self._decode(rows[start : start + most], vectors[start : start + most])

    def _decode(self, rows: Sequence[tuple[_Chain, Row]], vectors: Floats) -> None:
        """One forward; each chain gets the vector behind its last row, and the logits it wants."""
        self.forwards.ran(len(rows))
        output = self.head.decode([row for _, row in rows], vectors)
        logits = iter(output.logits.copy())
        for (chain, row), vector in zip(rows, output.vectors, strict=True):
            chain.vector = vector.copy()
            if row.wants_logits:
                chain.logits = next(logits)

    def _hear(self, chain: _Chain) -> bool:
        """Take the next token of the prefix, or draft a node; whether to go on."""
        request, prefix = chain.request, chain.request.prefix.tokens
        if chain.taken < len(prefix):
            chain.token = prefix[chain.taken]
            chain.taken += 1
            return True
        found = self._drawn(chain)
        if found is None:
            return False
        chain.token = found
        going = found not in self._ends and len(chain.tokens) < request.budget
        return going and request.worth(chain.signals)

    def _drawn(self, chain: _Chain) -> Token | None:
        """Add one node; None where the head knows no token that is allowed."""
        logits = chain.logits[: self._n_vocab]
        request, session = chain.request, chain.session
        sampler = session.sampler
        path = [*request.prefix.tokens, *chain.tokens]
        back = sampler.looks_back
        recent = session.tokens[-back:] if back else []
        position = len(session.tokens) + len(path)

        def propose(values: Floats) -> tuple[Token, Probs | None]:
            return sampler.propose(values, recent, path, position)

        try:
            token, law = propose(logits)
        except GrammarError:
            return None
        if request.siblings and law is None:
            chain.seconds.append(second(logits, token, propose))
        chain.tokens.append(token)
        chain.laws.append(law)
        chain.signals.append(self._signal(logits, token, sampler))
        return token

    def _signal(self, logits: Floats, token: Token, sampler: Proposing) -> Signal:
        """The bin of the token's probability by the head; sampled tokens have bins of their own."""
        peak = logits.max()
        total = float(np.exp(logits[logits > peak - _FAR_LOGIT] - peak).sum())
        bucket = bisect_right(_EDGES, float(np.exp(logits[token] - peak)) / total)
        kinds = len(self._priors)
        return Signal(self.name, bucket + kinds * (not sampler.greedy), self._priors[bucket])


@dataclass(slots=True)
class _Memory:
    """A slot's pairs: the vector at each of these `places` of `text`, and the token behind it."""

    text: list[Token] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def begin(self, prompt: Sequence[Token]) -> None:
        """Begin another text; pairs of the common prefix are kept."""
        length = common_prefix(self.text, prompt)
        del self.places[bisect_left(self.places, length - 1) :]
        self.text = list(prompt)


@dataclass(slots=True)
class FedSession:
    """A request as its head sees it.

    `features` are kept at these `places` of the text, which is `tokens`: places that are not read
    yet, and the one where the next draft begins, which may have been read.
    """

    slot: int
    tokens: list[Token]
    sampler: Proposing
    memory: _Memory
    inputs: int
    places: list[int] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    skipped: int = 0

    @property
    def ready(self) -> bool:
        """Whether the features with which a draft begins have come: of the last token but one."""
        return bool(self.places) and self.places[-1] == len(self.tokens) - 2

    @property
    def _read_before(self) -> bool:
        return bool(self.places) and self.places[:1] == self.memory.places[-1:]

    @property
    def pending(self) -> int:
        """Pairs to read before the next draft."""
        return len(self.places) - self._read_before

    def follow(self, start: int, features: Floats) -> None:
        """Keep those of these features (tokens, inputs) from place `start` on that are new."""
        known = max([*self.places[-1:], *self.memory.places[-1:]], default=-1)
        first = max(start, known + 1)
        self.places += range(first, start + len(features))
        self.features.extend(features[first - start :].astype(np.float16))
        self._drop(len(self.places) - KEPT)

    def skip(self, count: int) -> None:
        """Leave out the oldest `count` pending pairs, but not the last."""
        left = len(self.places)
        self._drop(min(count, left - 1 - self._read_before))
        self.skipped += left - len(self.places)

    def _drop(self, count: int) -> None:
        """Leave out the oldest `count` unread pairs behind the text's beginning."""
        if count > 0:
            first = self._read_before + bisect_left(self.places, SINKS)
            first = min(first, len(self.places) - 1 - count)
            self._cut(first, first + count)

    def _cut(self, first: int, end: int) -> None:
        del self.places[first:end]
        del self.features[first:end]

    def read(self, *, wants_logits: bool) -> tuple[list[Row], list[Floats]]:
        """Take the pending pairs: rows, the last of which may want logits, and their features.

        Where none is pending, the pair with which a draft begins is read again.
        """
        held = self.memory.places
        if self._read_before:
            if len(self.places) > 1:
                self._cut(0, 1)
            else:
                held.pop()
        last = self.places[-1]
        rows = [
            Row(self.tokens[place + 1], at, self.slot, wants_logits and place == last)
            for at, place in enumerate(self.places, len(held))
        ]
        found = list(self.features)
        held += self.places
        self._cut(0, len(self.places) - 1)
        return rows, found

    def commit(self, tokens: Sequence[Token]) -> None:
        """The text goes on."""
        self.tokens += tokens

    def close(self) -> None:
        """Nothing to free: the slot's pairs serve the next request that begins the same."""


@dataclass(slots=True)
class _Chain:
    """A draft in the making: the next row, at `position`, has `token` and `vector`.

    The first `taken` tokens of the request's prefix were read.
    """

    request: DraftRequest
    position: int = 0
    taken: int = 0
    token: Token = 0
    vector: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    logits: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    tokens: list[Token] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    laws: list[Probs | None] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)

    @property
    def session(self) -> FedSession:
        return cast("FedSession", self.request.session)

    def row(self) -> Row:
        """The next row; it wants logits once the prefix is read."""
        read = self.taken == len(self.request.prefix)
        found = Row(self.token, self.position, self.session.slot, wants_logits=read)
        self.position += 1
        return found

    def draft(self) -> Draft:
        return Draft.chain(self.tokens, self.signals, self.laws)
