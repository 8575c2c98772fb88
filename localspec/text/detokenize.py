"""Pieces of tokens become text: no character is ever cut in two, and its source stays known."""

from __future__ import annotations

import codecs


class Detokenizer:
    """The UTF-8 of one answer, piece by piece. Request lifetime.

    A character belongs to the piece that completed it. Bytes become U+FFFD only when what follows
    proves that they can never be a character; half a one at the end of an answer is left out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, piece: bytes) -> str:
        """The characters that `piece` completes; may be empty."""
        return self._decoder.decode(piece)
