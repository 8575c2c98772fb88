"""Renders Markdown as lines of a terminal, without losing a word of it.

Text that other renderers hide is shown as it was written: HTML, links, images, entities, the
underscores around __init__. Where a rendering would still lose a letter, such as a cell beyond a
table's columns, the source of the block is shown. Lines of code are neither wrapped, padded nor
indented, so that code copied from the screen runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.cli.highlight import highlighted
from localspec.cli.theme import Theme

_HIDING = (
    "html_block", "html_inline", "link", "image", "autolink", "entity", "reference", "text_join",
)  # fmt: skip
_RULE_COLUMNS = 40
_LEAST_COLUMNS = 8
"""Nesting never leaves a text fewer columns than this."""
_PLAIN_ESCAPES = frozenset("()[]{}")
r"""Behind a backslash these are TeX: \(x\) is shown as it is, \* as *."""
GOING_ON = "\u2060 "
"""Begins a source that continues a paragraph: a word without width, which is not shown."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").disable(_HIDING)


@cache
def _outline() -> MarkdownIt:
    """The parser for blocks alone; inline text is not parsed."""
    return MarkdownIt("commonmark").enable("table").disable([*_HIDING, "inline"])


@dataclass(frozen=True, slots=True)
class Unit:
    """A block, or one item of a list, printed at once; with `apart` after a blank line."""

    source: str
    apart: bool
    is_paragraph: bool = False


def units(text: str) -> list[Unit]:
    """Cut `text` where blocks and items of top-level lists begin.

    All but the last are finished: later text cannot change their meaning.
    """
    rows = re.findall(r"[^\n]*\n|[^\n]+", text)  # not splitlines, which knows more line ends
    starts = list(_starts(_outline().parse(text)))
    if not starts:
        return []
    ends = [start for start, *_ in starts[1:]] + [len(rows)]
    found = []
    for (start, joined, kind), end in zip(starts, ends, strict=True):
        blank = start > 0 and not rows[start - 1].strip()
        is_paragraph = kind == "paragraph_open"
        found.append(Unit("".join(rows[start:end]), blank or not joined, is_paragraph))
    return found


def _starts(tokens: Sequence[Token]) -> Iterator[tuple[int, bool, str]]:
    """First lines of units, whether each goes on with the list before it, and its token."""
    first = False
    for token in tokens:
        if token.map is None or token.nesting < 0:
            continue
        if token.level == 0 and token.type.endswith("_list_open"):
            first = True
        elif token.level == 0 or (token.level == 1 and token.type == "list_item_open"):
            yield token.map[0], token.level == 1 and not first, token.type
            first = False


def fences(text: str) -> list[str]:
    """The blocks of code in an answer, in order."""
    return [t.content for t in _parser().parse(text) if t.type in {"fence", "code_block"}]


def language(info: str) -> str:
    """The language named in the first line of a block of code."""
    return (info.split() or [""])[0]


@lru_cache(maxsize=4)
def lines(source: str, width: int, theme: Theme, code_before: str = "") -> Sequence[Text]:
    """One unit as lines without newlines; only code and sources may be longer than `width`.

    The result is cached and given to several callers, which must not change it.

    `code_before` is code of the same block that is on the screen already, or the part of it that
    decides the colours of further lines. With it the block's label is left out.
    """
    tree = SyntaxTreeNode(_parser().parse(source))
    drawn = _Painter(theme, code_before).blocks(tree.children, width)
    if code_before or _holds("".join(line.plain for line in drawn), source):
        return drawn
    return [Text(line) for line in source.rstrip("\n").split("\n")]


def unmarked(source: str) -> str:
    """The text of a paragraph with Markdown's marks as literal characters."""
    inline = (child for token in _parser().parse(source) for child in token.children or ())
    return "".join(child.content if child.type == "text" else "x" for child in inline)


def folded(text: Text, width: int) -> list[Text]:
    """Fold lines to at most `width` columns."""
    return list(text.wrap(_ruler(), max(width, 1), tab_size=8)) or [Text()]


def _holds(shown: str, source: str) -> bool:
    """Whether all letters and digits of the source are shown, in whatever order (table columns)."""
    return not Counter(_letters(source)) - Counter(_letters(shown))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


