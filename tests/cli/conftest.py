"""A user of their own for every test of the command line, and a scripted peer to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import Peer
from typist import Typist


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory: nothing of the real user is read or written."""
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("HOST", "CONFIG", "MODELS", "API_KEY_FILE", "NOHISTORY", "DEBUG"):
        monkeypatch.delenv(f"LOCALSPEC_{name}", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


@pytest.fixture
def peer(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:  # noqa: ARG001  its environment first
    """A peer that `localspec` finds through LOCALSPEC_HOST."""
    with Peer() as found:
        monkeypatch.setenv("LOCALSPEC_HOST", found.host)
        yield found


@pytest.fixture
def talk() -> Typist:
    """Somebody in an empty conversation."""
    return Typist()
