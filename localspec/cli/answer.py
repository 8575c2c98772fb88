"""Playing one streamed answer into a sink, and keeping what came of it whatever ended it."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, cast

from localspec.cli.waiting import words
from localspec.client import End, Event, Piece, Waiting
from localspec.errors import LocalSpecError

if TYPE_CHECKING:
    from collections.abc import Generator

    from localspec.cli.render import Notice, Sink


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that arrived. `end` is None when Ctrl-C (`error` None too) or `error` cut it."""

    text: str
    end: End | None = None
    error: LocalSpecError | None = None
    waited_seconds: float = 0.0
    """From the question to the first text, whatever the time went into."""
    thoughts: str = ""
    """The figures told apart from the text."""

    @property
    def interrupted(self) -> bool:
        """True when the person stopped it."""
        return self.end is None and self.error is None


def play(events: Iterator[Event], sink: Sink, notice: Notice) -> Answer:
    """Show events as they come. Ctrl-C closes the connection, which stops the daemon's work too."""
    pieces: list[str] = []
    thoughts: list[str] = []
    asked_at, waited_seconds = monotonic(), 0.0
    end: End | None = None
    error: LocalSpecError | None = None
    with closing(cast("Generator[Event]", events)):
        try:
            for event in events:
                if isinstance(event, Waiting):
                    notice.show(words(event.text))
                    continue
                notice.clear()
                if isinstance(event, Piece):
                    waited_seconds = waited_seconds or monotonic() - asked_at
                    (thoughts if event.thinking else pieces).append(event.text)
                    sink.write(event)
                else:
                    end = event
        except KeyboardInterrupt:
            pass
        except LocalSpecError as failure:
            error = failure
        finally:
            with suppress(KeyboardInterrupt):  # what was said is kept, drawn to its end or not
                notice.clear()
                sink.close(end)
    return Answer("".join(pieces), end, error, waited_seconds, "".join(thoughts))


@contextmanager
def unechoed() -> Iterator[None]:
    """Keys wait as they were typed, to be read later; none is echoed into what is being drawn.

    Ctrl-C still interrupts. The terminal is as it was on every way out.
    """
    with _typing(~(termios.ECHO | termios.ICANON), 0):
        yield


@contextmanager
def echoed() -> Iterator[None]:
    """For a question in the middle of that: lines are typed as always."""
    with _typing(~0, termios.ECHO | termios.ICANON):
        yield


@contextmanager
def _typing(kept: int, added: int) -> Iterator[None]:
    terminal = 0
    if not _in_foreground(terminal):
        yield
        return
    before = termios.tcgetattr(terminal)
    wanted = [*before]
    wanted[3] = wanted[3] & kept | added
    termios.tcsetattr(terminal, termios.TCSANOW, wanted)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # it may be gone
            sys.stdout.flush()
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _in_foreground(terminal: int) -> bool:
    """Whether this is the terminal's foreground job: another would be stopped for touching it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False