class _Painter:
    """Draws the blocks of one unit."""

    def __init__(self, theme: Theme, code_before: str) -> None:
        self._theme = theme
        self._code_before = code_before

    def blocks(self, nodes: Sequence[SyntaxTreeNode], width: int) -> list[Text]:
        """Blocks below each other, a blank line between them unless a list is tight."""
        drawn: list[Text] = []
        for node in nodes:
            tight = node.type == "paragraph" and node.hidden
            inside = node.type.endswith("_list") and node.level > 0
            if drawn and not tight and not inside:
                drawn.append(Text())
            drawn += self._block(node, max(width, _LEAST_COLUMNS))
        return drawn

    def _block(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        painters = {
            "paragraph": self._wrapped,
            "heading": self._wrapped,
            "fence": self._code,
            "code_block": self._code,
            "bullet_list": self._list,
            "ordered_list": self._list,
            "blockquote": self._quote,
            "table": self._table,
            "hr": self._rule,
        }
        return painters[node.type](node, width)

    def _wrapped(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        style = self._theme.heading if node.type == "heading" else ""
        text = self._inline(node.children[0], style) if node.children else Text()
        if text.plain.startswith(GOING_ON):
            text = text[len(GOING_ON) :]
        return folded(text, width)

    def _quote(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        bar = ("│ ", self._theme.aside)
        return [Text.assemble(bar, line) for line in self.blocks(node.children, width - 2)]

    def _rule(self, _node: SyntaxTreeNode, width: int) -> list[Text]:
        return [Text("─" * min(width, _RULE_COLUMNS), style=self._theme.aside)]

    def _code(self, node: SyntaxTreeNode, _width: int) -> list[Text]:
        before = self._code_before
        code = highlighted(before + node.content, language(node.info), self._theme)
        code = code[before.count("\n") :]
        if before or not node.info.strip():
            return code
        return [Text(node.info.strip(), style=self._theme.aside), *code]

    def _list(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        drawn: list[Text] = []
        for item in node.children:
            mark = f"{item.info}{item.markup} " if item.info else "• "
            body = self._item(item, width - len(mark))
            loose = any(child.type == "paragraph" and not child.hidden for child in item.children)
            if drawn and loose:
                drawn.append(Text())
            drawn += _hung(mark, body)
        return drawn

    def _item(self, item: SyntaxTreeNode, width: int) -> list[Text | _Flush]:
        """Lines of an item; those of code keep the left edge of the screen."""
        body: list[Text | _Flush] = []
        for child in item.children:
            if body and (child.type == "paragraph" and not child.hidden):
                body.append(Text())
            drawn = self._block(child, max(width, _LEAST_COLUMNS))
            flush = child.type in {"fence", "code_block"}
            body += [_Flush(line) for line in drawn] if flush else drawn
        return body

    def _table(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        rows = [
            [
                self._inline(cell.children[0], "") if cell.children else Text()
                for cell in row.children
            ]
            for part in node.children
            for row in part.children
        ]
        table = Table(box=SIMPLE, show_edge=False, pad_edge=False, header_style=self._theme.strong)
        for cell, heading in zip(node.children[0].children[0].children, rows[0], strict=True):
            side = re.search(r"right|center", str(cell.attrs.get("style", "")))
            justify = "right" if side and side[0] == "right" else "center" if side else "left"
            table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in rows[1:]:
            table.add_row(*row)
        drawn = _ruler().render_lines(table, _ruler().options.update_width(width), pad=False)
        return [_joined(line) for line in drawn]

    def _inline(self, node: SyntaxTreeNode, style: str) -> Text:
        text = Text(style=style)
        self._append(text, node.children, "")
        return text

    def _append(self, text: Text, nodes: Sequence[SyntaxTreeNode], style: str) -> None:
        for node in nodes:
            match node.type:
                case "text":
                    text.append(node.content, style)
                case "text_special":
                    escape = node.content in _PLAIN_ESCAPES
                    text.append(node.markup if escape else node.content, style)
                case "softbreak" | "hardbreak":
                    text.append("\n")
                case "code_inline":
                    text.append(node.content, f"{style} {self._theme.code}".strip())
                case "em" | "strong":
                    how = self._theme.strong if node.type == "strong" else self._theme.emphasis
                    mark = node.markup if node.markup.startswith("_") else ""
                    both = f"{style} {how}".strip()
                    text.append(mark, both)
                    self._append(text, node.children, both)
                    text.append(mark, both)
                case _:
                    text.append(node.content, style)


@dataclass(frozen=True, slots=True)
class _Flush:
    """A line of code, which is not indented."""

    line: Text


def _hung(mark: str, body: list[Text | _Flush]) -> list[Text]:
    """Put the mark before the first line, and indent the others by its width, except code."""
    drawn: list[Text] = []
    if not body or isinstance(body[0], _Flush):
        drawn.append(Text(mark.rstrip()))
        mark = " " * len(mark)
    for line in body:
        if isinstance(line, _Flush) or (drawn and not line.plain):
            drawn.append(line.line if isinstance(line, _Flush) else line)
        else:
            drawn.append(Text.assemble(mark, line))
        mark = " " * len(mark)
    return drawn


def _joined(segments: Sequence[object]) -> Text:
    text = Text()
    for segment in segments:
        text.append(segment.text, segment.style)  # type: ignore[attr-defined]
    text.rstrip()
    return text


@cache
def _ruler() -> Console:
    """The console by which rich measures widths; nothing is printed on it."""
    return Console(color_system=None, force_terminal=False, legacy_windows=False)
