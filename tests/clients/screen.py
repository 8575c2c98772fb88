"""A program in a terminal of tmux: type keys, read the screen."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

TMUX = shutil.which("tmux")
PATIENCE_SECONDS = 60
ENTER, ESCAPE, TAB = "Enter", "Escape", "Tab"


class Screen:
    """One program from its start to its end.

    Args:
        directory: Where it runs; the terminal's socket lies there too, so its path is short.
        environment: What it sees, and nothing else.
        command: The program and what it is told.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], *command: str) -> None:
        assert TMUX is not None
        self._tmux = (TMUX, "-S", str(directory / "tmux"), "-f", "/dev/null")
        self._environment = {"TERM": "xterm-256color", **environment}
        self._tell("new-session", "-d", "-x", "120", "-y", "30", "-c", str(directory), *command)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._tell("kill-server", check=False)  # it left with the program

    def type(self, text: str) -> None:
        """Letters."""
        self._tell("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Keys that have names."""
        self._tell("send-keys", *keys)

    def shown(self) -> str:
        """Text on the screen now."""
        return self._tell("capture-pane", "-p")

    def sees(self, text: str, within_seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether the text appears within this time."""
        deadline = time.monotonic() + within_seconds
        while text not in self.shown():
            if time.monotonic() > deadline:
                return False
        return True

    def _tell(self, *words: str, check: bool = True) -> str:
        command = [*self._tmux, *words]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=check
        ).stdout
