"""Sockets that systemd opened: their adoption, their refusal, and that they outlive the daemon."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.client import Client
from localspec.errors import ConfigError, Forbidden, LocalSpecError
from localspec_daemon.http import listen, socket_activation

SERVE = Path(__file__).with_name("serve.py")
HAND_OVER = """
import os, sys
for target, source in enumerate(map(int, sys.argv[1].split(",")), 3):
    os.dup2(source, target)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(target - 2)}
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Does what systemd does between fork and exec."""


@contextmanager
def served(harness: Any, *doors: socket.socket) -> Iterator[subprocess.Popen[str]]:
    """Runs a daemon with these sockets and ends it in order."""
    numbers = [door.fileno() for door in doors]
    command = [sys.executable, "-c", HAND_OVER, ",".join(map(str, numbers))]
    with subprocess.Popen(
        [*command, SERVE, harness.config_path, harness.socket],
        pass_fds=numbers, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def private(harness: Any) -> Iterator[socket.socket]:
    """The daemon's socket, held by this process, as systemd holds it."""
    harness.socket.parent.mkdir(mode=0o700)
    with private_at(harness.socket) as door:
        yield door


def private_at(path: Path) -> socket.socket:
    """Returns a socket like that of a unit with SocketMode=0600."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    path.chmod(0o600)
    door.listen()
    return door


@given(
    pid=st.integers(1, 9), meant=st.integers(1, 9),
    called=st.lists(st.text("ab", min_size=1), max_size=4), count=st.integers(0, 4),
)  # fmt: skip
def test_only_the_process_that_is_meant_gets_them_and_nobody_after_it(
    pid: int, meant: int, called: list[str], count: int
) -> None:
    """It gets all of them, by name where they have one; the variables are removed."""
    environ = {
        "LISTEN_PID": f"{meant}",
        "LISTEN_FDS": f"{count}",
        "LISTEN_FDNAMES": ":".join(called),
    }
    found = socket_activation.names(environ, pid)
    assert environ == {}
    assert len(found) == (count if pid == meant else 0)
    assert all(name == given for name, given in zip(found, called, strict=False))
    assert set(found[len(called) :]) <= {"unknown"}


def test_rubbish_in_the_environment_is_no_socket() -> None:
    """An invalid or missing count gives no sockets."""
    for count in ("", "-1", "two", "1.0"):
        assert socket_activation.names({"LISTEN_PID": "7", "LISTEN_FDS": count}, 7) == []


def handed(given: socket.socket, monkeypatch: pytest.MonkeyPatch) -> list[listen.Listener]:
    """Returns the result of adopting one socket with the name "door"."""
    for name, value in (("PID", os.getpid()), ("FDS", 1), ("FDNAMES", "door")):
        monkeypatch.setenv(f"LISTEN_{name}", str(value))
    return socket_activation.listeners(given.detach())


def opened(kind: str, directory: Path) -> tuple[socket.socket, type[LocalSpecError], str]:
    """A socket with unsafe properties, and its error."""
    if kind == "everywhere":
        door = socket.create_server(("0.0.0.0", 0))  # noqa: S104 - what must be refused
        return door, ConfigError, "not loopback"
    if kind == "datagram":
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM), ConfigError, "does not listen"
    door = socket.socket(socket.AF_UNIX)
    if kind == "abstract":
        door.bind(f"\0localspec-{os.getpid()}")
        door.listen()
        return door, ConfigError, "has no path"
    door.bind(str(directory / "s"))
    (directory / "s").chmod(0o666)
    if kind == "silent":
        return door, ConfigError, "does not listen"
    door.listen()
    return door, Forbidden, "open to others"


@pytest.mark.parametrize("kind", ["everywhere", "datagram", "abstract", "silent", "open to all"])
def test_what_we_would_not_open_we_do_not_serve(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon names the unit's mistake and does not start."""
    door, error, why = opened(kind, tmp_path)
    with pytest.raises(error, match=why):
        handed(door, monkeypatch)


