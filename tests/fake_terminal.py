"""A terminal of a few lines: the cursor moves that the chat uses, wrapping, and resizing."""

from __future__ import annotations

import io
import re

from wcwidth import wcwidth

_PARTS = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|(\r|\n)|([^\x1b\r\n]+)")


class FakeTerminal(io.StringIO):
    """Logical lines, each folded to `width` when it is looked at, as tmux and most others do.

    Only what the chat needs: the cursor is at the beginning of a row, or in the last one that was
    written, and what is cleared is that row and what follows it.
    """

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height
        self._lines = [""]

    def isatty(self) -> bool:
        """Yes."""
        return True

    def lines(self) -> list[str]:
        """Everything, scrolled out of sight or not, as a person would copy it."""
        return [line.rstrip() for line in self._lines if line.strip()]

    def screen(self) -> list[str]:
        """The visible rows, without blank ones."""
        rows = [row for line in self._lines for row in self._rows(line)]
        return [row for row in rows[-self.height :] if row.strip()]

    def write(self, text: str) -> int:
        """Interpret it."""
        for found in _PARTS.finditer(text):
            number, command, control, plain = found.groups()
            if command == "A":
                self._up(int(number or 1))
            elif control == "\n":
                self._lines.append("")
            elif plain:
                self._lines[-1] += plain
            elif command == "J":
                self._lines[-1] = ""
            else:
                assert command in {None, "D", "h", "l", "m"}, found[0]
        return super().write(text)

    def _up(self, rows: int) -> None:
        """The chat always clears below, so what the cursor passes is forgotten here."""
        rows -= len(self._rows(self._lines.pop())) - 1
        while rows > 0:
            rows -= len(self._rows(self._lines.pop()))
        assert rows == 0, "the cursor stopped in the middle of a line"
        self._lines.append("")

    def _rows(self, line: str) -> list[str]:
        rows, column = [""], 0
        for character in line:
            columns = wcwidth(character)
            if column + columns > self.width:
                rows.append("")
                column = 0
            rows[-1] += character
            column += columns
        return rows
