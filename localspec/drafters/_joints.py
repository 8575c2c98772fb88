"""How a copied token joins the one before it: where copies go on, and where they break.

A copy goes on almost surely to the end of a word, and probably to the end of a clause. At the end
of a sentence it often breaks, and a question is hardly ever repeated. In answers of the default
pair only the length of the match tells more about which copied tokens are right.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from localspec.types import Token

NO_TOKEN = -1
"""Stands between texts."""


class Joint(IntEnum):
    """The kind of border between a token and the one before it."""

    PLAIN = 0
    INSIDE = 1  # of a word, or of an indentation: hardly a choice
    CLAUSE = 2  # the token ends a clause or a line
    ITEM = 3  # a word after a number, a capital or a gap: where lists and names differ
    STOP = 4  # the token ends a sentence
    NEXT = 5  # the token begins the next sentence
    OVER = 6  # the token ends a question: a question mark, or the end of a message


class Kind(IntEnum):
    """The kind of a token by its text: word, number, blank and so on."""

    SYMBOL = 0
    WORD = 1  # begins a word
    PART = 2  # goes on in one, or within a character
    CAPITAL = 3  # begins a word without a space before it
    DIGIT = 4
    SPACE = 5
    COMMA = 6
    STOP = 7
    LINE = 8  # has a line break
    LAST = 9  # a sentence's end and a line break
    ASKING = 10
    CONTROL = 11


_STOPS, _COMMAS, _QUESTIONS = frozenset(".!…。！"), frozenset(",;:，；：、"), frozenset("?？")  # noqa: RUF001 - Chinese
_SURE_AFTER = (Kind.WORD, Kind.PART, Kind.CAPITAL, Kind.LINE, Kind.SPACE)
_VARYING_AFTER = (Kind.DIGIT, Kind.CAPITAL, Kind.SPACE, Kind.CONTROL)


def kind(piece: bytes) -> Kind:  # noqa: PLR0911 - one line for each
    """The kind of a token that writes `piece`. One that writes nothing is a control token."""
    if not piece:
        return Kind.CONTROL
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        return Kind.PART
    words = text.strip()
    if words and words[-1] in _QUESTIONS:
        return Kind.ASKING
    if "\n" in text:
        return Kind.LAST if words and words[-1] in _STOPS else Kind.LINE
    if not words:
        return Kind.SPACE
    if words[0].isalpha():
        if text[0].islower():
            return Kind.PART
        return Kind.CAPITAL if text[0].isupper() else Kind.WORD
    if words[0].isdigit():
        return Kind.DIGIT
    if words[-1] in _STOPS:
        return Kind.STOP
    return Kind.COMMA if words[-1] in _COMMAS else Kind.SYMBOL


def joint(before: Kind, token: Kind) -> Joint:  # noqa: PLR0911 - one line for each
    """How a token of one kind joins one of another."""
    if token in {Kind.ASKING, Kind.CONTROL}:
        return Joint.OVER
    if token is Kind.LAST or (token is Kind.STOP and before is not Kind.DIGIT):
        return Joint.STOP
    if token in {Kind.COMMA, Kind.LINE} and before not in {Kind.SYMBOL, Kind.LINE}:
        return Joint.CLAUSE
    if before is Kind.STOP and token not in {Kind.DIGIT, Kind.PART, Kind.CAPITAL}:
        return Joint.NEXT
    if token is Kind.PART and before in _SURE_AFTER:
        return Joint.INSIDE
    if token is Kind.SPACE and before is Kind.LINE:
        return Joint.INSIDE
    if token in {Kind.WORD, Kind.CAPITAL} and before in _VARYING_AFTER:
        return Joint.ITEM
    return Joint.PLAIN


JOINTS = [[joint(before, token) for token in Kind] for before in Kind]
"""The joint for each kind of the token before, and each kind of the token."""


class Joints:
    """The joints of one vocabulary. Model lifetime; a token's kind is found when it is first met.

    Args:
        piece: The bytes that a token writes.
    """

    def __init__(self, piece: Callable[[Token], bytes]) -> None:
        self._piece = piece
        self._kinds: dict[Token, Kind] = {NO_TOKEN: Kind.CONTROL}

    def kind(self, token: Token) -> Kind:
        """The kind of the token by its text. Raises what `piece` raises."""
        found = self._kinds.get(token)
        if found is None:
            found = self._kinds[token] = kind(self._piece(token))
        return found

    def between(self, before: Token, token: Token) -> Joint:
        """How `token` joins the one before it."""
        return JOINTS[self.kind(before)][self.kind(token)]
