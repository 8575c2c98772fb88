"""Turns tokens' bytes into text, in whole characters."""

from __future__ import annotations

import codecs


class Detokenizer:
    """An incremental UTF-8 decoder of one answer. Request lifetime.

    A character belongs to the piece that completed it. Bytes become U+FFFD only when the following
    bytes prove that they are no character; an incomplete character at the end of an answer is
    dropped.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, piece: bytes) -> str:
        """The characters that `piece` completes; may be empty."""
        return self._decoder.decode(piece)
