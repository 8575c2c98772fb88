"""Standard streams that every process can rely on, whoever started it with which of them closed."""

from __future__ import annotations

import os
import sys
from typing import TextIO

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def ensure() -> None:
    """Open what is closed of the three streams on the null device, and let no letter fail.

    A file that is opened later would otherwise get the number of a stream, and whatever native code
    or a child prints would go into it. Called first of all in every process.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        _occupy(number)
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            opened = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, opened)
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal of ASCII; half of a pair


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
