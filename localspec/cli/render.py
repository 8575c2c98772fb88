"""Sinks that show an answer while it is being written; the one for Markdown is in live.py."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Protocol, TextIO

import click

from localspec.cli.columns import columns
from localspec.client import End, Piece
from localspec.errors import LocalSpecError

_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Remove control characters from `text`: a model must not be able to command the terminal."""
    return text.translate(_CONTROL)


def sentences(error: LocalSpecError) -> list[str]:
    """The lines of an error, all but the first indented: a message cannot forge another error."""
    first, *others = f"error: {error.message}".split("\n")
    return [first, *(f"  {line.strip()}" for line in [*others, *error.fix.split("\n")] if line)]


class Sink(Protocol):
    """Receives the pieces of one answer. Used by one thread, closed once, also after Ctrl-C."""

    def write(self, piece: Piece) -> None:
        """Show new text now."""

    def close(self, end: End | None) -> None:
        """End the answer; `end` is None if it was cut."""


class PlainSink:
    """Writes text as it comes: on a terminal without control characters, in a pipe untouched."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._clean: Callable[[str], str] = printable if stream.isatty() else str
        self._last = "\n"

    def write(self, piece: Piece) -> None:
        """Write and flush, so that a pipe's reader reads along; a pipe gets no thinking."""
        if piece.thinking and not self._stream.isatty():
            return
        self._stream.write(self._clean(piece.text))
        self._stream.flush()
        self._last = piece.text[-1:] or self._last

    def close(self, end: End | None) -> None:  # noqa: ARG002  every sink is told
        """End the last line."""
        if self._last != "\n":
            self._stream.write("\n")
            self._stream.flush()


class JsonSink:
    """One JSON object per line: {"type":"text",...} for each piece, then {"type":"end",...}."""

    def write(self, piece: Piece) -> None:
        """Print the piece."""
        emit({"type": "text", **asdict(piece)})

    def close(self, end: End | None) -> None:
        """Print the figures."""
        if end:
            emit({"type": "end", **asdict(end)})


class SilentSink:
    """Shows nothing, for answers that are printed whole afterwards."""

    def write(self, piece: Piece) -> None:
        """Nothing to show yet."""

    def close(self, end: End | None) -> None:
        """Nothing to show at all."""


class Notice:
    """One line on stderr that names the present wait; replaced in place on a terminal.

    A file or a pipe gets none of these lines: cron, for example, would mail every one.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = ""

    def show(self, text: str) -> None:
        """Replace the line; where lines cannot be replaced, print only when the stage changes."""
        text = printable(text).replace("\n", " ")
        if text == self._shown or not self._stream.isatty():
            return
        if can_redraw(self._stream):
            room = (columns(self._stream) or 0) - 1  # a folded line could not be replaced
            self._stream.write(f"\r\x1b[K{text[:room]}")
        elif _stage(text) != _stage(self._shown):
            self._stream.write(f"{text}\n")
        self._stream.flush()
        self._shown = text

    def clear(self) -> None:
        """Remove the line before something else is printed."""
        if self._shown and can_redraw(self._stream):
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._shown = ""


def can_redraw(stream: TextIO) -> bool:
    """True for a terminal that knows cursor movement."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _stage(text: str) -> str:
    return re.sub(r"[\d.]+\s*%?", "", text)


def emit(value: object) -> None:
    """Print a value as one line of JSON, for programs."""
    import msgspec  # noqa: PLC0415 - a chat in words does without

    click.echo(msgspec.json.encode(value).decode())
