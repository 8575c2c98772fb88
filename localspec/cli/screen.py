"""The last lines of a terminal, drawn again in place while they grow.

A frame is lines that each end in a newline. To replace it the cursor goes up by the rows that they
take now: a terminal that was made narrower meanwhile has folded them into more. Only lines that
changed are written, between the marks of a synchronized update, so that nothing flickers over ssh
or in tmux.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, get_character_cell_size
from rich.console import Console
from rich.text import Text

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_TAB_COLUMNS = 8
_SHARE = 0.5
"""Of the screen: a window that is made half as wide still holds what was drawn."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line as it was written, and what of it can be seen."""

    written: str
    shown: str

    def rows(self, width: int) -> int:
        """How many it takes; a character of two columns does not begin in the last one."""
        if cell_len(self.shown) <= width:
            return 1
        rows, column = 1, 0
        for character in self.shown:
            columns = get_character_cell_size(character)
            if column + columns > width:
                rows, column = rows + 1, 0
            column += columns
        return rows


class Screen:
    """Prints lines for good, and shows others below them for a while. Owned by one thread."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._frame: list[_Line] = []
        self._known: dict[tuple[object, ...], _Line] = {}
        """What was written when it was last drawn: most lines of a frame are as before."""

    @property
    def width(self) -> int:
        """Columns now."""
        return max(self._console.width, 1)

    def print(self, lines: Sequence[Text]) -> None:
        """Write `lines` for good; what was drawn goes."""
        self._replace([self._written(line) for line in lines])
        self._frame = []

    def draw(self, lines: Sequence[Text]) -> None:
        """Show `lines` in the place of those that were drawn: the last of them that fit."""
        if self._console.is_terminal:
            self._replace(self._fitting(lines))

    def _replace(self, lines: list[_Line]) -> None:
        width, same = self.width, 0
        for old, new in zip(self._frame, lines, strict=False):
            if old != new:
                break
            same += 1
        if len(self._frame) == len(lines) == same:
            return
        height = self._console.height
        up = min(sum(line.rows(width) for line in self._frame[same:]), max(height - 1, 0))
        text = "".join(f"{line.written}\n" for line in lines[same:])
        if self._frame:
            back = f"\x1b[{up}A" if up else ""
            text = f"{_BEGIN}\r{back}\x1b[J{text}{_END}"
        self._console.file.write(text)
        self._console.file.flush()
        self._frame = lines

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
