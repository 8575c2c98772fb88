"""The service under a real user manager of systemd: `pytest -m systemd`, as root on Linux.

The manager runs without capabilities in a mount namespace of its own, where the system looks as if
systemd had booted it. Root is needed to make that; what runs inside has the rights of a user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from localspec.client import Client

pytestmark = pytest.mark.systemd

MANAGER = """
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
mkdir -m 700 /run/me
for tree in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
    if [ -f $tree/cgroup.procs ]; then
        mkdir -p $tree/localspec-test
        echo $$ > $tree/localspec-test/cgroup.procs
    fi
done
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs /lib/systemd/systemd --user
"""
OWN_RUN = {"XDG_RUNTIME_DIR": "/run/me"}


class Inside(NamedTuple):
    """The manager's namespace."""

    pid: int

    def run(self, *command: str) -> str:
        """Runs a command there; raises if it fails."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", *command],
            env=os.environ | OWN_RUN, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def localspec(self, *arguments: str) -> str:
        """Runs `localspec ARGUMENTS` there."""
        return self.run(sys.executable, "-m", "localspec.cli.main", *arguments)

    def property(self, name: str, unit: str = "localspec.service") -> str:
        """Returns the manager's value of a unit's property."""
        return self.run("systemctl", "--user", "show", "-P", name, unit).strip()

    def daemon(self) -> int:
        """Returns the service's pid."""
        return int(self.property("MainPID"))

    def client(self) -> Client:
        """Returns a client of the socket, reached from outside through /proc."""
        return Client(Path(f"/proc/{self.pid}/root/run/me/localspec/localspec.sock"))


@pytest.fixture
def manager(own_home: Path) -> Iterator[Inside]:  # noqa: ARG001  its environment first
    """Runs a user manager with an empty home."""
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", MANAGER],
        env=os.environ | OWN_RUN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        inside = Inside(process.pid)
        until(lambda: Path(f"/proc/{process.pid}/root/run/me/systemd/private").exists())
        inside.run("systemctl", "--user", "is-system-running", "--wait")
        yield inside
        process.terminate()


def until(fact: Callable[[], bool]) -> None:
    """Waits until the condition holds, at most for the test's timeout."""
    while not fact():
        os.sched_yield()


def test_install_starts_a_hardened_daemon_and_uninstall_leaves_nothing(
    manager: Inside, own_home: Path
) -> None:
    """System calls are filtered, privileges denied; after a stop a connection starts it again."""
    manager.localspec("service", "install")
    first = manager.daemon()
    assert manager.client().status()["pid"] == first
    assert "no model is loaded" in manager.property("StatusText")
    kernel = Path(f"/proc/{first}/status").read_text()
    assert "Seccomp:\t2\n" in kernel
    assert "NoNewPrivs:\t1\n" in kernel
    assert "systemctl --user stop localspec.socket" in manager.localspec("stop")
    assert manager.property("ActiveState") == "inactive"
    assert manager.client().status()["pid"] == manager.daemon() != first
    manager.localspec("service", "install")
    manager.run("systemctl", "--user", "reload", "localspec.service")
    until(lambda: manager.property("SubState") == "running")
    manager.localspec("service", "uninstall")
    assert "localspec" not in manager.run("systemctl", "--user", "list-units", "--all")
    assert [path for path in (own_home / "config").rglob("*") if path.is_file()] == []
    assert not manager.client().socket_path.exists()  # type: ignore[union-attr]


def test_a_daemon_that_stands_still_is_replaced_and_who_asks_meanwhile_waits(
    manager: Inside, own_home: Path
) -> None:
    """The watchdog ends it; the client's connection is to a socket that outlives it."""
    manager.localspec("service", "install")
    drop_in = own_home / "config" / "systemd" / "user" / "localspec.service.d" / "quick.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n")
    manager.run("systemctl", "--user", "daemon-reload")
    manager.run("systemctl", "--user", "restart", "localspec.service")
    first = manager.daemon()
    os.kill(first, signal.SIGSTOP)
    assert manager.client().status()["pid"] != first
    assert manager.property("NRestarts") == "1"


def test_install_takes_over_from_a_daemon_that_was_started_by_hand(
    manager: Inside, own_home: Path
) -> None:
    """Requests are served by one daemon, then by the other; none is refused in between."""
    manager.localspec("start")
    by_hand = manager.client().status()["pid"]
    over, answered = threading.Event(), []

    def ask() -> None:
        while not over.is_set():
            answered.append(manager.client().status()["pid"])

    with ThreadPoolExecutor(1) as somebody:
        asking = somebody.submit(ask)
        said = manager.localspec("service", "install")
        over.set()
        asking.result()
    assert f"stopped: pid {by_hand}; the service takes over" in said
    by_service = manager.daemon()
    assert list(dict.fromkeys(answered)) in ([by_hand, by_service], [by_hand])
    assert manager.client().status()["pid"] == by_service != by_hand
    manager.localspec("service", "uninstall")
    assert "localspec" not in manager.run("systemctl", "--user", "list-units", "--all")
    assert [path for path in (own_home / "config").rglob("*") if path.is_file()] == []
    assert not manager.client().socket_path.exists()  # type: ignore[union-attr]
