"""The last lines of a terminal, drawn again in place while they grow.

A frame is lines that each end in a newline. To replace it, the cursor goes up by the rows that the
lines take now: a terminal that was made narrower meanwhile has folded them into more rows. Only
lines that changed are written, between the marks of a synchronized update, so that nothing flickers
over ssh or in tmux.

A row for typing may stand below the frame; the cursor is then in that row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, get_character_cell_size
from rich.console import Console
from rich.text import Text

from localspec.cli.render import Notice, printable

PROMPT = ">>> "
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_TAB_COLUMNS = 8
_QUEUED_LINES = 3
_SHARE = 0.5
"""The share of the screen that is drawn: it still fits if the window is made half as wide."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as it was written, and its visible text."""

    written: str
    shown: str

    def rows(self, width: int) -> int:
        """Rows that the line takes."""
        return _rows(self.shown, width)


@dataclass(frozen=True, slots=True)
class _Typed:
    """The row being typed: the text before the cursor, and behind it."""

    before: str
    after: str

    @property
    def written(self) -> str:
        """The text with its escape sequences, as it is sent to the terminal."""
        back = f"\x1b[{cell_len(self.after)}D" if self.after else ""
        return self.before + self.after + back


class Screen:
    """Prints lines for good, and shows others below them for a while. For any thread."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._drawn: list[_Line] = []
        self._queued: list[_Line] = []
        self._frame: list[_Line] = []
        """The lines that can be replaced: those drawn and those queued, as they were written."""
        self._typed: _Typed | None = None
        self._known: dict[tuple[object, ...], _Line] = {}
        """The lines last drawn, as they were written: most lines of the next frame are the same."""

    @property
    def width(self) -> int:
        """The terminal's present width in columns."""
        return max(self._console.width, 1)

    def print(self, lines: Sequence[Text]) -> None:
        """Print `lines` for good, in place of the drawn lines."""
        with self._lock:
            self._replace([self._written(line) for line in lines], [], self._typed)

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw `lines` in place of the lines drawn before; only the last ones that fit."""
        if self._console.is_terminal:
            with self._lock:
                self._replace([], self._fitting(lines), self._typed)

    def type(self, before: str, after: str = "", queued: Sequence[str] = ()) -> None:
        """Draw the line being typed, with its cursor, below the queued lines."""
        with self._lock:
            room = self.width - len(PROMPT) - 1
            self._queued = [
                self._written(Text(PROMPT + clipped(line, "", room)[0], style="dim"))
                for line in queued[-_QUEUED_LINES:]
            ]
            before, after = clipped(before, after, room)
            typed = _Typed(PROMPT + before, after) if before or after or queued else None
            self._replace([], self._drawn, typed)

    def _replace(self, printed: list[_Line], drawn: list[_Line], typed: _Typed | None) -> None:
        lines, same = [*printed, *drawn, *self._queued], 0
        for old, new in zip(self._frame, lines, strict=False):
            if old != new:
                break
            same += 1
        if not len(self._frame) == len(lines) == same or typed != self._typed:
            text = "".join(f"{line.written}\n" for line in lines[same:])
            text += typed.written if typed else ""
            if self._frame or self._typed:
                text = f"{_BEGIN}{self._back_to(same)}{text}{_END}"
            self._console.file.write(text)
            self._console.file.flush()
        self._drawn, self._typed = drawn, typed
        self._frame = [*drawn, *self._queued]

    def _back_to(self, kept: int) -> str:
        """Move the cursor to the first line that is not kept, and clear from there on."""
        width, height = self.width, self._console.height
        up = sum(line.rows(width) for line in self._frame[kept:])
        if self._typed:
            up += _rows(self._typed.before, width) - 1
        up = min(up, max(height - 1, 0))
        return (f"\r\x1b[{up}A" if up else "\r") + "\x1b[J"

    def _fitting(self, lines: Sequence[Text]) -> list[_Line]:
        room = max(int(self._console.height * _SHARE), 1)
        kept: list[_Line] = []
        known: dict[tuple[object, ...], _Line] = {}
        for line in reversed(lines):
            look = (line.plain, line.style, *line.spans)
            written = known[look] = self._known.get(look) or self._written(line)
            room -= written.rows(self.width)
            if room < 0:
                break
            kept.append(written)
        self._known = known
        return kept[::-1]

    def _written(self, line: Text) -> _Line:
        line = line.copy()
        line.expand_tabs(_TAB_COLUMNS)
        with self._console.capture() as capture:
            self._console.print(line, soft_wrap=True, end="")
        return _Line(capture.get(), line.plain)


def clipped(before: str, after: str, room: int) -> tuple[str, str]:
    """Cut a line around its cursor to `room` columns of one row."""
    before, after = (
        printable(text.replace("\n", "↵").replace("\t", " ")) for text in (before, after)
    )
    before = before[-room:] if room > 0 else ""
    while cell_len(before) > room:
        before = before[1:]
    after = after[: room - cell_len(before)]
    while cell_len(before) + cell_len(after) > room:
        after = after[:-1]
    return before, after


def _rows(shown: str, width: int) -> int:
    """Count the rows of a line; a character of two columns does not begin in the last column."""
    if cell_len(shown) <= width:
        return 1
    rows, column = 1, 0
    for character in shown:
        columns = get_character_cell_size(character)
        if column + columns > width:
            rows, column = rows + 1, 0
        column += columns
    return rows


class DrawnNotice(Notice):
    """A notice of the present wait, above the row that is being typed."""

    def __init__(self, screen: Screen, style: str) -> None:
        super().__init__()
        self._screen, self._style = screen, style

    def show(self, text: str) -> None:
        """Replace the line."""
        line = Text(clipped(text, "", self._screen.width - 1)[0], style=self._style)
        self._screen.draw([line])
        self._shown = text

    def clear(self) -> None:
        """Remove the line before something else is shown."""
        if self._shown:
            self._screen.draw([])
        self._shown = ""
