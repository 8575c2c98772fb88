"""Runs measurements that need the engine: modules of other packages, each in its own process.

Native code may crash on a strange file, and an interpreter with other work measures badly.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from typing import TypeVar

import msgspec

from localspec.errors import EngineError

_LAST_WORDS = 300

_Answer = TypeVar("_Answer")


def ask(answer: type[_Answer], module: str, *arguments: str) -> _Answer:
    """The standard output of `python -m localspec.MODULE ARGUMENTS`, decoded as `answer`.

    Raises:
        EngineError: the process failed or died; quotes its last line on standard error.
    """
    command = [sys.executable, "-P", "-m", f"localspec.{module}", *arguments]
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(  # noqa: S603 - our own module in our own interpreter
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, check=False
        )
        log.seek(0)
        last = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.returncode:
        raise EngineError(
            f"Measuring by localspec.{module} {ending(done.returncode)}: {last[:_LAST_WORDS]}"
        )
    return msgspec.json.decode(done.stdout, type=answer)


def ending(returncode: int) -> str:
    """How a process ended, as a verb: "died of SIGSEGV", "ended with exit code 70"."""
    if returncode < 0:
        return f"died of {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"
