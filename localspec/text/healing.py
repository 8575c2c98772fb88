"""Token healing: a word half typed is no word yet, so its letters are not read but written anew.

Its tokens are others than those of the whole word, and no model has learned to go on from them:
behind "    ret" stands " ret", which is no beginning of " return". Such an end is left out of the
prompt, the answer is held to begin with a token that begins with it, and that part is not told
again. This is the token healing of Lundberg and Ribeiro (guidance, 2023). A token that writes only
a part of it may not come first, since no model goes on from there: likely as " e" is, behind it
"nvironment" is not, but the whole word may have been.
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
        return line[-1] if words.go_on(line[-1].encode()) else ""
    data, at = line.encode(), 0
    for token in tokens(line):
        end = data[at:]
        if _is_text(end) and words.go_on(end):
            return end.decode()
        at += len(words.pieces[token])
    return ""


def _is_text(data: bytes) -> bool:
    """Whether no character is cut."""
    return data.decode(errors="ignore").encode() == data


class Held:
    """Lets an answer begin with a token that begins with what was typed. Request lifetime.

    Implements `types.Constraint`.

    Args:
        typed: A `half_typed` end.
        words: The model's tokens.
    """

    def __init__(self, typed: str, words: Words) -> None:
        self._begun = False
        self._first = np.zeros(words.n_vocab, dtype=np.bool_)
        self._first[words.beginning(typed.encode())] = True

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Allowed tokens after what was committed and `path`; None behind the first."""
        return None if self._begun or path else self._first

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """None: bytes are forced, and which token begins with them is the model's to say."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Tokens became part of the text."""
        self._begun = self._begun or bool(tokens)

    def check_end(self, tokens: Sequence[Token]) -> None:
        """It may end behind any tokens: what ends a text begins with nothing."""


def behind(piece: bytes, typed: bytes) -> bytes:
    """The part of a token behind what was typed; all of it where it writes something else."""
    return piece[len(typed) :] if _agree(piece, typed) else piece


def _agree(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)
