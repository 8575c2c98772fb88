"""Plays one streamed answer into a sink, and keeps what arrived, however the answer ended."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, cast

from localspec.cli.waiting import stage_text
from localspec.client import End, Event, Piece, Waiting
from localspec.errors import LocalSpecError

if TYPE_CHECKING:
    from collections.abc import Generator

    from localspec.cli.render import Notice, Sink


@dataclass(frozen=True, slots=True)
class Answer:
    """The part of an answer that arrived. `end` is None if `error` or Ctrl-C cut the answer."""

    text: str
    end: End | None = None
    error: LocalSpecError | None = None
    waited_seconds: float = 0.0
    """From the question to the first text or thought, loading and queueing included."""
    thoughts: str = ""
    """The model's thoughts that the daemon sent apart from the text."""

    @property
    def interrupted(self) -> bool:
        """True when the user stopped the answer."""
        return self.end is None and self.error is None


def play(events: Iterator[Event], sink: Sink, notice: Notice) -> Answer:
    """Write events to a sink. Ctrl-C closes the connection, which ends the daemon's work."""
    pieces: list[str] = []
    thoughts: list[str] = []
    asked_at, waited_seconds = monotonic(), 0.0
    end: End | None = None
    error: LocalSpecError | None = None
    with closing(cast("Generator[Event]", events)):
        try:
            for event in events:
                if isinstance(event, Waiting):
                    notice.show(stage_text(event.text))
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
            with suppress(KeyboardInterrupt):  # Ctrl-C stops the drawing; the text is kept
                notice.clear()
                sink.close(end)
    return Answer("".join(pieces), end, error, waited_seconds, "".join(thoughts))


@contextmanager
def unechoed() -> Iterator[None]:
    """Turn off the terminal's echo for the block; typed keys stay in its buffer to be read later.

    Ctrl-C still interrupts. The terminal's mode is restored however the block ends.
    """
    with _typing(~(termios.ECHO | termios.ICANON), 0):
        yield


@contextmanager
def echoed() -> Iterator[None]:
    """Turn the echo on again for a block inside `unechoed` that asks a question."""
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
    """Whether this is the foreground job: setting the terminal's mode stops any other job."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False
