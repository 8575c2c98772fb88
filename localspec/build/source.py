"""The source of the pinned llama-cpp-python, pip, and programs that are run with their progress."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localspec import built
from localspec.errors import EngineError

_PROGRESS = re.compile(r" *(\[\d+/\d+\]) ")
_ERROR = re.compile(r"error[: ]", re.IGNORECASE)
_MESSAGE_CHARS = 200


class Pip:
    """pip for an environment: its own, or one from a second environment if it has none."""

    def __init__(self, python: Path, work: Path) -> None:
        self.python = python
        self._of = python if _has_pip(python) else _with_pip(python, work / "pip")

    def run(self, *arguments: str) -> None:
        """Run a pip command. Raises EngineError with the last line that pip wrote."""
        with program(self.command(*arguments), stderr=subprocess.PIPE) as process:
            _, said = process.communicate()
        if process.returncode:
            last = said.strip().rpartition("\n")[2]
            raise EngineError(f"pip {arguments[0]} failed: {last[:_MESSAGE_CHARS]}")

    def command(self, *arguments: str) -> list[str]:
        """The command line of a pip command."""
        return [str(self._of), "-m", "pip", *arguments]


def _has_pip(python: Path) -> bool:
    asked = [str(python), "-m", "pip", "--version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _with_pip(python: Path, place: Path) -> Path:
    """Make an environment with pip, as those of `uv tool` have none. Raises EngineError."""
    done = subprocess.run([str(python), "-m", "venv", str(place)], capture_output=True, check=False)
    if done.returncode:
        raise EngineError(
            f"{python} has no pip, and cannot make an environment that has one.",
            fix="Debian, Ubuntu: sudo apt install python3-venv.",
        )
    return place / "bin" / "python"


def unpack(pip: Pip, work: Path) -> Path:
    """Fetch the source and unpack it in `work`; returns its directory. Raises EngineError."""
    place = work / "source"
    if not place.exists():
        pip.run(
            *("download", "-q", "--no-deps", "--no-binary", "llama-cpp-python"),
            *("-d", str(work), built.requirement()),
        )
        with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
            # Python before 3.11.4 has no filters; Debian 12 has such a Python.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(work / "unpacked")  # noqa: S202 - what pip fetched, to be built
        next((work / "unpacked").iterdir()).rename(place)
    return place


@contextlib.contextmanager
def program(command: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program; if this process is interrupted, it ends with every process that it started.

    It leads a process group. Signals are held back while it starts, because a signal at that moment
    would leave a compiler running that nothing could end. `how` is as for `subprocess.Popen`.
    """
    with contextlib.closing(_HeldSignals()) as held:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, text=True, errors="replace", process_group=0, **how
        )
        with process:
            try:
                held.close()
                yield process
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise


class _HeldSignals:
    """Holds back the signals that have a handler in Python, until it is closed. Main thread."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                self._before[number] = handler
                signal.signal(number, lambda which, _: self._came.append(which))

    def close(self) -> None:
        """Restore the handlers, and call them for the signals that arrived meanwhile."""
        while self._before:
            signal.signal(*self._before.popitem())
        while self._came:
            signal.raise_signal(self._came.pop())


def watched(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> str:
    """Run a compiler, write its output to `log`, and show its progress if there is a terminal.

    Returns "" on success, otherwise the first line that mentions an error, shortened.
    """
    error = ""
    shown = sys.stderr.isatty()
    with (
        log.open("a", encoding="utf-8") as kept,
        program(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        for line in process.stdout or ():
            kept.write(line)
            error = error or (line.strip()[:_MESSAGE_CHARS] if _ERROR.search(line) else "")
            if shown and (found := _PROGRESS.match(line)):
                print(f"\r{found[1]} ", end="", file=sys.stderr, flush=True)
    if shown:
        print(file=sys.stderr)
    return (error or "no line says why") if process.returncode else ""
