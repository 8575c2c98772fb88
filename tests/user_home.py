"""Someone who uses LocalSpec: a home, a configuration, models, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from terminal import COMMAND
from terminal import shown as in_window

CONFIG = """
[server]
drain_seconds = 1.0
[models]
default = "tiny"
[engine]
exactness = "strict"
slots = 2
context = 1024
"""


class UserHome:
    """A home with a strict configuration and an empty models directory; no daemon runs yet."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.models = home / "models"
        self.models.mkdir()
        (home / "config.toml").write_text(CONFIG)
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            "HOME": str(home),
            "LOCALSPEC_MODELS": str(self.models),
            "LOCALSPEC_CONFIG": str(home / "config.toml"),
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CACHE")},
        }

    def run(
        self, *arguments: str, stdin: str = "", exit_code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """`localspec ARGUMENTS` as a process of its own, which must end with `exit_code`."""
        done = subprocess.run(
            [sys.executable, "-m", "localspec.cli.main", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr
        return done

    def begin(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """`localspec ARGUMENTS`, which goes on; what it says is not read."""
        return subprocess.Popen(
            [sys.executable, "-m", "localspec.cli.main", *arguments],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def look(
        self, *arguments: str, columns: int, terminal: str = "dumb", errors: bool = False
    ) -> list[str]:
        """The lines of `localspec ARGUMENTS` in a window of so many columns, without colours.

        With `errors` also what is said on stderr.
        """
        streams = ("stdout", "stderr") if errors else ("stdout",)
        here = self.environment | {"TERM": terminal, "NO_COLOR": "1"}
        shown = in_window([*COMMAND, *arguments], here, columns, *streams)
        return shown.decode().replace("\r\n", "\n").split("\n")
