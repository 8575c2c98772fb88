"""Highlights code, and finds the earlier lines that decide the colours of further code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from rich.syntax import Syntax
from rich.text import Text

from localspec.cli.theme import Theme

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

_Kind: TypeAlias = tuple[str, ...]
"""The kind of a token as pygments names it: a path, such as Token.Literal.String."""
_TAB_COLUMNS = 4
_EVIDENCE_ROWS = 20
"""A lexer that began later is taken to be in the same state if it colours so many rows alike."""


def highlighted(code: str, language: str, theme: Theme) -> list[Text]:
    """Lines of code in the theme's colours; plain where the language is not known."""
    lexer = _lexer(language)
    if not code:
        return []
    if not (theme.pygments and lexer):
        return [Text(row) for row in code.removesuffix("\n").split("\n")]
    style = Syntax.get_theme(theme.pygments).get_style_for_token
    return [
        Text.assemble(*((value, style(kind)) for kind, value in row))
        for row in _read(lexer, code.removesuffix("\n") + "\n")
    ]


def recent(code: str, language: str) -> str:
    r"""The last lines of `code`, after which further code gets the same colours as after all of it.

    If a string or a comment is open that began further up, the line on which it began stands before
    them. `code` ends with "\n"; the result is empty only if `code` is.
    """
    rows = re.findall(r"[^\n]*\n", code)
    last, lexer = rows[-_EVIDENCE_ROWS:], _lexer(language)
    if lexer is None or len(rows) == len(last):
        return "".join(last)
    expected = list(_read(lexer, code))[-len(last) :]

    def tells(before: list[str]) -> bool:
        return list(_read(lexer, "".join(before + last)))[-len(last) :] == expected

    for before in ([], rows[:1]):  # the first row may be the one that the last call found
        if tells(before):
            return "".join(before + last)
    began, after = 0, len(rows) - len(last)
    while after - began > 1:
        middle = (began + after) // 2
        began, after = (middle, after) if tells(rows[middle : -len(last)]) else (began, middle)
    return "".join([rows[began], *last]) if tells([rows[began]]) else code


def _read(lexer: Lexer, code: str) -> Iterator[tuple[tuple[_Kind, str], ...]]:
    """The tokens of each row."""
    row: list[tuple[_Kind, str]] = []
    for kind, value in lexer.get_tokens(code):
        first, *others = value.split("\n")
        row.append((kind, first))
        for part in others:
            yield tuple((kind, text) for kind, text in row if text)
            row = [(kind, part)]


@cache
def _lexer(language: str) -> Lexer | None:
    return Syntax("", language, tab_size=_TAB_COLUMNS).lexer if language else None
