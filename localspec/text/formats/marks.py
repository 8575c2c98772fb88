"""Search patterns for the marks of a format, in an incoming text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.text.formats.parts import Format, Hole, Way
from localspec.text.formats.tape import BLANK

_LETTERS = 3
"""The fewest characters that count as the beginning of a mark that begins like a word: a cut answer
may end with fewer of them by chance."""


def opening(way: Way) -> str:
    """The mark with which calls of this way begin; "{" if they have none."""
    if way.opening:
        return begin(way.opening)
    first = way.call[0]
    return begin(first) if isinstance(first, str) else "{"


def likeness(form: Format) -> str:
    """A format in words; "like", because several families may write as the one that names it."""
    begins = f"calls begin with {opening(form.ways[0])}" if form.ways else ""
    like = "" if form.name == "generic" else f"like {form.name}'s"
    return ": ".join(filter(None, (like or form.name, begins)))


def begin(mark: str) -> str:
    """The first line of a mark, without an opening bracket of a list."""
    line = mark.strip(BLANK).partition("\n")[0].rstrip(BLANK)
    return line[:-1] if re.search(r"[>\]]\[$", line) else line


def inner_mark(way: Way) -> str:
    """The mark of one call within a mark around all calls; "" if there is none."""
    first = way.call[0]
    return begin(first) if way.opening and isinstance(first, str) else ""


def closings(way: Way) -> list[str]:
    """The marks that end one call."""
    found: list[str] = []
    for part in reversed(way.call):
        if isinstance(part, Hole):
            return found
        found += (
            [part] if isinstance(part, str) else (one for one in part.parts if isinstance(one, str))
        )
    return []


def searched(marks: Sequence[str]) -> tuple[re.Pattern[str] | None, frozenset[str]]:
    """A pattern for any of the marks, and all beginnings of marks, which `unfinished` looks for."""
    texts = sorted({mark for mark in marks if mark}, key=len, reverse=True)
    if not texts:
        return None, frozenset()
    begun = frozenset(text[:size] for text in texts for size in range(1, len(text)))
    return re.compile("|".join(map(re.escape, texts))), begun


def unfinished(text: str, begun: frozenset[str]) -> int:
    """Length of the longest suffix of `text` that may be the beginning of a mark."""
    longest = max(map(len, begun), default=0)
    for size in range(min(longest, len(text)), 0, -1):
        if text[-size:] in begun:
            return size
    return 0


def is_mark(text: str, held: int, last: str) -> bool:
    """Whether the end of a cut answer is the beginning of a mark."""
    begun = text[-held:]
    if not begun[0].isalpha() or (not last and held == len(text.lstrip(BLANK))):
        return True
    before = text[-held - 1 : -held]
    return held >= _LETTERS and not before.isalnum()
