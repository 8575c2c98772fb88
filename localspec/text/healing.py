"""Token healing: a half-typed word is removed from the prompt and generated again as whole tokens.

The tokens of half a word are not those of the whole word, and no model has learned to go on from
them: "    ret" ends with the token " ret", while the whole word is another token, " return". So the
half-typed end is left out of the prompt, the answer must begin with a token that begins with it,
and that part is not sent again. This is the token healing of Lundberg and Ribeiro (guidance, 2023).
A token that spells only a part of the end may not come first, since no model goes on from there:
" e" may be likely, but "nvironment" after it is not, although " environment" would have been.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localspec.types import Token

LOOKED_AT_CHARS = 128
"""The searched end of a line, in characters: the longest tokens that occur are shorter."""

_BLANKS = (" ", "\t")


class SortedVocabulary:
    """The tokens of one model in the order of their bytes. Model lifetime; any thread.

    They are sorted when they are first searched: a large vocabulary takes 60 ms, during which no
    other thread runs Python.

    Args:
        pieces: The bytes of each token; b"" for special ones, which begin no word.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.n_vocab = len(pieces)
        self.pieces = pieces

    @cached_property
    def _tokens(self) -> NDArray[np.int32]:
        words = (token for token, piece in enumerate(self.pieces) if piece)
        return np.array(sorted(words, key=self.pieces.__getitem__), dtype=np.int32)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return [self.pieces[token] for token in self._tokens]

    def beginning(self, text: bytes) -> NDArray[np.int32]:
        """The tokens that begin with `text`, including those that are equal to it."""
        first = bisect_left(self._sorted, text)
        size = len(text)
        after = bisect_right(self._sorted, text, lo=first, key=lambda piece: piece[:size])
        return self._tokens[first:after]

    def go_on(self, text: bytes) -> bool:
        """Whether a token begins with `text` and is longer."""
        place = bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


def half_typed(text: str, tokens: Callable[[str], list[Token]], words: SortedVocabulary) -> str:
    """The end of a text that is the beginning of a longer token; "" if there is none.

    The end begins where one of the text's tokens begins. Of several blanks it is the last one,
    which belongs to the next word's token. A text that ends with a line break has no such end.
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
    """Whether the bytes are whole UTF-8 characters."""
    return data.decode(errors="ignore").encode() == data


class TokenHealing:
    """Requires an answer to begin with a token that begins with the half-typed text.

    Request lifetime. Implements `types.Constraint`.

    Args:
        typed: A `half_typed` end.
        words: The model's tokens.
    """

    def __init__(self, typed: str, words: SortedVocabulary) -> None:
        self._begun = False
        self._first = np.zeros(words.n_vocab, dtype=np.bool_)
        self._first[words.beginning(typed.encode())] = True

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Allowed tokens after the committed text and `path`; None, for all, behind the first."""
        return None if self._begun or path else self._first

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """Nothing: the bytes are forced, but the model chooses the token that begins with them."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Record that tokens became part of the text."""
        self._begun = self._begun or bool(tokens)

    def check_end(self, tokens: Sequence[Token]) -> None:
        """Accept an end after any tokens: end tokens write nothing."""


def behind(piece: bytes, typed: bytes) -> bytes:
    """The part of a token after the half-typed text; the whole token where the two differ."""
    return piece[len(typed) :] if _agree(piece, typed) else piece


def _agree(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)
