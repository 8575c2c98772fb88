"""The interactive conversation: reading lines and keys until the end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.utils import Event

from localspec import paths
from localspec.cli import pasting
from localspec.cli.ahead import Ahead
from localspec.cli.keys import Typing
from localspec.cli.opening import PROMPT
from localspec.cli.remarks import Remarks
from localspec.cli.talk import Talk
from localspec.errors import LocalSpecError, of_system

HISTORY_BYTES = 1024 * 1024


def run(talk: Talk, shown: Callable[[], None] = lambda: None) -> None:
    """Read, answer, repeat, in a terminal that echoes nothing.

    `shown` is called once, after the first prompt is drawn, which its slow work does not delay.
    """
    typing = Typing()
    with hanging_up(talk):
        session: PromptSession[str] = PromptSession(
            history=history(talk),
            completer=SlashCompleter(talk),
            complete_while_typing=False,
            key_bindings=typing.keys(),
            multiline=True,
            prompt_continuation=lambda _width, _line, wraps: "" if wraps else "... ",
        )
        pasting.notice(session.input)
        ahead = Ahead(session, typing)
        talk.typing = ahead.shown
        remarks = Remarks(session.app, talk.say)
        talk.remark = remarks.make
        _once(session.app.after_render, shown)
        try:
            while not talk.over:
                _turn(talk, session, typing, ahead, remarks)
        except EOFError:
            pass
        except OSError:  # the terminal is gone
            if not talk.over:
                raise


def _once(event: Event[Application[str]], work: Callable[[], None]) -> None:
    """Add a handler to the event that runs `work` once and then removes itself."""

    def handler(_: Application[str]) -> None:
        event.remove_handler(handler)
        work()

    event.add_handler(handler)


def _turn(
    talk: Talk, session: PromptSession[str], typing: Typing, ahead: Ahead, remarks: Remarks
) -> None:
    """Read one line of input and handle it."""
    begun, sent = ahead.next(talk.next_line)
    talk.next_line = ""
    if not begun.text:
        typing.begin()
    try:
        line = session.prompt(PROMPT, default=begun, accept_default=sent, pre_run=remarks.begin)
    except KeyboardInterrupt:  # the line is abandoned, as in a shell
        return
    try:
        handle(talk, line if sent else typing.unfenced(line))
    except LocalSpecError as error:
        talk.complain(error)
    except OSError as error:
        talk.complain(of_system(error))
    except KeyboardInterrupt:
        talk.say("interrupted")


def handle(talk: Talk, line: str) -> None:
    """Run a command, or ask a question."""
    from localspec.cli.commands import named  # noqa: PLC0415  the prompt is drawn before

    command, argument = named(line)
    if command:
        command.run(talk, argument)
    elif line.strip() or talk.attached:
        talk.ask(line)


class SlashCompleter(Completer):
    """Completes commands, their words and paths; ordinary text is left alone."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """Candidates for the last word."""
        name, blank, path = document.text_before_cursor.partition(" ")
        if blank and name in {"/file", "/image"}:  # the rest is one path: it may have blanks
            yield from self._paths.get_completions(Document(path), event)
            return
        *before, word = document.text_before_cursor.split(" ")
        for choice in self._choices(before):
            if choice.startswith(word):
                yield Completion(choice, start_position=-len(word))

    def _choices(self, before: list[str]) -> list[str]:
        from localspec.cli.commands import COMMANDS  # noqa: PLC0415  as above

        if not before:
            return list(COMMANDS)
        command = COMMANDS.get(before[0])
        try:
            return command.words(self._talk) if command else []
        except (LocalSpecError, OSError):  # completion must not start or report anything
            return []


class _KeptLines(FileHistory):
    """Typed lines on disk; an error of the disk is reported once, and the chat goes on."""

    def __init__(self, filename: str, talk: Talk) -> None:
        super().__init__(filename)
        self._talk = talk
        self._told = False

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            if not self._told:
                self._talk.complain(of_system(error, self.filename))
            self._told = True


def history(talk: Talk) -> History:
    """Lines typed before, in a private file of bounded size; none with LOCALSPEC_NOHISTORY."""
    if os.environ.get("LOCALSPEC_NOHISTORY"):
        return InMemoryHistory()
    path = paths.state_dir() / "history"
    try:
        paths.make_private(path.parent)
        if not path.exists():
            paths.write_atomically(path, b"")
        elif path.stat().st_size > HISTORY_BYTES:
            kept = path.read_bytes()[-HISTORY_BYTES // 2 :]
            paths.write_atomically(path, kept[kept.find(b"\n\n") + 1 :])
    except OSError as error:
        talk.complain(of_system(error))
        return InMemoryHistory()
    return _KeptLines(str(path), talk)


@contextlib.contextmanager
def hanging_up(talk: Talk) -> Iterator[None]:
    """Let SIGHUP and SIGTERM stop an answer as Ctrl-C does, and end the loop: turns are kept."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        talk.over = True
        raise KeyboardInterrupt

    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
