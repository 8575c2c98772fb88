"""Token healing: a word half typed is no word yet, so its letters are not read but written anew.

Its tokens are others than those of the whole word, and no model has learned to go on from them:
behind "    ret" stands " ret", which is no beginning of " return". Such an end is left out of the
prompt, the answer is held to begin with exactly its bytes, and these are not told again. This is
the token healing of Lundberg and Ribeiro (guidance, 2023), over as many tokens as the bytes take,
and never to where no token goes on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.types import Token

LOOKED_AT_CHARS = 128
"""Of a line only its end is looked at: the longest tokens that are written have fewer."""

_BLANKS = (" ", "\t")


class Words:
    """The tokens of one model in the order of their bytes. Model lifetime; any thread.

    To sort a large vocabulary takes 60 ms, in which no other thread runs Python.

    Args:
        pieces: What each token writes; b"" for special ones, which are no beginning of a word.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.n_vocab = len(pieces)
        self.pieces = pieces
        order = sorted(
            (token for token, piece in enumerate(pieces) if piece), key=pieces.__getitem__
        )
        self._tokens = np.array(order, dtype=np.int32)
        self._sorted = [pieces[token] for token in order]

    def beginning(self, text: bytes) -> NDArray[np.int32]:
        """The tokens that begin with `text`, those that write no more among them."""
        first = bisect_left(self._sorted, text)
        size = len(text)
        after = bisect_right(self._sorted, text, lo=first, key=lambda piece: piece[:size])
        return self._tokens[first:after]

    def writing(self, text: bytes) -> NDArray[np.int32]:
        """The tokens that write `text` and nothing else."""
        return self._tokens[bisect_left(self._sorted, text) : bisect_right(self._sorted, text)]

    def go_on(self, text: bytes) -> bool:
        """Whether a token begins with `text` and writes more."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


def half_typed(text: str, tokens: Callable[[str], list[Token]], words: Words) -> str:
    """The end of a text with which a token may begin that goes on behind it; "" for none.

    It begins where one of the text's tokens does. Of blanks it is the last one, which is written
    with the word behind it. A line that has ended is whole.
    """
    line = text[max(text.rfind("\n") + 1, len(text) - LOOKED_AT_CHARS) :]
    if line.endswith(_BLANKS):
        return _held(line[-1], words)
    data, at = line.encode(), 0
    for token in tokens(line):
        end = data[at:].decode(errors="ignore")
        if len(end.encode()) == len(data) - at and _held(end, words):
            return end
        at += len(words.pieces[token])
    return ""


def _held(end: str, words: Words) -> str:
    """The end itself where a token goes on behind it, and tokens can write it; else ""."""
    data = end.encode()
    return end if words.go_on(data) and _written(data, words)[0] else ""


def _written(text: bytes, words: Words) -> list[bool]:
    """From which places on tokens can write the rest of a text, or more of it; from its end."""
    can = [False] * len(text) + [True]
    for at in reversed(range(len(text))):
        can[at] = words.beginning(text[at:]).size > 0 or any(
            can[end] and words.writing(text[at:end]).size for end in range(at + 1, len(text))
        )
    return can


class Held:
    """Lets an answer begin with what was typed, and then be anything. Request lifetime.

    Implements `types.Constraint`.

    Args:
        typed: A `half_typed` end.
        words: The model's tokens.
    """

    def __init__(self, typed: str, words: Words) -> None:
        self._data = typed.encode()
        self._words = words
        self._can = _written(self._data, words)
        self._committed = 0
        self._masks: dict[int, NDArray[np.bool_]] = {}

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Allowed tokens after what was committed and `path`; None behind what was typed.

        A path that leaves it is one that nobody takes: behind it everything is allowed.
        """
        at = self._committed
        for token in path if at < len(self._data) else ():
            piece = self._words.pieces[token]
            if not piece or not _agree(piece, self._data[at:]):
                return None
            at += len(piece)
        return self._mask(at) if at < len(self._data) else None

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """None: bytes are forced, and each may be written by several tokens."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Advance over tokens that became part of the text."""
        self._committed += sum(len(self._words.pieces[token]) for token in tokens)

    def check_end(self, tokens: Sequence[Token]) -> None:
        """It may end behind any tokens: no mask allows an end before what was typed is written."""

    def _mask(self, at: int) -> NDArray[np.bool_]:
        """Tokens that begin with what is left, or that it begins with and can go on behind."""
        if at not in self._masks:
            rest, words = self._data[at:], self._words
            allowed = np.zeros(words.n_vocab, dtype=np.bool_)
            allowed[words.beginning(rest)] = True
            for size in range(1, len(rest)):
                if self._can[at + size]:
                    allowed[words.writing(rest[:size])] = True
            self._masks[at] = allowed
        return self._masks[at]


def behind(piece: bytes, typed: bytes) -> bytes:
    """What a token writes behind what was typed; all of it where it writes something else."""
    return piece[len(typed) :] if _agree(piece, typed) else piece


def _agree(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)
