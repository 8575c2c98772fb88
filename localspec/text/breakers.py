"""DRY's sequence breakers, texts that no repetition extends across, in one model's tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from localspec.types import Token

MAX_TAIL = 20
"""llama.cpp's limit of the tokens after the one in which a breaker begins."""


def breakers(
    texts: Iterable[str], pieces: Sequence[bytes], tokens: Callable[[str], list[Token]]
) -> dict[Token, list[tuple[Token, ...]]]:
    """Each token in which a breaker begins, with the tokens that must follow; () if none must.

    The rule is llama.cpp's for DRY: the first token contains the whole text, or ends with a
    beginning of it.

    Args:
        texts: The breakers, none of them empty.
        pieces: The bytes of each token of the vocabulary.
        tokens: Tokenizes a text without special tokens.
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
