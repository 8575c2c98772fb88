"""Folds and cuts lines to the columns of the terminal; in a pipe they stay whole."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TextIO

_COMMAND = re.compile(r"localspec(?: [a-z][a-z-]*)+(?: [A-Z]+)*")
_SENTENCE = re.compile(r"\s*[A-Z][a-z]|.*[.!?](\s|$)")
_UNIT = re.compile(r"(?<=\d) (?=[^\W\d_])|(?<=\d,) (?=[\d.]+\])")
"""The blank between a number and its unit, and between the ends of an interval."""
_GLUE = "\ue000"
"""A stand-in for a blank: one column wide, and found in no text."""
_UNKNOWN_COLUMNS = 80
_LEAST_COLUMNS = 24
"""A value with less room than this is left to the terminal."""


def columns(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal `stream`, by default stdout; None where it is no terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    try:  # not shutil.get_terminal_size: it asks stdout, which may be a pipe
        wide = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        wide = 0
    return wide or _UNKNOWN_COLUMNS


def hung(label: str, value: str, width: int | None) -> str:
    """`label` and `value`, folded so that further lines begin below the start of `value`.

    No word is broken, and no number parted from its unit. A line with a word that is too long, such
    as a path, is indented less.
    """
    if width is None or (room := width - len(label)) < _LEAST_COLUMNS:
        return label + value
    rows = textwrap.wrap(
        with_hard_spaces(value), room, break_long_words=False, break_on_hyphens=False
    ) or [""]
    below = (" " * min(len(label), max(0, width - len(row))) + row for row in rows[1:])
    return "\n".join([label + rows[0], *below]).replace(_GLUE, " ")


def with_hard_spaces(text: str) -> str:
    """Replace the blank between a number and its unit, so that folding keeps them together."""
    return _UNIT.sub(_GLUE, text)


def wrapped(text: str, width: int) -> str:
    """`text`, such as a table's cell, folded between words; a character may be two columns wide."""
    from rich.cells import cell_len  # noqa: PLC0415  slow to import

    rows = [""]
    for word in with_hard_spaces(text).split():
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if cell_len(longer) <= width or not rows[-1]:
            rows[-1] = longer
        else:
            rows.append(word)
    return "\n".join(rows).replace(_GLUE, " ")


def advice(line: str, width: int | None) -> str:
    """A line of a remedy: a sentence is folded, but not inside a `localspec` command in it.

    Its indentation stays. A line that is no sentence is a command to be copied, and is left alone.
    """
    if width is None or len(line) <= width or not _SENTENCE.match(line):
        return line
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", _GLUE), line.strip())
    indent = line[: len(line) - len(line.lstrip())]
    return hung(indent, whole, width).replace(_GLUE, " ")


def folded(row: str, value: str, width: int | None) -> list[str]:
    """`row` with its last value; where that does not fit, the value on an indented line below."""
    if width is None or len(row) + len(value) <= width:
        return [row + value]
    return [row.rstrip(), cut(f"  {value}", width)]


def cut(line: str, width: int | None) -> str:
    """The part of `line` that fits, with … where some does not."""
    if width is None or (line.isascii() and len(line) <= width):
        return line
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  slow to import

    if cell_len(line) <= width:
        return line
    return set_cell_size(line, width - 1).rstrip() + "…"
