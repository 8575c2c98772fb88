"""A daemon for each test, with scripted workers unless the test has others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import tiny
from serving import Daemon, DaemonHome, run_daemon


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives each test a state directory of its own: conversations, token, the page's sessions."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a valid GGUF header."""
    return tiny.build(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def harness(tmp_path: Path, gguf: Path) -> DaemonHome:
    """The directory of a daemon with one model, alpha, which is the default."""
    harness = DaemonHome(tmp_path, gguf)
    harness.add("alpha")
    harness.configure()
    return harness


@pytest.fixture
def daemon() -> Callable[..., AbstractAsyncContextManager[Daemon]]:
    """Runs a daemon with scripted workers in that directory, for the length of a `with`."""
    return run_daemon
