"""The sink that shows an answer as Markdown while it grows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from rich.console import Console
from rich.text import Text

from localspec.cli import markdown
from localspec.cli.render import printable
from localspec.cli.screen import Screen
from localspec.cli.theme import Theme, theme
from localspec.cli.thinking import CLOSE, OPEN, Divider
from localspec.client import End, Piece

REDRAW_SECONDS = 1 / 15
DRAWING_SHARE = 0.04
"""At most this share of time goes into drawing: the processor is the model's, too."""
_CODE_LINES = 12
"""So many lines of an open block of code are printed at once: fewer have no colours to rely on."""
_FENCE = re.compile(r"(?P<opener>(?P<mark>`{3,}|~{3,})[^\n`]*\n)")


class MarkdownSink:
    """Prints what is finished once and draws only the rest again; thinking is dimmed, or counted.

    Nothing is drawn before the first text, and `close` leaves nothing behind.
    """

    def __init__(
        self,
        console: Console,
        look: Theme | None = None,
        *,
        show_thinking: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._screen = Screen(console)
        self._look = look or theme("auto")
        self._show_thinking = show_thinking
        self._clock = clock
        self._redraw_at = clock()
        self._divider = Divider()
        self._thoughts = ""
        self._thinking = False
        self._thought_words = 0
        self._open = ""
        self._apart = True
        """Whether a blank line comes before what is open."""
        self._fence = ""
        """The first line of the open block of code, of which `_code` is printed already."""
        self._code = ""
        self._begun = False

    def write(self, piece: Piece) -> None:
        """Add text; print what it finished."""
        parts = [(True, piece.text)] if piece.thinking else self._divider.feed(piece.text)
        self._add(parts)
        if self._clock() >= self._redraw_at:
            self._redraw()

    def close(self, end: End | None) -> None:  # noqa: ARG002  every sink is told
        """Print what is still open, whole or not."""
        self._add(self._divider.close())
        if self._thinking:
            self._stop_thinking("")
        self._print(self._units())
        self._open = ""

    def _add(self, parts: list[tuple[bool, str]]) -> None:
        for thinking, text in parts:
            if thinking:
                self._think(printable(text))
                continue
            if self._thinking:
                self._stop_thinking(CLOSE)
            inside = self._open or self._fence
            self._open += printable(text if inside else text.lstrip("\n"))

    def _redraw(self) -> None:
        start = self._clock()
        if self._thinking:
            self._screen.draw(self._thought())
        else:
            self._advance()
            self._screen.draw(self._drawn(self._units()))
        spent_seconds = self._clock() - start
        self._redraw_at = start + max(REDRAW_SECONDS, spent_seconds / DRAWING_SHARE)

    # What is being thought

    def _think(self, text: str) -> None:
        self._thought_words += len(text.split())
        if not self._thinking:
            self._thinking = self._begun = True
            if self._show_thinking:
                self._screen.print([self._aside(OPEN)])
            text = text.lstrip("\n")
        self._thoughts += text
        whole, newline, self._thoughts = self._thoughts.rpartition("\n")
        if newline and self._show_thinking:
            self._screen.print(self._folded(whole))

    def _thought(self) -> list[Text]:
        if self._show_thinking:
            return self._folded(self._thoughts)
        return [self._aside(f"thinking: {self._thought_words} words")]

    def _stop_thinking(self, tag: str) -> None:
        if self._show_thinking:
            rest = self._folded(self._thoughts) if self._thoughts.strip() else []
            self._screen.print([*rest, *([self._aside(tag)] if tag else [])])
        else:
            said = f"thought {self._thought_words} words; /think show shows them"
            self._screen.print([self._aside(said)])
        self._thinking, self._thoughts = False, ""

    def _folded(self, text: str) -> list[Text]:
        return markdown.folded(self._aside(text), self._screen.width)

    def _aside(self, text: str) -> Text:
        return Text(text, style=self._look.aside)

    # What is being answered

    def _units(self) -> list[markdown.Unit]:
        """What is open, cut where units begin; the first one is set apart as was found before."""
        units = markdown.units(self._fence + self._open)
        return [replace(unit, apart=self._set_apart) for unit in units[:1]] + units[1:]

    @property
    def _set_apart(self) -> bool:
        return self._apart and not self._code

    def _advance(self) -> None:
        """Print what is finished: units that another follows, lines of an open block of code."""
        units = self._units()
        if len(units) > 1:
            self._print(units[:-1])
            self._open, self._apart = units[-1].source, units[-1].apart
        self._advance_code()

    def _advance_code(self) -> None:
        found = _FENCE.match(self._fence + self._open)
        if not found:
            return
        code = (self._fence + self._open)[found.end() :]
        whole = code[: code.rfind("\n") + 1]
        closed = re.search(rf"^ {{0,3}}{found['mark']}", whole, re.MULTILINE)
        if closed or whole.count("\n") < _CODE_LINES:
            return
        source = found["opener"] + whole
        drawn = self._drawn([markdown.Unit(source, self._set_apart)])
        self._screen.print(drawn)
        self._begun, self._fence = True, found["opener"]
        self._code, self._open = self._code + whole, code[len(whole) :]

    def _drawn(self, units: list[markdown.Unit]) -> list[Text]:
        drawn: list[Text] = []
        code = self._code
        for unit in units:
            if (self._begun or drawn) and unit.apart:
                drawn.append(Text())
            drawn += markdown.lines(unit.source, self._screen.width, self._look, code)
            code = ""
        return drawn

    def _print(self, units: list[markdown.Unit]) -> None:
        drawn = self._drawn(units)
        self._screen.print(drawn)
        self._begun = self._begun or bool(drawn)
        self._fence = self._code = ""
        self._apart = True
