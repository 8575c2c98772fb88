"""Corpus: drafts copied from the user's own files, from where they match the text's end.

It needs no model: an index of files (`corpus/index.py`) gives all places behind the longest match
with the text's end, and the draft is the continuation of most of them. A copy that is being
accepted stays at its place. Where the text leaves it for an edit, its continuation is looked for
near there.

He et al., 2023, "REST: Retrieval-Based Speculative Decoding".
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, cast

from localspec.drafters._joints import NO_TOKEN, Joint, Joints, Kind
from localspec.types import Draft, DraftRequest, Proposing, Signal, Token

NAME = "corpus"

_TAIL_TOKENS = 32
"""Tokens of the text's end that are compared; the index compares no more."""
_FIRM_TOKENS = 24
"""A copy that agrees for so many tokens needs no search for a better one."""
_PROOF_TOKENS = 5
"""A copy that predicted fewer tokens was a guess; where it breaks, there is no edit."""
_REACH_TOKENS = 48
"""How far behind a broken copy its continuation is looked for: a few changed lines."""
_PATIENCE_TOKENS = 48
"""A text that has gone on for longer without the copy has left it."""


class CorpusMatches(Protocol):
    """Places behind the same tokens: the number of these tokens, and what follows each place."""

    @property
    def length(self) -> int:
        """Tokens before each place that agree."""

    @property
    def positions(self) -> Sequence[int]:
        """The places."""

    @property
    def ahead(self) -> Sequence[Sequence[Token]]:
        """The tokens that follow each."""


class Corpus(Protocol):
    """An index of files; `corpus.index.Index`."""

    def search(self, tail: Sequence[Token]) -> CorpusMatches | None:
        """The places after the longest part of the end of `tail` that it has."""

    def ahead(self, position: int) -> Sequence[Token]:
        """The tokens from a place on, as far as its file goes."""


class IndexSource(Protocol):
    """A holder of the newest index, which may change between two rounds."""

    @property
    def index(self) -> Corpus | None:
        """The index, None before the first is made."""


class Origin(IntEnum):
    """How the drafter came to the place that it copies from."""

    FRESH = 0  # found by a search, not tested yet
    COPY = 1  # has already predicted tokens
    RESYNC = 2  # found again near a copy that an edit broke


class Agreement(IntEnum):
    """How the places agree about the next token."""

    ALONE = 0
    UNANIMOUS = 1
    MOST = 2  # more than half of them
    DISPUTED = 3


_LENGTHS = (2, 4, 5, 6, 8, 10, 13, 16, 24)
"""Lower edges of the bins of match lengths; a copy found again may match less than a search."""
_PRIORS = (0.2, 0.3, 0.3, 0.4, 0.48, 0.58, 0.66, 0.74, 0.8, 0.88)
_ORIGIN_ODDS = (0.0, 0.8, 0.6)
_AGREEMENT_ODDS = (0.0, 0.6, -0.2, -1.2)
_JOINT_ODDS = (0.0, 1.3, -0.5, -0.8, -1.5, -1.5, -3.0)
_SAMPLED_ODDS = -0.7
"""These odds are like lookup's, which were fitted on more texts. The priors are lower: a file is
followed less faithfully than the prompt."""


class TokenFacts(NamedTuple):
    """The facts about a copied token, apart from the length of the match."""

    sampled: bool
    origin: Origin
    agreement: Agreement
    joint: Joint


def _prior(why: TokenFacts, prior: float) -> float:
    odds = math.log(prior / (1 - prior)) + _SAMPLED_ODDS * why.sampled
    odds += _ORIGIN_ODDS[why.origin] + _AGREEMENT_ODDS[why.agreement] + _JOINT_ODDS[why.joint]
    return 1 / (1 + math.exp(-odds))


