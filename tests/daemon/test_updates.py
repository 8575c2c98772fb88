"""An update under a running daemon: it goes on, says so, and names the restart where it matters."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import localspec
import localspec_daemon
from localspec.client import Client
from localspec.errors import NotRunning, WorkerCrashed
from localspec_daemon.supervisor.installation import RESTART, Installation

PACKAGES = [Path(package.__path__[0]) for package in (localspec, localspec_daemon)]


@pytest.mark.parametrize("change", ["edited", "added", "removed", "all", "directory"])
def test_any_change_of_code_is_an_update(tmp_path: Path, change: str) -> None:
    """And nothing else is: byte code, logs, and reading it."""
    package = tmp_path / "package"
    (package / "deep").mkdir(parents=True)
    for name in ("a.py", "deep/b.py"):
        (package / name).write_text("pass")
    there = Installation([package])
    (package / "deep" / "b.pyc").write_bytes(b"")
    assert (package / "a.py").read_text() == "pass"
    assert not there.replaced()
    match change:
        case "edited":
            os.utime(package / "deep" / "b.py", ns=(1, 1))
        case "added":
            (package / "deep" / "c.py").touch()
        case "removed":
            (package / "a.py").unlink()
        case "directory":
            shutil.rmtree(package / "deep")
        case "all":
            shutil.rmtree(tmp_path)
    assert there.replaced()
    assert not Installation([package]).replaced()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of both packages, as pip would install them."""
    for package in PACKAGES:
        skipped = shutil.ignore_patterns("__pycache__", "native", "*.so", "*.gguf")
        shutil.copytree(package, tmp_path / "site" / package.name, ignore=skipped)
    return tmp_path / "site"


@pytest.fixture
def client(site: Path, tmp_path: Path, gguf: Path) -> Iterator[Client]:
    """A daemon that runs from that copy, with a tiny model."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    shutil.copy(gguf, home / "models" / "tiny.gguf")
    (home / "config.toml").write_text('[models]\ndefault = "tiny"\n')
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(site), "HOME": str(home),
        "LOCALSPEC_CONFIG": str(home / "config.toml"), "LOCALSPEC_MODELS": str(home / "models"),
    }  # fmt: skip
    socket = tmp_path / "s"
    command = [sys.executable, "-P", "-m", "localspec_daemon", "--socket", str(socket)]
    with subprocess.Popen(command, env=environment) as daemon:
        client = Client(socket)
        try:
            _answers(client, daemon)
            yield client
        finally:
            daemon.send_signal(signal.SIGTERM)


def _answers(client: Client, daemon: subprocess.Popen[bytes]) -> None:
    while daemon.poll() is None:
        try:
            client.status()
        except NotRunning:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("The daemon ended.")


def test_a_daemon_goes_on_after_an_update_and_its_status_says_so(
    site: Path, client: Client
) -> None:
    """New workers are of the new files; one that cannot work with it names the restart."""
    assert not client.status()["updated"]
    worker = site / "localspec" / "worker" / "__main__.py"
    worker.write_text("import sys\nsys.exit(7)\n")
    assert client.status()["updated"]
    with pytest.raises(WorkerCrashed) as refused:
        list(client.chat([{"role": "user", "content": "Hello"}], max_tokens=1))
    assert refused.value.fix == RESTART
    assert client.status()["updated"]
    assert client.models()
