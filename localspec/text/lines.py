"""Ends an infill before the first line that is indented less than its block."""

from __future__ import annotations


class IndentLimit:
    """Ends a text before the first line that is indented less than `indent`. Request lifetime.

    Args:
        indent: Blanks that every line after the first must begin with; 0 accepts all lines.
    """

    def __init__(self, indent: int) -> None:
        self._indent = indent
        self._held = ""
        self.stopped = False
        """True once such a line has begun; whatever comes later is ignored."""
        self.broken = False
        """Whether there was a line break yet."""

    def push(self, text: str) -> str:
        """The text that may go out now; a line is held back until its indentation is known."""
        self.broken = self.broken or "\n" in text
        if not self._indent or self.stopped:
            return "" if self.stopped else text
        buffer = self._held + text
        at = buffer.find("\n")
        while at >= 0:
            blanks = len(buffer[at + 1 :]) - len(buffer[at + 1 :].lstrip(" \t"))
            end = at + 1 + blanks
            if end == len(buffer):
                break
            if buffer[end] != "\n" and blanks < self._indent:
                self.stopped, self._held = True, ""
                return buffer[:at]
            at = buffer.find("\n", end)
        cut = len(buffer) if at < 0 else at
        self._held = buffer[cut:]
        return buffer[:cut]

    def flush(self) -> str:
        """The text held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held