def _signals() -> dict[TokenFacts, list[Signal]]:
    buckets = itertools.count()
    reasons = itertools.product((False, True), Origin, Agreement, Joint)
    return {
        why: [Signal(NAME, next(buckets), _prior(why, prior)) for prior in _PRIORS]
        for why in itertools.starmap(TokenFacts, reasons)
    }


_SIGNALS = _signals()


@dataclass(slots=True)
class _Copy:
    """A copy from a `position`, which `ahead` follows; the first `done` tokens of it were written.

    `length` tokens before it agree, `proven` of which the copy has predicted. `others` are the
    tokens that follow the other places found with it.
    """

    index: Corpus
    position: int
    ahead: Sequence[Token]
    length: int
    origin: Origin
    others: Sequence[Sequence[Token]] = ()
    done: int = 0
    proven: int = 0

    @property
    def left(self) -> Sequence[Token]:
        """The tokens expected next; more of the file is fetched when little is left."""
        if self.done and self.done >= len(self.ahead) // 2:
            self.position += self.done
            self.ahead, self.others = self.index.ahead(self.position), ()
            self.done = 0
        return self.ahead[self.done :]


@dataclass(slots=True)
class _Broken:
    """Where a copy broke, and how many tokens were written since."""

    index: Corpus
    position: int
    since: int = 0


class CorpusSession:
    """The end of one request's text, and the place in the corpus that is copied."""

    pending = 0

    def __init__(
        self,
        prompt: Sequence[Token],
        shelf: IndexSource,
        joints: Joints,
        n_vocab: int,
        *,
        sampled: bool,
    ) -> None:
        self._shelf = shelf
        self._joints = joints
        self._n_vocab = n_vocab
        self._sampled = sampled
        self._tail = list(prompt[-_TAIL_TOKENS:])
        self._copy: _Copy | None = None
        self._broken: _Broken | None = None

    def commit(self, tokens: Sequence[Token]) -> None:
        """Append tokens; follow the copy along them, or leave it where they differ."""
        self._tail = [*self._tail, *tokens][-_TAIL_TOKENS:]
        for token in tokens:
            if self._broken is not None:
                self._broken.since += 1
            if (copy := self._copy) is None:
                continue
            left = copy.left
            if left and left[0] == token:
                copy.done += 1
                copy.length += 1
                copy.proven += 1
                copy.origin = max(copy.origin, Origin.COPY)
                continue
            if copy.proven >= _PROOF_TOKENS and left:
                self._broken = _Broken(copy.index, copy.position + copy.done, 1)
            self._copy = None

    def propose(self, request: DraftRequest) -> Draft:
        """The tokens behind the best place known, after `request.prefix` if there is one."""
        index = self._shelf.index
        if request.budget <= 0 or index is None:
            return Draft()
        prefix = request.prefix.tokens
        if prefix:
            copy = self._found(index, [*self._tail, *prefix][-_TAIL_TOKENS:])
        else:
            copy = self._copy = self._best(index)
        return Draft() if copy is None else self._drafted(copy, request)

    def close(self) -> None:
        """Forget the text."""
        self._tail, self._copy, self._broken = [], None, None

    def _best(self, index: Corpus) -> _Copy | None:
        """The likeliest place to copy from; of equal ones that which is being copied already."""
        copy = self._copy if self._copy is None or self._copy.index is index else None
        if copy is not None and copy.length >= _FIRM_TOKENS and copy.left:
            return copy
        if copy is not None and not copy.left:
            copy = None
        known = [copy, self._way_back(index), self._found(index, self._tail)]
        there = [each for each in known if each is not None]
        return max(there, key=self._first_prior, default=None)

    def _first_prior(self, copy: _Copy) -> float:
        left = copy.left
        return self._signal(copy, _agreement([*copy.others, left], left, 0), Joint.PLAIN, 0).prior

    def _found(self, index: Corpus, tail: Sequence[Token]) -> _Copy | None:
        """The first place found by a search that goes on as most of the found places do."""
        places = index.search(tail)
        if places is None:
            return None
        votes = Counter(row[0] for row in places.ahead)
        likeliest = max(votes, key=votes.__getitem__)
        chosen = next(at for at, row in enumerate(places.ahead) if row[0] == likeliest)
        others = [row for at, row in enumerate(places.ahead) if at != chosen]
        position, ahead = places.positions[chosen], places.ahead[chosen]
        return _Copy(index, position, ahead, places.length, Origin.FRESH, others)

    def _way_back(self, index: Corpus) -> _Copy | None:
        """Where a broken copy goes on: of the places near its break that with the longest match."""
        broken = self._broken
        if broken is None or broken.index is not index or broken.since > _PATIENCE_TOKENS:
            return None
        near = [*index.ahead(broken.position)[:_REACH_TOKENS]]
        best, length = 0, 1
        for place in range(1, len(near)):
            same = 0
            while (
                same < min(place, len(self._tail))
                and near[place - 1 - same] == self._tail[-1 - same]
            ):
                same += 1
            if same > length:
                best, length = place, same
        if not best:
            return None
        return _Copy(index, broken.position + best, near[best:], length, Origin.RESYNC)

    def _signal(self, copy: _Copy, agreement: Agreement, joint: Joint, depth: int) -> Signal:
        origin = max(copy.origin, Origin.COPY) if depth else copy.origin
        why = TokenFacts(self._sampled, origin, agreement, joint)
        return _SIGNALS[why][bisect_right(_LENGTHS, copy.length + depth)]

    def _drafted(self, copy: _Copy, request: DraftRequest) -> Draft:
        left, before = copy.left, [*self._tail[-1:], *request.prefix.tokens]
        last = before[-1] if before else NO_TOKEN
        witnesses = [*(row[copy.done :] for row in copy.others), left]
        tokens: list[Token] = []
        signals: list[Signal] = []
        for depth, token in enumerate(left[: request.budget]):
            if token >= self._n_vocab or not request.worth(signals):
                break
            agreement = _agreement(witnesses, left, depth)
            joint = self._joints.between(last, token)
            tokens.append(token)
            signals.append(self._signal(copy, agreement, joint, depth))
            witnesses = [
                row for row in witnesses if row[depth : depth + 1] == left[depth : depth + 1]
            ]
            last = token
            if self._joints.kind(token) is Kind.CONTROL:
                break
        return Draft.chain(tokens, signals)


