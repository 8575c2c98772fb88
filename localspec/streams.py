"""Makes the standard streams reliable, even in a process started with some of them closed."""

from __future__ import annotations

import errno
import os
import sys
import termios
from typing import TextIO

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def ensure() -> None:
    """Open closed standard streams on the null device, and make writing any character safe.

    Otherwise a file opened later would get the number of a stream, and everything that native code
    or a child prints would go into that file. Called first in every process.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        _occupy(number)
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            opened = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, opened)
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for ASCII terminals and lone surrogates


def drop(*numbers: int) -> None:
    """Put the null device in the place of standard streams that can no longer be written to.

    A write would fail, also the one while Python ends, which would change the exit code.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def hung_up() -> None:
    """Drop the standard streams on a terminal that has gone."""
    drop(*(number for number, _ in enumerate(_STREAMS) if _has_gone(number)))


def _has_gone(number: int) -> bool:
    """Whether a stream is a terminal that has gone."""
    try:
        termios.tcgetattr(number)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _occupy(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        handle = os.open(os.devnull, os.O_RDWR)
        if handle == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(handle, number)
            os.close(handle)
