"""The daemon's log: one record is one line of bounded length, and repetitions are counted."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from localspec.errors import bounded, escaped, redacted

_JOURNAL_PRIORITIES = {"ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}

MAX_LINE_CHARS = 4000
"""The longest line, before escaping: room for an error and its fix."""
MAX_TRACEBACK_LINES = 400

WINDOW_SECONDS = 10.0
"""A repeated event is counted for this long before its count is written."""
SAME, ALIKE = 5, 1000
"""The most lines written in one window: of lines that differ only in numbers, and of lines from one
place in the code."""
MAX_KINDS = 1024
"""The most kinds of events that are counted at once."""
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


class OneLineFormatter(logging.Formatter):
    """Formats each record as one line, so that no text of a file or a request can forge another.

    Lines of a traceback begin with a bar.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        """The line; line breaks and terminal commands in it are escaped."""
        record.message = escaped(redacted(bounded(record.message, MAX_LINE_CHARS)))
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  as above
        """The traceback, each line behind a bar."""
        lines = super().formatException(ei).split("\n")[-MAX_TRACEBACK_LINES:]
        return "\n".join(
            f"  | {escaped(redacted(bounded(line, MAX_LINE_CHARS)))}" for line in lines
        )


class JournalFormatter(OneLineFormatter):
    """Formats lines for systemd's journal, with its priorities; the journal adds the time."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, after its priority."""
        return f"<{_JOURNAL_PRIORITIES.get(record.levelname, 3)}>{super().format(record)}"


@dataclass(slots=True)
class _Kind:
    """One kind of event: its text, the end of its window, how many were written and left out."""

    text: str
    logger: str
    level: int
    until: float
    written: int = 0
    left_out: int = 0


_Kinds: TypeAlias = dict[tuple[str, int, str], _Kind]


@dataclass(slots=True)
class Repeats:
    """Decides which events are written and which are counted. Pure: the time is an argument."""

    _same: _Kinds = field(default_factory=dict)
    _alike: _Kinds = field(default_factory=dict)
    _over: list[_Kind] = field(default_factory=list)

    def writes(self, logger: str, level: int, template: str, text: str, now: float) -> bool:
        """Whether this event is written; if not, it is counted."""
        numberless = _NUMBERS.sub("#", text) if level >= logging.WARNING else text
        same = self._kind(self._same, (logger, level, numberless), text, now)
        alike = self._kind(self._alike, (logger, level, template), template, now)
        for kind, most in ((same, SAME), (alike, ALIKE)):
            if kind.written >= most:
                kind.left_out += 1
                return False
        same.written += 1
        alike.written += 1
        return True

    def over(self, now: float) -> list[tuple[str, int, str]]:
        """Remove the counts whose window is over, and return logger, level and text of each."""
        for kinds in (self._same, self._alike):
            while kinds and now >= kinds[first := next(iter(kinds))].until:  # in order of time
                self._over.append(kinds.pop(first))
        over, self._over = self._over, []
        return [
            (
                kind.logger,
                kind.level,
                f"{kind.left_out} more times in {WINDOW_SECONDS:.0f} s: {kind.text}",
            )
            for kind in over
            if kind.left_out
        ]

    def _kind(self, kinds: _Kinds, key: tuple[str, int, str], text: str, now: float) -> _Kind:
        kind = kinds.get(key)
        if kind is None:
            while len(kinds) >= MAX_KINDS:
                self._over.append(kinds.pop(next(iter(kinds))))
            kind = kinds[key] = _Kind(text, key[0], key[1], now + WINDOW_SECONDS)
        return kind


class CountingHandler(logging.StreamHandler[Any]):
    """Writes to standard error what `Repeats` lets through. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the counts whose window is over, then write the record or count it."""
        now = self._clock()
        self.write_counts(now)
        text = bounded(record.getMessage(), MAX_LINE_CHARS)
        if self._repeats.writes(record.name, record.levelno, str(record.msg), text, now):
            super().emit(record)

    def write_counts(self, now: float) -> None:
        """Write the counts whose window is over."""
        self.acquire()
        try:
            for logger, level, text in self._repeats.over(now):
                super().emit(logging.LogRecord(logger, level, __file__, 0, "%s", (text,), None))
        finally:
            self.release()

    def close(self) -> None:
        """Write all counts, and close."""
        self.write_counts(float("inf"))
        super().close()


def log_to_stderr() -> CountingHandler:
    """Send all warnings, and the daemon's own log, to standard error."""
    handler = CountingHandler()
    if "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(JournalFormatter("%(name)s %(message)s"))
    else:
        handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.WARNING)
    return handler
