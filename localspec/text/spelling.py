"""Finds the tokens that spell a text exactly, also where a tokenizer puts a blank before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.types import Token

_BEFORE = "\n"
"""A text put before one whose beginning a tokenizer would change: SentencePiece puts a blank before
the first character of its input, and the first token then spells that blank too."""


def spelled_by(
    text: str, tokenize: Callable[[str], list[Token]], piece: Callable[[Token], bytes]
) -> Sequence[Token] | None:
    """The tokens whose bytes are those of `text`; None where the tokenizer gives none."""
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
    """The last of `tokens` that together spell exactly `data`; None if none do."""
    end = b""
    for at in range(len(tokens) - 1, -1, -1):
        end = piece(tokens[at]) + end
        if len(end) >= len(data):
            return tokens[at:] if end == data else None
    return None
