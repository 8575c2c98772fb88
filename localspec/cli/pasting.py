"""Recognises text that a terminal pastes without marking it, so that it is taken as one text."""

from __future__ import annotations

import time
from collections.abc import Callable

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

PASTED_CHARS = 200
"""More characters than this at once are a paste."""
PASTE_SECONDS = 0.1
"""A piece this soon after a paste belongs to it: a terminal hands over about 1 kB at a time."""


class _Parser(Vt100Parser):
    """A parser that makes a bracketed paste of an unmarked one: its line ends are not Enter."""

    def __init__(self, tell: Callable[[KeyPress], None], clock: Callable[[], float]) -> None:
        super().__init__(tell)
        self._clock = clock
        self._pasted_at = float("-inf")

    def feed(self, data: str) -> None:
        """Take what the terminal sent."""
        now = self._clock()
        goes_on = now - self._pasted_at < PASTE_SECONDS
        unmarked = not self._in_bracketed_paste  # a marked paste has a mark at its end, too
        if unmarked and (len(data) > PASTED_CHARS or goes_on) and _is_text(data):
            self._pasted_at = now
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, data))
        else:
            super().feed(data)


def notice(terminal: Input, clock: Callable[[], float] = time.monotonic) -> None:
    """Make a terminal's input tell pastes from keys."""
    if isinstance(terminal, Vt100Input):
        terminal.vt100_parser = _Parser(terminal.vt100_parser.feed_key_callback, clock)


def _is_text(data: str) -> bool:
    """Whether `data` has no control characters but those of Enter and Tab."""
    return all((char >= " " and char != "\x7f") or char in "\r\n\t" for char in data)
