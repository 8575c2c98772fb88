"""Finds the part of a growing block that need not be drawn again, so that updates stay cheap.

Of a paragraph these are the lines that later text cannot change. A block that can only be drawn
whole, such as a table, is shown by its last rows until it is finished.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rich.text import Text

from localspec.cli import markdown
from localspec.cli.theme import Theme

ROWS = 24
"""Of a block with more rows, only this many at its end are drawn."""
_OPEN_LINES = 12
"""A paragraph of at most so many lines stays open: an unclosed mark may begin on any of them."""
_STUBBORN_LINES = 40
"""In a paragraph of more open lines, an unclosed mark is taken for plain text."""
_OPENER = re.compile(r"`|\*(?![\s*]|$)|(?<!\w)_+(?![\s_]|$)")
_FENCE = re.compile(r"^[ \t]*(?:[-*+>]|\d+[.)])?[ \t]*(?P<opener>(?:`{3,}|~{3,}).*)$", re.MULTILINE)
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d+[.)]) +")
_TABLE_RULE = re.compile(r"[ \t|:-]*-[ \t|:-]*")


def split_stable(source: str, width: int, theme: Theme) -> tuple[list[Text], str]:
    """Split an open paragraph into the lines that no longer change, and the source of the rest.

    The rest begins with `markdown.GOING_ON`, because it continues the same paragraph.
    """
    drawn = markdown.lines(source, width, theme)
    if len(drawn) <= _OPEN_LINES:
        return [], source
    start = len(markdown.GOING_ON) if source.startswith(markdown.GOING_ON) else 0
    ends = [word.end() for word in re.compile(r"\S+").finditer(source, start)]
    stubborn = len(drawn) > _STUBBORN_LINES
    for count in range(len(drawn) - 2, len(drawn) - _OPEN_LINES, -1 if stubborn else -4):
        words = sum(map(len, _words_by_line(drawn[:count])))
        if not 0 < words <= len(ends):
            continue
        head, rest = source[: ends[words - 1]], source[ends[words - 1] :].lstrip()
        if not stubborn and _OPENER.search(markdown.unmarked(head)):
            continue
        parted = [*markdown.lines(head, width, theme)]
        parted += markdown.lines(markdown.GOING_ON + rest, width, theme)
        if _words_by_line(parted) == _words_by_line(drawn):
            return list(drawn[:count]), markdown.GOING_ON + rest
    return [], source


def _words_by_line(lines: Sequence[Text]) -> list[list[str]]:
    return [line.plain.split() for line in lines]


def tail(source: str) -> str:
    """The last rows of a long block, below the line that names its item, table or code."""
    rows = source.split("\n")
    if len(rows) <= ROWS:
        return source
    cut, kept = rows[:-ROWS], textwrap.dedent("\n".join(rows[-ROWS:]))
    if _TABLE_RULE.fullmatch(rows[1]):
        return "\n".join([*rows[:2], kept])
    inside = _open_fence("\n".join(cut)) + kept
    if item := _ITEM.match(source):
        return f"{rows[0]}\n{textwrap.indent(inside, ' ' * len(item[0]))}"
    return inside


def may_end(rows: str) -> bool:
    """Whether a block can end among these rows: not all begin with the same character.

    All rows of a table do, for example. Where this misses an end, the block is printed when the
    next one has ended.
    """
    return len({row[0] for row in rows.split("\n") if row}) > 1


def _open_fence(source: str) -> str:
    """The row that opens the block of code in which `source` ends; "" if it ends in none."""
    opener = ""
    for row in _FENCE.finditer(source):
        if not opener:
            opener = row["opener"]
        elif opener.startswith(row["opener"].rstrip()):
            opener = ""
    return f"{opener}\n" if opener else ""
