"""Applies regular expressions to long texts in short steps, so that other threads get to run.

A regular expression is one instruction to Python: over megabytes it would block all other threads,
even one that only wants to start the next decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

WINDOW_CHARS = 1 << 16
"""Characters of one step, about a millisecond."""


def finds(pattern: re.Pattern[str], text: str, reach: int) -> Iterator[re.Match[str]]:
    """The matches of `pattern.finditer(text)`, for a pattern without empty matches.

    Args:
        pattern: Whether it matches at a place, and how, must depend only on the next `reach`
            characters and on where the text ends.
        text: Any length.
        reach: See `pattern`.
    """
    at, size = 0, len(text)
    while at < size:
        end = min(at + WINDOW_CHARS, size)
        found = pattern.search(text, at, min(end + reach, size))
        if found is None or found.start() >= end:
            at = end
        elif sure := pattern.match(text, found.start()):  # a window's end may look like the text's
            yield sure
            at = sure.end()
        else:
            at = found.start() + 1


def substituted(
    pattern: re.Pattern[str], text: str, reach: int, by: Callable[[re.Match[str]], str]
) -> str:
    """The text with each match of `finds` replaced."""
    pieces: list[str] = []
    at = 0
    for found in finds(pattern, text, reach):
        pieces += (text[at : found.start()], by(found))
        at = found.end()
    return "".join((*pieces, text[at:])) if pieces else text
