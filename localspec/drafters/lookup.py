"""Lookup: drafts copied from where the text's end occurred before.

It needs no model: it proposes the continuation of the longest earlier occurrence of the text's end
in prediction, prompt and output. Of equally long ones it takes that in the prediction, else the
latest. A copy that is being accepted stays at its place. After an edit its continuation is looked
for near the place where it broke, and where the same text comes again the same edit is expected.

A prediction is a text that the client expects as the answer, such as a file before an edit. The
copy begins with it; what is copied from it has a source of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from localspec.drafters._beliefs import NAME, Agreement, CopiedText, Origin, signal
from localspec.drafters._edits import Edit, Edits, Path, between
from localspec.drafters._joints import JOINTS, NO_TOKEN, Joint, Joints, Kind
from localspec.drafters._occurrences import Match, Occurrences
from localspec.types import Draft, DraftRequest, DraftSession, Proposing, Signal, Token

_END = NO_TOKEN
"""Stands after the prediction in the index: no copy runs on into the prompt."""

_FIRM_TOKENS = 32
"""A copy this long needs no search for a better one, which would be slow in periodic text."""
_REACH_TOKENS = 48
"""How far behind a broken copy its continuation is looked for: a few deleted lines."""
_PATIENCE_TOKENS = 48
"""An insertion longer than this has left the old text; a short match near it means nothing."""
_DRIFT_TOKENS = 3
"""Substitutions up to this long often are as long as what they replaced, as a renamed word is."""
_PROOF_TOKENS = 5
"""A copy that predicted fewer tokens was a guess; its failure must not hide where a copy broke."""
_UNDERSTOOD_TOKENS = 2
"""Tokens that a copy found again must predict before the text between is taken for an edit."""
_WITNESSES = 8
"""The most other occurrences whose continuation is compared; more would change nothing."""


@dataclass(slots=True)
class _Cursor:
    """The place being copied: the text is expected to go on along `path`.

    `length` tokens before it agree, `proven` of which the copy has predicted. It was found after
    `edit`, if there was one.
    """

    place: CopiedText
    path: Path
    length: int
    origin: Origin
    sampled: bool
    proven: int = 0
    edit: Edit | None = None

    @property
    def position(self) -> int:
        """Where the copied text goes on."""
        return self.path.position

    def signal(
        self,
        agreement: Agreement = Agreement.ALONE,
        joint: Joint = Joint.PLAIN,
        depth: int = 0,
        path: Path | None = None,
    ) -> Signal:
        """The signal of the token `depth` places after the next one, at which `path` has arrived.

        A token of an edit counts as copied from the output, where the edit was made before.
        """
        place, origin = self.place, self.origin
        if depth and origin < Origin.COPY:
            origin = Origin.COPY
        if path is not None and path.edit is not None:
            place, origin = CopiedText.OUTPUT, Origin.COPY if path.made else Origin.EDIT
        return signal((self.sampled, place, origin, agreement, joint), self.length + depth)


class LookupSession:
    """The index of one request's texts and the place it is copying from.

    The index holds the prediction, `_END`, then prompt and output. It is made by `read`: until all
    is read nothing is proposed.
    """

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
        self._seen = Occurrences()
        self._unread = [*prediction, _END, *prompt]
        self._end = len(prediction)
        self._start = len(self._unread)
        self._entering = self._end > 0
        self._cursor: _Cursor | None = None
        self._broken_at: int | None = None
        self._since_break = 0
        self._edits = Edits()

    @property
    def pending(self) -> int:
        """Tokens that are not in the index yet."""
        return len(self._unread)

    def read(self, most: int) -> int:
        """Index at most `most` more tokens and return their number. Microseconds for each."""
        part = self._unread[:most]
        del self._unread[:most]
        self._seen.extend(part)
        return len(part)

    def commit(self, tokens: Sequence[Token]) -> None:
        """Append `tokens` and move the cursor along them, or break it where they differ."""
        if self._unread:
            self._unread += tokens
            return
        self._seen.extend(tokens)
        for token in tokens:
            self._since_break += 1
            if self._cursor is not None:
                self._advance(self._cursor, token)

    def propose(self, request: DraftRequest) -> Draft:
        """The continuation of the best place known, after `request.prefix` if there is one."""
        if request.budget <= 0 or self._unread or not self._seen.text:
            return Draft()
        cursor, matches = self._cursor, []
        if request.prefix.tokens:
            matches = self._search(request.prefix.tokens)
            cursor = self._predicted(self._longest(matches))
        else:
            if cursor is None or cursor.length < _FIRM_TOKENS:
                matches = self._search()
                cursor = self._likeliest(self._longest(matches))
            cursor = self._cursor = self._predicted(cursor)
        return (
            Draft()
            if cursor is None
            else self._copy(cursor, self._others(cursor, matches), request)
        )

    def close(self) -> None:
        """Forget the text."""
        self._seen, self._unread = Occurrences(), []
        self._cursor = None

    def _advance(self, cursor: _Cursor, token: Token) -> None:
        """Move the cursor past `token`, which was written, or break the copy."""
        text, path = self._seen.text, cursor.path
        if path.edit is not None and path.token(text) != token:
            self._edits.forget(path.edit)
            path.leave_edit()
        if path.token(text) == token:
            self._follow(cursor)
            return
        if cursor.proven >= _PROOF_TOKENS:
            self._broken_at, self._since_break = path.position, 1 + path.made
        self._cursor = None

    def _follow(self, cursor: _Cursor) -> None:
        """Move the cursor on: the text agreed with it."""
        cursor.path.go_on(self._seen.text, self._edits)
        cursor.length += 1
        cursor.proven += 1
        cursor.origin = max(cursor.origin, Origin.COPY)
        if cursor.edit is not None and cursor.proven == _UNDERSTOOD_TOKENS:
            self._edits.learn(cursor.edit)
        if cursor.proven >= _PROOF_TOKENS and cursor.place is CopiedText.PREDICTION:
            self._entering = False
        if cursor.position == self._end:
            self._cursor = None

    def _search(self, ahead: Sequence[Token] = ()) -> list[Match]:
        """Earlier occurrences of the end of the text + `ahead` that something follows."""
        return [match for match in self._seen.search(ahead) if match.position != self._end]

    def _likeliest(self, found: _Cursor | None) -> _Cursor | None:
        """The likeliest place to copy from; of equal ones that which is being copied already."""
        places = (self._cursor, self._way_in(), self._way_back(), found)
        known = [place for place in places if place is not None]
        best = max(known, key=lambda place: place.signal().prior, default=None)
        if best is not None and best is not self._cursor:
            best.edit = self._edit_before(best)
        return best

    def _longest(self, matches: Sequence[Match]) -> _Cursor | None:
        """The longest match; of several the one in the prediction, else the latest."""
        best = max(  # of equals the first, which is the latest
            matches,
            key=lambda at: (at.length, at.position < self._end),
            default=None,
        )
        return None if best is None else self._at(*best, Origin.FRESH)

    def _predicted(self, cursor: _Cursor | None) -> _Cursor | None:
        """The cursor, moved into the prediction where that goes on in the same way."""
        if (
            cursor is None
            or cursor.place is CopiedText.PREDICTION
            or cursor.path.made
            or not self._end
        ):
            return cursor
        there = self._seen.repeat(cursor.position, self._end)
        if there is None:
            return cursor
        moved = self._at(there, cursor.length, cursor.origin)
        return replace(moved, proven=cursor.proven, edit=cursor.edit)

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

    def _edit_before(self, cursor: _Cursor) -> Edit | None:
        """The edit that the answer made between a broken copy and the cursor."""
        broken, written = self._broken_at, self._since_break
        if broken is None or self._text_of(broken) is not cursor.place:
            return None
        common = min(cursor.length, written)
        return between(self._seen.text, broken, written, cursor.position, common)

    def _others(self, cursor: _Cursor, matches: Sequence[Match]) -> list[int]:
        """Other matches in the text that the cursor copies from.

        Those in another text are left out: the same file in prompt and prediction is one witness.
        """
        others = [
            match.position
            for match in matches
            if match.position != cursor.position and self._text_of(match.position) is cursor.place
        ]
        return others[:_WITNESSES]

    def _text_of(self, position: int) -> CopiedText:
        if position < self._end:
            return CopiedText.PREDICTION
        return CopiedText.PROMPT if position < self._start else CopiedText.OUTPUT

    def _at(self, position: int, length: int, origin: Origin) -> _Cursor:
        path = Path(position, self._edits.at(self._seen.text, position))
        return _Cursor(self._text_of(position), path, length, origin, self._sampled)

    def _copy(self, cursor: _Cursor, witnesses: list[int], request: DraftRequest) -> Draft:
        text, joints = self._seen.text, self._joints
        path = replace(cursor.path)
        ahead = list(request.prefix.tokens)  # a copy may run over the end of the text into itself
        before = joints.kind(ahead[-1] if ahead else text[-1])
        signals: list[Signal] = []
        for depth in range(request.budget):
            token = path.token(text, ahead)
            if token == _END or not request.worth(signals):
                break
            if path.edit is not None:
                witnesses = []
            agreement, kind = Agreement.ALONE, joints.kind(token)
            if witnesses:
                staying = [
                    other
                    for other in witnesses
                    if other + depth < len(text) and text[other + depth] == token
                ]
                same = len(staying) == len(witnesses)
                agreement = Agreement.UNANIMOUS if same else Agreement.DISPUTED
                witnesses = staying
            signals.append(cursor.signal(agreement, JOINTS[before][kind], depth, path))
            ahead.append(token)
            path.go_on(text, self._edits)
            if kind is Kind.CONTROL:
                break  # nothing follows the end of a message
            before = kind
        return Draft.chain(ahead[len(request.prefix) :], signals)


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
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> LookupSession:
        """Begin with both texts, of which nothing is read yet."""
        del slot
        return LookupSession(prompt, prediction, joints=self._joints, sampled=not sampler.greedy)

    def read(self, session: DraftSession, most: int) -> int:
        """Index at most `most` more tokens and return their number."""
        return cast("LookupSession", session).read(most)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One chain per request."""
        return [cast("LookupSession", request.session).propose(request) for request in requests]

    def close(self) -> None:
        """Nothing to free."""


def build(*, piece: Callable[[Token], bytes]) -> LookupDrafter:
    """The drafter, for `drafters.load`. `piece` gives the bytes that a token writes."""
    return LookupDrafter(piece)