def test_a_descriptor_that_is_no_socket_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a file of OpenFile=."""
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "1")
    with (tmp_path / "file").open("wb") as file, pytest.raises(ConfigError, match="is no socket"):
        socket_activation.listeners(file.fileno())


def test_who_connects_while_the_daemon_restarts_waits_and_is_answered(
    harness: Any, private: socket.socket
) -> None:
    """Another process listens on the socket, which stays the same after the daemon's end."""
    client = Client(harness.socket)
    born = harness.socket.stat().st_ino
    with served(harness, private) as first:
        assert client.status()["activated"] is True
        assert client.status()["pid"] == first.pid
    with socket.socket(socket.AF_UNIX) as early:
        early.settimeout(60)
        early.connect(str(harness.socket))
        early.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        with served(harness, private) as second:
            assert early.recv(4096).startswith(b"HTTP/1.0 200 ")
            assert client.status()["pid"] == second.pid
    assert harness.socket.stat().st_ino == born


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_who_connects_while_one_daemon_makes_way_for_another_is_answered(harness: Any) -> None:
    """The next daemon waits for the first one's lock, and the socket keeps connections."""
    harness.socket.parent.mkdir(mode=0o700)
    with contextlib.ExitStack() as before:
        before.enter_context(listen.unix(harness.socket))
        harness.socket.unlink()
        with private_at(harness.socket) as door, served(harness, door) as after:
            with socket.socket(socket.AF_UNIX) as early:
                early.settimeout(60)
                early.connect(str(harness.socket))
                early.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                while after.poll() is None and not waits(after.pid, harness.socket):
                    os.sched_yield()
                before.close()
                assert early.recv(4096).startswith(b"HTTP/1.0 200 ")
            assert Client(harness.socket).status()["pid"] == after.pid


def waits(pid: int, path: Path) -> bool:
    """Whether a process has opened the lock beside a socket."""
    lock = path.with_name(f"{path.name}.lock")
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if each.readlink() == lock:
                return True
    return False


def test_a_port_that_was_handed_over_asks_for_the_token(
    harness: Any, private: socket.socket
) -> None:
    """Both sockets serve; other configured ones are opened as usual."""
    harness.configure(server={"tcp": "127.0.0.1:0"})
    with listen.tcp(("127.0.0.1", 0)) as port:
        port.listen()
        with served(harness, private, port):
            status = Client(harness.socket).status()
            assert status["tcp"] not in {None, listen.address(port)}
            stranger = Client(tcp=port.getsockname())
            with pytest.raises(Forbidden):
                stranger.status()
            token = (Path(os.environ["XDG_STATE_HOME"]) / "localspec" / "token").read_text()
            friend = Client(tcp=port.getsockname(), token=token.strip())
            assert friend.status()["pid"] == status["pid"]


def test_a_door_elsewhere_does_not_replace_the_one_of_the_configuration(
    harness: Any, tmp_path: Path
) -> None:
    """The daemon also listens at the configured path, where clients look."""
    with private_at(tmp_path / "other") as other, served(harness, other) as daemon:
        assert Client(tmp_path / "other").status()["pid"] == daemon.pid
        assert Client(harness.socket).status()["pid"] == daemon.pid
    assert not harness.socket.exists()
    assert (tmp_path / "other").exists()


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd is not here")
def test_systemd_starts_the_daemon_for_the_first_who_connects(harness: Any) -> None:
    """systemd-socket-activate hands over a path and a port, and the daemon tells them apart."""
    harness.socket.parent.mkdir(mode=0o700)
    with listen.tcp(("127.0.0.1", 0)) as free:
        port = listen.address(free)
    keep = [f"-E{name}" for name in os.environ if name.startswith(("PYTHON", "XDG", "LOCALSPEC"))]
    doors = ["-l", harness.socket, "-l", port, "--fdname=unix:tcp"]
    with subprocess.Popen(
        ["systemd-socket-activate", *keep, *doors,
         sys.executable, SERVE, harness.config_path, harness.socket],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        heard = [process.stderr.readline() for _ in (harness.socket, port)]
        assert all(line.startswith("Listening on ") for line in heard)
        status = Client(harness.socket).status()
        assert (status["pid"], status["tcp"]) == (process.pid, port)
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert harness.socket.exists()
