"""Finds stop strings in streamed text, and holds back what may become one."""

from __future__ import annotations

from collections.abc import Sequence


class _Stop:
    """A stop string, and how much of its beginning the text so far ends with.

    By Knuth, Morris and Pratt: reading a character takes constant time on average.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._shorter = [0, 0]
        """By the length of a beginning, that of the longest shorter one with which it ends."""
        for char in text[1:]:
            self.read(char)
            self._shorter.append(self.matched)
        self.matched = 0

    def read(self, char: str) -> bool:
        """Read a character of the text. Returns whether it completes the stop string."""
        while self.matched and self.text[self.matched] != char:
            self.matched = self._shorter[self.matched]
        self.matched += self.text[self.matched] == char
        return self.matched == len(self.text)


class StopMatcher:
    """Ends a text at the first stop string completed in it. Request lifetime.

    The place where a stop string is completed counts, not where it begins, so the result does not
    depend on how the text was cut into pieces. Of stop strings completed by the same character the
    longest is removed.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every answer before it began")
        self._stops = tuple(map(_Stop, stops))
        self._held = ""
        self.found = ""
        """The stop string that was completed; whatever comes later is ignored."""

    @property
    def stopped(self) -> bool:
        """True once a stop string was completed."""
        return bool(self.found)

    def push(self, text: str) -> str:
        """The text that may go out now: it can no longer be part of a stop string."""
        if self.stopped:
            return ""
        buffer = self._held + text
        for end, char in enumerate(text, len(self._held) + 1):
            if completed := [stop.text for stop in self._stops if stop.read(char)]:
                self.found = max(completed, key=len)
                self._held = ""
                return buffer[: end - len(self.found)]
        released = len(buffer) - max((stop.matched for stop in self._stops), default=0)
        self._held = buffer[released:]
        return buffer[:released]

    def flush(self) -> str:
        """The text held back, at the end of the answer."""
        for stop in self._stops:
            stop.matched = 0
        held, self._held = self._held, ""
        return held
