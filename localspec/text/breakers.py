"""Texts that no repetition reaches over, in the tokens of one model. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from localspec.types import Token

MAX_TAIL = 20
"""Tokens of the rest of a text that a token begins: llama.cpp's."""


def breakers(
    texts: Iterable[str], pieces: Sequence[bytes], tokens: Callable[[str], list[Token]]
) -> dict[Token, list[tuple[Token, ...]]]:
    """By the token that a text begins with: those that follow it there, () if it has all of it.

    As llama.cpp finds them for DRY: a token that has the whole text in it, or ends with a beginning
    of it.

    Args:
        texts: None of them empty.
        pieces: What each token of the vocabulary writes.
        tokens: Tokenizes a text in which nothing is special.
    """
    found: dict[Token, list[tuple[Token, ...]]] = {}
    for text in texts:
        data = text.encode()
        rests: dict[int, tuple[Token, ...]] = {}
        for token, piece in enumerate(pieces):
            if data in piece:
                found.setdefault(token, []).append(())
                continue
            for length in range(1, min(len(piece), len(data) - 1) + 1):
                if not piece.endswith(data[:length]):
                    continue
                if length not in rests:
                    rest = data[length:].decode("utf-8", "replace")
                    rests[length] = tuple(tokens(rest)[:MAX_TAIL])
                found.setdefault(token, []).append(rests[length])
    return found
