"""Someone who uses LocalSpec: a home, a configuration, models, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


class Person:
    """A home with a strict configuration and an empty models directory; no daemon runs yet."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.models = home / "models"
        self.models.mkdir()
        (home / "config.toml").write_text(CONFIG)
        self._environment = {
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
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr
        return done
