"""Long texts in short pieces of work, so that other threads run Python between them.

A regular expression over megabytes is one instruction to Python: while it lasts no other thread
gets on, not even one that only wants to start the next decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

WINDOW_CHARS = 1 << 16
"""Of one piece of work: about a millisecond."""


def finds(pattern: re.Pattern[str], text: str, reach: int) -> Iterator[re.Match[str]]:
    """The matches of `pattern.finditer(text)`, for a pattern whose matches are not empty.

    Args:
        pattern: Whether it matches at a place depends on at most `reach` characters from there on,
            or on the end of the text.
        text: However long.
        reach: See `pattern`.
    """
    at, size = 0, len(text)
    while at < size:
        end = min(at + WINDOW_CHARS, size)
        found = pattern.search(text, at, min(end + reach, size))
        if found is None or found.start() >= end:
            at = end
        elif sure := pattern.match(text, found.start()):  # the end of a window is not the text's
            yield sure
            at = sure.end()
        else:
            at = found.start() + 1


def substituted(
    pattern: re.Pattern[str], text: str, reach: int, by: Callable[[re.Match[str]], str]
) -> str:
    """The text with every place that `finds` gives replaced."""
    pieces: list[str] = []
    at = 0
    for found in finds(pattern, text, reach):
        pieces += (text[at : found.start()], by(found))
        at = found.end()
    return "".join((*pieces, text[at:])) if pieces else text
