"""Lookup: what followed the last time the text looked like this?

Free of any model: it proposes the continuation of the longest earlier occurrence of the text's end
in prediction, prompt and output: the one in the prediction, else the latest. While a copy goes well
it stays where it is; after an edit it looks for its way back near the place where the copy broke.

A prediction is a text that the client expects as the answer, such as a file before an edit. The
copy begins with it; what is copied from it has a source of its own.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, cast

from localspec.drafters._joints import NO_TOKEN, Joint, Joints, Kind
from localspec.drafters._occurrences import Match, Occurrences
from localspec.engine.sampling import Sampler
from localspec.types import PREDICTION, Ask, Draft, Signal, Token

NAME = "lookup"

_END = NO_TOKEN
"""Stands after the prediction in the index: no copy runs on into the prompt."""

_FIRM_TOKENS = 32
"""A copy this long needs no second opinion, and periodic text would make it an expensive one."""
_REACH_TOKENS = 48
"""How far behind a broken copy its continuation is looked for: a few deleted lines."""
_PATIENCE_TOKENS = 48
"""An insertion longer than this has left the old text; a short match near it means nothing."""
_DRIFT_TOKENS = 3
"""Substitutions this long often have the length of what they replaced, as a renamed word has."""
_PROOF_TOKENS = 5
"""A place that predicted less was a guess; its failure must not hide where a copy broke."""
_WITNESSES = 8
"""Other occurrences asked what followed them; more would not change the answer."""


class Place(IntEnum):
    """Which text is copied. What a text said itself it says again less faithfully than a prompt."""

    PREDICTION = 0
    PROMPT = 1
    OUTPUT = 2


class Origin(IntEnum):
    """How the drafter came to the place that it copies from."""

    FRESH = 0  # longest match, not tested yet
    COPY = 1  # has already predicted at least one token
    RESYNC = 2  # found again near a copy that an edit broke
    ENTRY = 3  # in a prediction that the text has not followed yet


class Agreement(IntEnum):
    """What followed the other occurrences of the same text."""

    ALONE = 0
    UNANIMOUS = 1
    DISPUTED = 2


_LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15, 24)
"""Lower edges of the match lengths told apart; finer where each token still changes much."""
# Chosen by what cold drafts won or lost in replays of the built-in suite with the default target.
_PRIORS = (0.08, 0.25, 0.38, 0.50, 0.60, 0.70, 0.80, 0.88, 0.94, 0.97)
_ORIGIN_ODDS = (0.0, 0.1, 0.65, 2.0)
_PLACE_ODDS = (0.6, 0.0, -0.7)
_AGREEMENT_ODDS = (0.0, 0.7, -1.1)
_JOINT_ODDS = (0.0, 1.3, -0.5, -1.2, -2.0, -2.0, -3.0)
_SAMPLED_ODDS = -0.7
"""Sampling leaves the copied text more often than the likeliest token does."""


class _Why(NamedTuple):
    """What is known of a copied token, but for the length of the match."""

    sampled: bool
    place: Place
    origin: Origin
    agreement: Agreement
    joint: Joint


def _prior(why: _Why, prior: float) -> float:
    odds = math.log(prior / (1 - prior)) + _SAMPLED_ODDS * why.sampled
    odds += _PLACE_ODDS[why.place] + _ORIGIN_ODDS[why.origin]
    odds += _AGREEMENT_ODDS[why.agreement] + _JOINT_ODDS[why.joint]
    return 1 / (1 + math.exp(-odds))


def _signals() -> dict[tuple[object, ...], list[Signal]]:
    """The signals by match length of everything else that may be known."""
    buckets = itertools.count()
    found: dict[tuple[object, ...], list[Signal]] = {}
    for why in itertools.starmap(
        _Why, itertools.product((False, True), Place, Origin, Agreement, Joint)
    ):
        source = PREDICTION if why.place is Place.PREDICTION else NAME
        found[why] = [Signal(source, next(buckets), _prior(why, prior)) for prior in _PRIORS]
    return found


_SIGNALS = _signals()


@dataclass(slots=True)
class _Cursor:
    """The place being copied: the text is expected to go on as it did at `position`.

    `length` tokens before it agree; `proven` of them it has predicted itself.
    """

    place: Place
    position: int
    length: int
    origin: Origin
    sampled: bool
    proven: int = 0

    def signal(
        self,
        agreement: Agreement = Agreement.ALONE,
        joint: Joint = Joint.PLAIN,
        depth: int = 0,
    ) -> Signal:
        """Why to believe in the token `depth` places after the next one."""
        origin = max(self.origin, Origin.COPY) if depth else self.origin
        length_bin = bisect_right(_LENGTHS, self.length + depth)
        return _SIGNALS[self.sampled, self.place, origin, agreement, joint][length_bin]


class LookupSession:
    """The index of one request's texts and the place it is copying from.

    The index holds the prediction, `_END`, then prompt and output.
    """

    pending = 0

    def __init__(
        self,
        prompt: Sequence[Token],
        prediction: Sequence[Token] = (),
        *,
        joints: Joints,
        sampled: bool = False,
    ) -> None:
        self._joints = joints
        self._sampled = sampled
        self._seen = Occurrences([*prediction, _END, *prompt])
        self._end = len(prediction)
        self._start = len(self._seen.text)
        self._entering = self._end > 0
        self._cursor: _Cursor | None = None
        self._broken_at: int | None = None
        self._since_break = 0

    def commit(self, tokens: Sequence[Token]) -> None:
        """Append `tokens` and move the cursor along them, or break it where they differ."""
        self._seen.extend(tokens)
        for token in tokens:
            self._since_break += 1
            cursor = self._cursor
            if cursor is None:
                continue
            if self._seen.text[cursor.position] == token:
                self._follow(cursor)
            else:
                if cursor.proven >= _PROOF_TOKENS:
                    self._broken_at = cursor.position
                    self._since_break = 1
                self._cursor = None

    def propose(self, ask: Ask) -> Draft:
        """The continuation of the best place known, after `ask.prefix` if there is one."""
        if ask.budget <= 0 or not self._seen.text:
            return Draft()
        cursor, matches = self._cursor, []
        if ask.prefix.tokens:
            matches = self._search(ask.prefix.tokens)
            cursor = self._longest(matches)
        elif cursor is None or cursor.length < _FIRM_TOKENS:
            matches = self._search()
            cursor = self._cursor = self._likeliest(self._longest(matches))
        return Draft() if cursor is None else self._copy(cursor, self._others(cursor, matches), ask)

    def close(self) -> None:
        """Forget the text."""
        self._seen = Occurrences()
        self._cursor = None

    def _follow(self, cursor: _Cursor) -> None:
        """The text went on as it did at the cursor."""
        cursor.position += 1
        cursor.length += 1
        cursor.proven += 1
        cursor.origin = max(cursor.origin, Origin.COPY)
        if cursor.proven >= _PROOF_TOKENS and cursor.place is Place.PREDICTION:
            self._entering = False
        if cursor.position == self._end:
            self._cursor = None

    def _search(self, ahead: Sequence[Token] = ()) -> list[Match]:
        """Earlier occurrences of the end of the text + `ahead` that something follows."""
        return [match for match in self._seen.search(ahead) if match.position != self._end]

    def _likeliest(self, found: _Cursor | None) -> _Cursor | None:
        """Where to copy from: of equally likely places the one that is being copied already."""
        places = (self._cursor, self._way_in(), self._way_back(), found)
        known = [place for place in places if place is not None]
        return max(known, key=lambda place: place.signal().prior, default=None)

    def _longest(self, matches: Sequence[Match]) -> _Cursor | None:
        """The longest match; of several the one in the prediction, else the latest."""
        best = max(matches, key=lambda at: (at.length, at.position < self._end), default=None)
        return None if best is None else self._at(*best, Origin.FRESH)

    def _way_in(self) -> _Cursor | None:
        """The beginning of the prediction, as far as the text has just followed it."""
        if not self._entering:
            return None
        text = self._seen.text
        if len(text) == self._start:
            return self._at(0, 0, Origin.ENTRY)
        for length in range(min(_PROOF_TOKENS, self._end - 1), 0, -1):
            if text[-length:] == text[:length]:
                return self._at(length, length, Origin.ENTRY)
        return None

    def _way_back(self) -> _Cursor | None:
        """Where a broken copy goes on: after the same token, or after as many tokens."""
        place = self._broken_at
        if place is None or self._since_break > _PATIENCE_TOKENS:
            return None
        stop = self._end if place < self._end else len(self._seen.text)
        near = self._seen.near(place, min(_REACH_TOKENS, stop - 1 - place))
        if near is not None:
            return self._at(*near, Origin.RESYNC)
        if self._since_break <= _DRIFT_TOKENS and place + self._since_break < stop:
            return self._at(place + self._since_break, 0, Origin.RESYNC)
        return None

    def _others(self, cursor: _Cursor, matches: Sequence[Match]) -> list[int]:
        """Places like the cursor's. The same file in prompt and prediction is one witness."""
        others = [
            match.position
            for match in matches
            if match.position != cursor.position and self._text_of(match.position) is cursor.place
        ]
        return others[:_WITNESSES]

    def _text_of(self, position: int) -> Place:
        if position < self._end:
            return Place.PREDICTION
        return Place.PROMPT if position < self._start else Place.OUTPUT

    def _at(self, position: int, length: int, origin: Origin) -> _Cursor:
        return _Cursor(self._text_of(position), position, length, origin, self._sampled)

    def _copy(self, cursor: _Cursor, witnesses: list[int], ask: Ask) -> Draft:
        text = self._seen.text
        ahead = list(ask.prefix.tokens)  # a copy may run over the end of the text into itself
        signals: list[Signal] = []
        for depth in range(ask.budget):
            at = cursor.position + depth
            if at == self._end or not ask.worth(signals):
                break
            token = text[at] if at < len(text) else ahead[at - len(text)]
            staying = [
                other
                for other in witnesses
                if other + depth < len(text) and text[other + depth] == token
            ]
            before = ahead[-1] if ahead else text[-1]
            agreement = _agreement(len(staying), len(witnesses))
            signals.append(cursor.signal(agreement, self._joints.between(before, token), depth))
            witnesses = staying
            ahead.append(token)
            if self._joints.kind(token) is Kind.CONTROL:
                break  # nothing follows the end of a message
        return Draft.chain(ahead[len(ask.prefix) :], signals)


def _agreement(staying: int, witnesses: int) -> Agreement:
    if not witnesses:
        return Agreement.ALONE
    return Agreement.UNANIMOUS if staying == witnesses else Agreement.DISPUTED


class LookupDrafter:
    """Opens a `LookupSession` per request; holds the kinds of the vocabulary's tokens."""

    name = NAME
    free = True

    def __init__(self, piece: Callable[[Token], bytes]) -> None:
        self._joints = Joints(piece)

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Sampler,
        prediction: Sequence[Token] = (),
    ) -> LookupSession:
        """Index both texts: microseconds per token, nothing is decoded."""
        del slot
        return LookupSession(prompt, prediction, joints=self._joints, sampled=not sampler.greedy)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One chain per ask."""
        return [cast("LookupSession", ask.session).propose(ask) for ask in asks]

    def close(self) -> None:
        """Nothing to free."""


def build(*, piece: Callable[[Token], bytes]) -> LookupDrafter:
    """The drafter, for `drafters.load`. `piece` gives the bytes that a token writes."""
    return LookupDrafter(piece)
