"""Finds the tokens that spell a text exactly, also where a tokenizer puts a blank before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.types import Token

_BEFORE = "\n"
"""Stands before a text whose beginning a tokenizer would change: SentencePiece's puts a blank
before the first character of what it is given, and then that is not the text's."""


def spelled_by(
    text: str, tokenize: Callable[[str], list[Token]], piece: Callable[[Token], bytes]
) -> Sequence[Token] | None:
    """Returns tokens whose bytes are those of `text`; None where the tokenizer has none."""
    if not text:
        return ()
    data = text.encode()
    for given in (text, _BEFORE + text):
        if (found := _last(tokenize(given), data, piece)) is not None:
            return found
    return None


def _last(
    tokens: Sequence[Token], data: bytes, piece: Callable[[Token], bytes]
) -> Sequence[Token] | None:
    """Returns the last of `tokens`, as many as spell `data`; of the text before it none is left."""
    end = b""
    for at in range(len(tokens) - 1, -1, -1):
        end = piece(tokens[at]) + end
        if len(end) >= len(data):
            return tokens[at:] if end == data else None
    return None
