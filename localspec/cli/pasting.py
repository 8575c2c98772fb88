"""Notices text that a terminal pastes without saying so: it is one text, not a thousand keys."""

from __future__ import annotations

import time
from collections.abc import Callable

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

PASTED_CHARS = 200
"""More than this at once is not typed."""
PASTE_SECONDS = 0.1
"""A piece that comes so soon belongs to the paste: a terminal hands over about 1 kB at a time."""


class _Parser(Vt100Parser):
    """A parser that hands over a paste as terminals do that mark it, which Enter cannot end."""

    def __init__(self, tell: Callable[[KeyPress], None], clock: Callable[[], float]) -> None:
        super().__init__(tell)
        self._clock = clock
        self._pasted_at = float("-inf")

    def feed(self, data: str) -> None:
        """Take what the terminal sent."""
        now = self._clock()
        goes_on = now - self._pasted_at < PASTE_SECONDS
        unmarked = not self._in_bracketed_paste  # a marked one has an end of its own
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
    """Whether it has no key but Enter and Tab."""
    return all((char >= " " and char != "\x7f") or char in "\r\n\t" for char in data)