def _agreement(
    witnesses: Sequence[Sequence[Token]], copied: Sequence[Token], depth: int
) -> Agreement:
    """How the places that have gone on alike so far agree about the token at `depth`."""
    if len(witnesses) <= 1:
        return Agreement.ALONE
    expected = copied[depth : depth + 1]
    same = sum(1 for row in witnesses if row[depth : depth + 1] == expected)
    if same == len(witnesses):
        return Agreement.UNANIMOUS
    return Agreement.MOST if 2 * same > len(witnesses) else Agreement.DISPUTED


class CorpusDrafter:
    """Opens a `CorpusSession` per request on the newest index."""

    name = NAME
    free = True

    def __init__(self, shelf: IndexSource, piece: Callable[[Token], bytes], n_vocab: int) -> None:
        self._shelf = shelf
        self._joints = Joints(piece)
        self._n_vocab = n_vocab

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> CorpusSession:
        """Begin with the end of the prompt."""
        del slot, prediction
        sampled = not sampler.greedy
        return CorpusSession(prompt, self._shelf, self._joints, self._n_vocab, sampled=sampled)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One chain for each request."""
        return [cast("CorpusSession", request.session).propose(request) for request in requests]

    def close(self) -> None:
        """The index belongs to the worker."""


def build(*, corpus: IndexSource, piece: Callable[[Token], bytes], n_vocab: int) -> CorpusDrafter:
    """The drafter, for `drafters.load`. `corpus` has the index, which may change."""
    return CorpusDrafter(corpus, piece, n_vocab)
