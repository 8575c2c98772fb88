"""Ends thoughts at their limit, or when told to, by forcing the format's closing mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.types import Constraint, Token


class Checked(Constraint, Protocol):
    """A constraint that knows whether an answer may end."""

    def check_end(self, tokens: Sequence[Token]) -> None:
        """Checks that the answer may end after `tokens`, which are not committed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one format's thoughts: `opening` and `closing` in bytes, `ends` in tokens."""

    opening: bytes
    closing: bytes
    ends: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an answer is: `before` thoughts, inside of them, or behind; and what it last wrote.

    `wrote` has no blanks from before thoughts. `count` is the number of tokens of all thoughts so
    far, `forced` the number of the closing mark's tokens with which the text ends.
    """

    before: bool
    inside: bool
    count: int = 0
    forced: int = 0
    wrote: bytes = b""


_WHOLE_CHARS = 4
"""Bytes of the longest character."""
_BITS, _GOES_ON = 0xC0, 0x80
"""A mask for the first two bits of a byte, and their value in a byte that continues a character."""


class ThoughtLimit:
    """Lets an answer think for at most `most` tokens; implements `types.Constraint`.

    What is allowed depends on the text alone, so drafts change nothing. The closing mark is not
    forced inside of a character. If the model has begun the mark itself, only the rest is forced.

    Args:
        most: Tokens of thoughts, marks not counted; None for no limit until `end` is called.
        marks: The format's marks.
        begun: Whether the prompt ends inside of thoughts.
        piece: The bytes of a token, marks spelled out.
        n_vocab: Number of tokens.
        inner: The answer's grammar, if it has one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that one limit depends on
        self,
        most: int | None,
        marks: Marks,
        begun: bool,  # noqa: FBT001 - a fact of the prompt
        piece: Callable[[Token], bytes],
        n_vocab: int,
        inner: Checked | None = None,
    ) -> None:
        self._most, self._marks, self._piece, self._inner = most, marks, piece, inner
        self._n_vocab = n_vocab
        self._tail = max(len(marks.closing), _WHOLE_CHARS)
        self._place = _Place(before=not begun, inside=begun)

    def end(self) -> None:
        """End thoughts now; any that begin later are closed at once."""
        self._most = 0

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Allowed tokens after the committed text and `path`: one where the mark is forced."""
        place = self._after(path)
        if not self._forcing(place):
            return self._inner.mask(path) if self._inner else None
        allowed = np.zeros(self._n_vocab, dtype=np.bool_)
        allowed[self._marks.ends[place.forced]] = True
        return allowed

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """The rest of the closing mark where it is forced, otherwise what the grammar forces."""
        place = self._after(path)
        if self._forcing(place):
            return self._marks.ends[place.forced :]
        return self._inner.forced(path) if self._inner else ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Advance over tokens that became part of the text."""
        self._place = self._after(tokens)
        if self._inner:
            self._inner.commit(tokens)

    def check_end(self, tokens: Sequence[Token]) -> None:
        """Check that the answer may end; without a grammar it may. Raises GrammarError."""
        if self._inner:
            self._inner.check_end(tokens)

    def _forcing(self, place: _Place) -> bool:
        over = self._most is not None and place.count >= self._most
        return place.inside and over and _whole(place.wrote)

    def _after(self, path: Sequence[Token]) -> _Place:
        place = self._place
        for token in path:
            if not (place.before or place.inside):
                break
            place = self._next(place, token)
        return place

    def _next(self, place: _Place, token: Token) -> _Place:
        wrote = place.wrote + self._piece(token)
        if place.before:
            said, opening = wrote.lstrip(), self._marks.opening
            if said.startswith(opening):
                return _Place(before=False, inside=True, count=place.count)
            return replace(place, before=opening.startswith(said), wrote=said)
        if self._marks.closing in wrote:
            return _Place(before=True, inside=False, count=place.count)  # it may think again
        ends, at = self._marks.ends, place.forced
        begun = at + 1 if token == ends[at] else int(token == ends[0])
        return replace(
            place, count=place.count + 1, forced=begun % len(ends), wrote=wrote[-self._tail :]
        )


def _whole(data: bytes) -> bool:
    """Whether the bytes end with a whole character; True for bytes that are not UTF-8."""
    last = data[-_WHOLE_CHARS:]
    starts = (at for at in range(len(last)) if last[at] & _BITS != _GOES_ON)
    begun = last[max(starts, default=0) :]
    try:
        begun.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return True
