"""The sink that shows an answer as Markdown while it grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic, thread_time

from rich.text import Text

from localspec.cli import growing, markdown
from localspec.cli.highlight import recent
from localspec.cli.render import printable
from localspec.cli.screen import Screen
from localspec.cli.theme import Theme, theme
from localspec.cli.thinking import CLOSE, OPEN, Divider
from localspec.client import End, Piece

REDRAW_SECONDS = 1 / 15
DRAWING_SHARE = 0.04
"""At most this share of a processor is spent on drawing, because the model needs it too."""
READING_SHARE = 0.01
"""The same limit for parsing a long block from its beginning, to see whether it has ended."""
WAITING_SHARE = 1 / 3
"""At most this share of the time passes in drawing: a slow, remote terminal is drawn less often."""
_CODE_LINES = 12
"""An open block of code is printed from so many lines on: the colours of fewer may be wrong."""
_FENCE = re.compile(r"(?P<opener>(?P<mark>`{3,}|~{3,})(?P<info>[^\n`]*)\n)")


class MarkdownSink:
    """Prints finished text once and redraws only the rest; thinking is dimmed, or counted.

    Nothing is drawn before the first text; `close` prints all that is left.
    """

    def __init__(
        self,
        screen: Screen,
        look: Theme | None = None,
        *,
        show_thinking: bool = True,
        clock: Callable[[], float] = monotonic,
        processor: Callable[[], float] = thread_time,
    ) -> None:
        self._screen = screen
        self._look = look or theme("auto")
        self._show_thinking = show_thinking
        self._clock, self._processor = clock, processor
        self._redraw_at = self._read_at = clock()
        self._reading_seconds = 0.0
        self._read = 0
        """The offset of the last row when a long block was last parsed."""
        self._divider = Divider()
        self._thoughts = ""
        self._thinking = False
        self._thought_words = 0
        self._open = ""
        self._apart = True
        """Whether a blank line comes before the open text."""
        self._fence = ""
        """The first line of an open block of code of which lines are printed already."""
        self._code = ""
        """The part of those printed lines that decides the colours of the next ones."""
        self._begun = False

    def write(self, piece: Piece) -> None:
        """Add text, and print the units that it finished."""
        parts = [(True, piece.text)] if piece.thinking else self._divider.feed(piece.text)
        self._add(parts)
        if self._clock() >= self._redraw_at:
            self._redraw()

    def close(self, end: End | None) -> None:  # noqa: ARG002  every sink is told
        """Print the unfinished rest."""
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
        began, began_busy, self._reading_seconds = self._clock(), self._processor(), 0.0
        if self._thinking:
            self._screen.draw(self._thought())
        else:
            self._screen.draw(self._grown())
        busy_seconds = self._processor() - began_busy - self._reading_seconds
        pause_seconds = max(
            REDRAW_SECONDS,
            busy_seconds / DRAWING_SHARE,
            (self._clock() - began) / WAITING_SHARE,
        )
        self._redraw_at = began + pause_seconds

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

    def _thought(self) -> Sequence[Text]:
        if self._show_thinking:
            *whole, last = self._folded(self._thoughts)
            if whole:
                self._screen.print(whole)
                self._thoughts = last.plain
            return [last]
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
        """The open text, cut into units; only `_set_apart` knows what is before the first one."""
        units = markdown.units(self._fence + self._open)
        return [replace(unit, apart=self._set_apart) for unit in units[:1]] + units[1:]

    @property
    def _set_apart(self) -> bool:
        return self._apart and not (self._code or self._open.startswith(markdown.GOING_ON))

    def _grown(self) -> Sequence[Text]:
        """Print finished units. Returns the lines of the open one; of a long one, its last rows."""
        if self._is_long:
            self._read_long()
        else:
            self._advance()
        if self._is_long:
            return markdown.lines(growing.tail(self._open), self._screen.width, self._look)
        return self._drawn(self._units())

    def _read_long(self) -> None:
        """Parse a long block again, if it may have ended and READING_SHARE allows it."""
        if self._clock() < self._read_at or not growing.may_end(self._open[self._read :]):
            return
        began = self._processor()
        self._advance()
        self._read = self._open.rfind("\n", 0, -1) + 1
        self._reading_seconds = self._processor() - began
        self._read_at = self._clock() + self._reading_seconds / READING_SHARE

    @property
    def _is_long(self) -> bool:
        return self._open.count("\n") > growing.ROWS

    def _advance(self) -> None:
        """Print all units but the last, and the lines of the last one that no longer change."""
        units = self._units()
        if len(units) > 1:
            self._print(units[:-1])
            self._open, self._apart = units[-1].source, units[-1].apart
        if units and units[-1].is_paragraph:
            self._advance_paragraph()
        else:
            self._advance_code()

    def _advance_paragraph(self) -> None:
        set_apart = self._set_apart
        lines, self._open = growing.split_stable(self._open, self._screen.width, self._look)
        if lines:
            self._screen.print([*([Text()] if self._begun and set_apart else []), *lines])
            self._begun = True

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
        self._code = recent(self._code + whole, markdown.language(found["info"]))
        self._open = code[len(whole) :]

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
