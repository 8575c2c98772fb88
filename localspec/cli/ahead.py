"""Reads the user's next line while an answer is drawn, and shows it below the answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.output import DummyOutput

if TYPE_CHECKING:
    from localspec.cli.keys import Typing
    from localspec.cli.screen import Screen


class Ahead:
    """Reads keys typed while something is shown, for the next prompt.

    Enter queues a line, which is sent when the answer is over, as in a shell. Ctrl-C stops the
    answer and sends nothing: the queued lines return to the next prompt.

    A second prompt session reads the keys of the same terminal, in a thread of its own. It draws
    nothing; `Screen` draws the typed lines, because it knows what else is on the screen. The main
    thread owns this object, and uses the lines only while the reading thread does not run.
    """

    def __init__(self, front: PromptSession[str], typing: Typing) -> None:
        self._front, self._typing = front, typing
        self._back: PromptSession[str] | None = None
        self._screen: Screen | None = None
        self._queued: list[str] = []
        self._begun = Document()
        self._left = False
        self._reading = threading.Event()

    def next(self, line: str) -> tuple[Document, bool]:
        """The beginning of the next prompt, and whether Enter was already pressed on it.

        `line` is text that a command put into the prompt. Raises EOFError after Ctrl-D.
        """
        if self._queued:
            return Document(self._queued.pop(0)), True
        begun, self._begun = self._begun, Document()
        left, self._left = self._left and not begun.text, False
        if left:
            raise EOFError
        return (Document(_joined(line, begun.text)) if line else begun), False

    @contextmanager
    def shown(self, screen: Screen) -> Iterator[None]:
        """Read keys while the block runs, and show the typed lines on `screen`."""
        self._screen = screen
        self._reading.clear()
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop(thread)
            screen.type("")

    # In the thread that reads

    def _read(self) -> None:
        self._back = back = self._back or self._session()
        try:
            back.prompt(default=self._begun, pre_run=self._reading.set)
        except EOFError:  # the terminal is gone
            self._left = True
        finally:
            self._begun = back.default_buffer.document
            self._reading.set()

    def _session(self) -> PromptSession[str]:
        front = self._front
        back: PromptSession[str] = PromptSession(
            history=front.history,
            completer=front.completer,
            complete_while_typing=False,
            key_bindings=merge_key_bindings([self._typing.keys(), self._keys()]),
            multiline=True,
            input=front.input,
            output=DummyOutput(),
        )
        back.default_buffer.accept_handler = self._queue
        back.app.terminal_size_polling_interval = None
        back.app.after_render += self._show
        return back

    def _queue(self, buffer: Buffer) -> bool:
        if line := self._typing.unfenced(buffer.text).strip("\n"):
            self._queued.append(line)
        self._typing.begin()
        buffer.reset()
        return True

    def _keys(self) -> KeyBindings:
        """Bind Ctrl-C to stopping the answer, and Ctrl-D to ending the chat after it."""
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            buffer.text = _joined(*self._queued, buffer.text)
            buffer.cursor_position = len(buffer.text)
            self._queued.clear()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        @keys.add("c-z")
        def _(_: KeyPressEvent) -> None:
            """Ignore Ctrl-Z: it neither suspends the answer nor becomes text."""

        @keys.add("c-d", filter=Condition(lambda: not get_app().current_buffer.text))
        def _(_: KeyPressEvent) -> None:
            self._left = True

        return keys

    def _show(self, app: Any) -> None:
        document = app.current_buffer.document
        if self._screen:
            self._screen.type(document.text_before_cursor, document.text_after_cursor, self._queued)

    # In the main thread

    def _stop(self, thread: threading.Thread) -> None:
        """Stop the thread. Another Ctrl-C is ignored: there is nothing else for it to stop."""
        while thread.is_alive():
            with suppress(KeyboardInterrupt):
                self._reading.wait()
                loop = self._back.app.loop if self._back else None
                if loop:
                    with suppress(RuntimeError):  # it has just ended
                        loop.call_soon_threadsafe(self._leave)
                thread.join()

    def _leave(self) -> None:
        app = self._back.app if self._back else None
        if app and app.is_running and not app.is_done:
            app.exit(result="")


def _joined(*lines: str) -> str:
    return "\n".join(filter(None, lines))
