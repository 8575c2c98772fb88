"""Key bindings of the chat's prompt, besides those of every line editor."""

from __future__ import annotations

import os

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

FENCE = '"""'


class Typing:
    '''Decides what Enter does. A fence is `"""` typed as the whole text; a pasted one is none.'''

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a new line."""
        self._fenced = self._pasted = False

    def unfenced(self, text: str) -> str:
        """The line without the fence around it, if there is one."""
        if not self._fenced:
            return text
        return text.strip().removeprefix(FENCE).removesuffix(FENCE).strip("\n")

    def keys(self) -> KeyBindings:
        """The bindings of Alt-Enter, Enter, Ctrl-Z, and bracketed paste."""
        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if not self._pasted and buffer.text.strip() == FENCE:
                self._fenced = True
            if self._fenced and not _closed(buffer.text):
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            if _has_shell(event.app.input.fileno()):
                event.app.suspend_to_background()

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            self._pasted = True
            event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))

        return keys


def _has_shell(terminal: int) -> bool:
    """Whether a shell can resume this process: it is the foreground job, not the session leader."""
    try:
        foreground = os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not a terminal
        return False
    return foreground and os.getsid(0) != os.getpgrp()


def _closed(text: str) -> bool:
    lines = text.strip().split("\n")
    return len(lines) > 1 and lines[-1].strip().endswith(FENCE)
