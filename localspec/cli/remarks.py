"""Prints remarks of other threads outside of the line that is being typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue

from prompt_toolkit.application import Application


class Remarks:
    """Prints remarks of any thread above the present prompt, or above the next one."""

    def __init__(self, app: Application[str], say: Callable[[str], None]) -> None:
        self._app, self._say = app, say
        self._waiting: SimpleQueue[str] = SimpleQueue()
        self._context = copy_context()  # prompt-toolkit finds the terminal by it

    def make(self, text: str) -> None:
        """Queue a remark. For any thread."""
        self._waiting.put(text)
        if loop := self._app.loop:
            with suppress(RuntimeError):  # that prompt has just ended
                loop.call_soon_threadsafe(self._show, context=self._context)

    def begin(self) -> None:
        """Print remarks by the prompt's event loop from now on."""
        asyncio.get_running_loop().call_soon(self._show)

    def _show(self) -> None:
        """Print the remarks in the prompt's place, and draw the prompt anew below.

        The terminal stays in the line editor's mode. `run_in_terminal` would leave this mode
        meanwhile: then the terminal echoes typed keys, and drops what a paste has beyond 4 kB.
        """
        if self._waiting.empty():
            return
        renderer = self._app.renderer
        renderer.erase()
        while not self._waiting.empty():
            self._say(self._waiting.get())
        renderer.reset()
        renderer.request_absolute_cursor_position()
        self._app.invalidate()
