"""Prompt lookup: what followed the last time the text looked like this?

Free of any model: it proposes the continuation of the longest earlier occurrence of the text's end
in prompt and output, the latest one of several. While a copy goes well it stays where it is; after
an edit it looks for its way back near the place where the copy broke.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

from localspec.drafters._occurrences import Match, Occurrences
from localspec.types import Ask, Draft, Signal, Token

NAME = "lookup"

_FIRM_TOKENS = 32
"""A copy this long needs no second opinion, and periodic text would make it an expensive one."""
_REACH_TOKENS = 96
"""How far behind a broken copy its continuation is looked for: several deleted lines."""
_PATIENCE_TOKENS = 48
"""An insertion longer than this has left the old text; a short match near it means nothing."""
_DRIFT_TOKENS = 3
"""Substitutions this long often have the length of what they replaced, as a renamed word has."""
_PROOF_TOKENS = 8
"""A place that predicted less was a guess; its failure must not hide where a copy broke."""
_WITNESSES = 8
"""Other occurrences asked what followed them; more would not change the answer."""


class Origin(IntEnum):
    """How the drafter came to the place that it copies from."""

    FRESH = 0  # longest match, not tested yet
    COPY = 1  # has already predicted at least one token
    RESYNC = 2  # found again near a copy that an edit broke


class Agreement(IntEnum):
    """What followed the other occurrences of the same text."""

    ALONE = 0
    UNANIMOUS = 1
    DISPUTED = 2


_LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15, 24)
"""Lower edges of the match lengths told apart; finer where each token still changes much."""
_PRIORS = (0.08, 0.25, 0.38, 0.50, 0.60, 0.70, 0.80, 0.88, 0.94, 0.97)
_ORIGIN_ODDS = (0.0, 0.1, 0.8)
_AGREEMENT_ODDS = (0.0, 0.7, -0.8)


def _signal(origin: Origin, agreement: Agreement, length_bin: int) -> Signal:
    prior = _PRIORS[length_bin]
    odds = math.log(prior / (1 - prior)) + _ORIGIN_ODDS[origin] + _AGREEMENT_ODDS[agreement]
    bucket = (origin * len(Agreement) + agreement) * len(_PRIORS) + length_bin
    return Signal(NAME, bucket, 1 / (1 + math.exp(-odds)))


_SIGNALS = [
    [
        [_signal(origin, agreement, index) for index in range(len(_PRIORS))]
        for agreement in Agreement
    ]
    for origin in Origin
]


@dataclass(slots=True)
class _Cursor:
    """The place being copied: the text is expected to go on as it did at `position`.

    `length` tokens before it agree; `proven` of them it has predicted itself.
    """

    position: int
    length: int
    origin: Origin
    proven: int = 0

    @property
    def prior(self) -> float:
        return _SIGNALS[self.origin][Agreement.ALONE][bisect_right(_LENGTHS, self.length)].prior


class LookupSession:
    """The index of one request's text and the place it is copying from."""

    pending = 0

    def __init__(self, prompt: Sequence[Token]) -> None:
        self._seen = Occurrences(prompt)
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
                cursor.position += 1
                cursor.length += 1
                cursor.proven += 1
                cursor.origin = max(cursor.origin, Origin.COPY)
            else:
                if cursor.proven >= _PROOF_TOKENS:
                    self._broken_at = cursor.position
                    self._since_break = 1
                self._cursor = None

    def propose(self, ask: Ask) -> Draft:
        """The continuation of the best place known, after `ask.prefix` if there is one."""
        if ask.budget <= 0 or not self._seen.text:
            return Draft()
        if ask.prefix.tokens:
            matches = self._seen.search(ask.prefix.tokens)
            cursor = _Cursor(*matches[0], Origin.FRESH) if matches else None
        else:
            matches = self._locate()
            cursor = self._cursor
        if cursor is None:
            return Draft()
        others = [match.position for match in matches if match.position != cursor.position]
        return self._copy(cursor, others[:_WITNESSES], ask)

    def close(self) -> None:
        """Forget the text."""
        self._seen = Occurrences()
        self._cursor = None

    def _locate(self) -> list[Match]:
        """Choose the place to copy from, into `_cursor`; the occurrences it was chosen among.

        1. A firm copy goes on.
        2. A copy as long as any other match goes on.
        3. After a broken copy, the way back into it, if likelier than the longest match.
        4. The latest of the longest matches.
        """
        cursor = self._cursor
        if cursor is not None and cursor.length >= _FIRM_TOKENS:
            return []
        matches = self._seen.search()
        longest = matches[0].length if matches else 0
        resynchronised = cursor is not None and cursor.origin is Origin.RESYNC
        if cursor is not None and (cursor.length >= longest or resynchronised):
            return matches
        found = _Cursor(*matches[0], Origin.FRESH) if matches else None
        back = self._way_back()
        if back is not None and (found is None or back.prior > found.prior):
            self._cursor = back
            return []
        self._cursor = found
        return matches

    def _way_back(self) -> _Cursor | None:
        """Where a broken copy goes on: after the same token, or after as many tokens."""
        place = self._broken_at
        if place is None or self._since_break > _PATIENCE_TOKENS:
            return None
        near = self._seen.near(place, _REACH_TOKENS)
        if near is not None:
            return _Cursor(*near, Origin.RESYNC)
        if self._since_break <= _DRIFT_TOKENS:
            return _Cursor(place + self._since_break, 0, Origin.RESYNC)
        return None

    def _copy(self, cursor: _Cursor, witnesses: list[int], ask: Ask) -> Draft:
        text = self._seen.text
        ahead = list(ask.prefix.tokens)  # a copy may run over the end of the text into itself
        start, length, origin = cursor.position, cursor.length, cursor.origin
        signals: list[Signal] = []
        for depth in range(ask.budget):
            if not ask.worth(signals):
                break
            at = start + depth
            token = text[at] if at < len(text) else ahead[at - len(text)]
            staying = [
                other
                for other in witnesses
                if other + depth < len(text) and text[other + depth] == token
            ]
            agreement = _agreement(len(staying), len(witnesses))
            witnesses = staying
            length_bin = bisect_right(_LENGTHS, length + depth)
            signals.append(_SIGNALS[origin][agreement][length_bin])
            ahead.append(token)
            origin = max(origin, Origin.COPY)
        return Draft.chain(ahead[len(ask.prefix) :], signals)


def _agreement(staying: int, witnesses: int) -> Agreement:
    if not witnesses:
        return Agreement.ALONE
    return Agreement.UNANIMOUS if staying == witnesses else Agreement.DISPUTED


class LookupDrafter:
    """Opens a `LookupSession` per request; holds nothing itself."""

    name = NAME
    free = True

    def open(self, slot: int, prompt: Sequence[Token], sampler: object) -> LookupSession:
        """Index the prompt: microseconds per token, nothing is decoded."""
        del slot, sampler
        return LookupSession(prompt)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One chain per ask."""
        return [cast("LookupSession", ask.session).propose(ask) for ask in asks]

    def close(self) -> None:
        """Nothing to free."""


def build() -> LookupDrafter:
    """The drafter, for `drafters.load`."""
    return LookupDrafter()
