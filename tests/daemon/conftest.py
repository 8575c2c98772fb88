"""A daemon for each test, with scripted workers unless the test has others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import tiny
from serving import Daemon, House, run_daemon


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a daemon keeps is this test's own: conversations, a token, who opened the page."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that passes the check of headers."""
    return tiny.build(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def harness(tmp_path: Path, gguf: Path) -> House:
    """A place for a daemon with one model, alpha, which is the default."""
    harness = House(tmp_path, gguf)
    harness.add("alpha")
    harness.configure()
    return harness


@pytest.fixture
def daemon() -> Callable[..., AbstractAsyncContextManager[Daemon]]:
    """Enter it with a house: a running daemon whose workers are scripted."""
    return run_daemon
