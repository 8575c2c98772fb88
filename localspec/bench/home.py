"""A home directory for one measurement, with a daemon of its own that has learned nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Self

import msgspec

from localspec import paths, toml
from localspec.client import Client
from localspec.config import Config
from localspec.errors import EngineError

_LEAVING = (signal.SIGHUP, signal.SIGTERM)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # No further signal may interrupt the end of `with`: the daemon, in a session of its own, would
    # go on running.
    for number in _LEAVING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


class Home:
    """A temporary directory with a configuration, where commands find everything but the models.

    Use in `with`: at its end the daemon that a command has started is stopped and all that it
    learned is deleted, also if the terminal is closed during the measurement.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def __enter__(self) -> Self:
        self._handlers = {number: signal.signal(number, _leave) for number in _LEAVING}
        self._root = Path(tempfile.mkdtemp(prefix="localspec-"))  # a socket's path must be short
        config = self._root / "config.toml"
        settings = msgspec.to_builtins(self._config, str_keys=True)
        config.write_text(toml.write(settings), encoding="utf-8")
        self._environment = os.environ | {
            "LOCALSPEC_CONFIG": str(config),
            "LOCALSPEC_MODELS": str(paths.models_dir()),
            "XDG_STATE_HOME": str(self._root / "state"),
            "XDG_CACHE_HOME": str(self._root / "cache"),
            "XDG_RUNTIME_DIR": str(self._root),
        }
        self._environment.pop("LOCALSPEC_HOST", None)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.localspec("stop")
        finally:
            shutil.rmtree(self._root, ignore_errors=True)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    @property
    def client(self) -> Client:
        """A client of the daemon in this home, which `localspec start` starts."""
        return Client(self._root / paths.APP / paths.socket_path().name)

    def localspec(self, *arguments: str) -> None:
        """Run one command and show its progress. Raises EngineError with its exit code."""
        command = [sys.executable, "-P", "-m", "localspec.cli.main", *arguments]
        done = subprocess.run(  # noqa: S603 - our own
            command, env=self._environment, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            raise EngineError(f"`localspec {arguments[0]}` ended with {done.returncode}.")
