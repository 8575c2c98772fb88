"""Limits of connections: which are closed for which, at any limit of open files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import tcp_client

from localspec import paths
from localspec.errors import Busy
from localspec_daemon.http.connections import (
    MOST_ON_SOCKET,
    RESERVED_DESCRIPTORS,
    Connections,
    Shares,
    shares,
)


@given(st.integers(0, 1 << 20), st.integers(1, MOST_ON_SOCKET))
def test_all_connections_together_leave_the_daemon_its_own_files(
    descriptors: int, most: int
) -> None:
    """At any limit each kind has at least one place, and all leave files for the daemon."""
    found = shares(descriptors, most)
    assert min(found) >= 1
    assert found.socket <= most
    assert sum(found) <= max(3, descriptors - RESERVED_DESCRIPTORS)


class Caller:
    """A connection that notes when it is closed."""

    open = True

    def close_now(self) -> None:
        """Closes it."""
        self.open = False


@given(
    st.tuples(*[st.integers(1, 4)] * 3),
    st.lists(st.sampled_from(["socket", "unknown", "token", "leave"]), max_size=60),
)
def test_nobody_takes_room_from_those_above(sizes: tuple[int, int, int], events: list[str]) -> None:
    """A new TCP connection closes the oldest one without the token, and no other."""
    room = Connections(Shares(*sizes))
    owners: list[Caller] = []
    known: list[Caller] = []
    unknown: list[Caller] = []
    for event in events:
        one = Caller()
        if event == "socket" and not room.full:
            room.add(one, on_socket=True)
            owners.append(one)
        elif event in {"unknown", "token"}:
            room.add(one, on_socket=False)
            unknown = [*unknown, one][-room.shares.unknown :]
        elif event == "leave" and unknown:
            room.remove(unknown.pop())
        if event == "token":
            with contextlib.suppress(Busy):
                room.admit(one)
                known.append(one)
                unknown.remove(one)
        assert room.full == (len(owners) >= room.shares.socket)
        assert len(known) <= room.shares.known
        assert all(each.open for each in (*owners, *known, *unknown))
        assert all(map(room.is_unknown, unknown))


def test_hundreds_of_idle_strangers_keep_out_neither_the_owner_nor_the_token(
    harness: Any, daemon: Any
) -> None:
    """Socket and TCP port answer at once, whatever number of connections is silent or half sent."""
    harness.configure(server={"tcp": "127.0.0.1:0"})
    half = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n{"
    beginnings = (b"", b"GET /v1/mod", b"GET /health HTTP/1.1\r\nX: ", half)

    async def scene() -> None:
        async with daemon(harness) as it, contextlib.AsyncExitStack() as stack:
            host, _, port = (await it.get("/v1/status"))["tcp"].rpartition(":")
            for number in range(520):
                _, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                writer.write(beginnings[number % len(beginnings)])
            assert (await it.ask("say hello"))[0] == 200
            async with tcp_client(it) as http, http.get("/v1/models") as response:
                assert response.status == 200

    asyncio.run(scene())


def test_a_stranger_has_seconds_and_who_showed_the_token_keeps_the_line(
    harness: Any, daemon: Any
) -> None:
    """A connection without the token is closed within seconds, also on open endpoints and /page."""
    harness.configure(server={"tcp": "127.0.0.1:0"})
    health = b"GET /health HTTP/1.1\r\nHost: %b\r\n%b\r\n"

    async def scene() -> None:
        async with daemon(harness, unknown_seconds=0.2) as it:
            address = (await it.get("/v1/status"))["tcp"].encode()
            host, _, port = address.decode().rpartition(":")
            token = (paths.state_dir() / "token").read_text().strip()
            for sent in (b"", b"GET /hea", health % (address, b"")):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(sent)
                await reader.read()  # until it is closed
                writer.close()
            reader, writer = await asyncio.open_connection(host, int(port))
            models = b"GET /v1/models HTTP/1.1\r\nHost: %b\r\nX-Api-Key: %b\r\n\r\n"
            stranger, other = await asyncio.open_connection(host, int(port))
            writer.write(models % (address, token.encode()))
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await stranger.read()  # closed: as long ago as the other began
            other.close()
            writer.write(models % (address, token.encode()))
            await reader.readuntil(b"HTTP/1.1 200")
            writer.close()

    asyncio.run(scene())


@contextlib.contextmanager
def served(harness: Any, files: int) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a daemon process with this limit of open files."""
    command = [sys.executable, "-c", LIMITED, str(files)]
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        manager.bind(str(harness.root / "manager"))
        log = stack.enter_context((harness.root / "log").open("wb"))
        process = stack.enter_context(
            subprocess.Popen(
                [*command, str(harness.config_path), str(harness.socket)],
                env=os.environ | {"NOTIFY_SOCKET": manager.getsockname()},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        )
        stack.callback(process.kill)
        while not manager.recv(4096).startswith(b"READY=1"):
            pass
        yield process


LIMITED = f"""
import asyncio, resource, sys
files = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import serve
from localspec_daemon.log import log_to_stderr
log_to_stderr()
asyncio.run(serve.main())
"""


@pytest.mark.parametrize("files", [64, 128, 256])
def test_at_any_limit_of_open_files_it_answers_logs_little_and_stops(
    harness: Any, files: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three hundred connections to socket and port use up no limit, and SIGTERM still works."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    harness.configure(server={"tcp": "127.0.0.1:0", "drain_seconds": 1})
    with served(harness, files) as process, contextlib.ExitStack() as stack:
        transport = httpx2.HTTPTransport(uds=str(harness.socket))
        http = stack.enter_context(httpx2.Client(transport=transport, base_url="http://x"))
        tcp = http.get("/v1/status").json()["tcp"]
        host, _, port = tcp.rpartition(":")
        for number in range(300):
            family = socket.AF_UNIX if number % 2 else socket.AF_INET
            one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(str(harness.socket) if number % 2 else (host, int(port)))
        body = {"messages": [{"role": "user", "content": "say hello"}]}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (harness.root / "log").stat().st_size < 50_000


def test_the_soft_limit_is_raised_at_start() -> None:
    """The soft limit is raised to the wanted number or the hard limit; macOS gives 256."""
    code = (
        "import resource\n"
        "from localspec_daemon.http.connections import descriptors\n"
        "for wanted, hard in ((4096, 5000), (300, 300)):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
        "    assert descriptors() == wanted\n"
        "    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)\n"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5000:
        pytest.skip("the hard limit is lower here")
    subprocess.run([sys.executable, "-c", code], check=True)


FULL = """
import os, resource, socket, sys
from localspec_daemon.http import listen
from pathlib import Path
path = Path(sys.argv[1])
with listen.unix(path) as door:
    door.listen()
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)
    for client in clients:
        client.connect(str(path))
        try:
            door.accept()
        except ConnectionAbortedError:
            assert client.recv(99).startswith(b"HTTP/1.1 503 ")
        else:
            raise SystemExit("a connection was accepted")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it counts its files in /proc")
def test_who_comes_when_no_file_can_be_opened_is_told_so(tmp_path: Path) -> None:
    """Connections are refused one by one: an unaccepted one would wake the loop for ever."""
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "s")], check=True)


def _as_nobody(path: Path) -> str:
    """Returns the answer's bytes, or the error, that another user of this machine gets."""
    there, here = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
                caller.connect(str(path))
                caller.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
                said = caller.recv(99).decode()
        except OSError as error:
            said = type(error).__name__
        os.write(here, said.encode() or b"nothing")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(here)
    with os.fdopen(there, "rb") as told:
        return told.read().decode()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_another_user_of_the_machine_gets_nothing(
    harness: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another user is refused by the socket's mode, and also when that was opened."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with served(harness, 256):
        assert _as_nobody(harness.socket) == "PermissionError"
        modes = {place: place.stat().st_mode for place in (harness.socket, *harness.socket.parents)}
        modes = {place: mode for place, mode in modes.items() if not mode & 0o001}
        try:
            for place, mode in modes.items():
                place.chmod(mode | 0o011 if place.is_dir() else 0o666)
            assert _as_nobody(harness.socket) in {
                "nothing",
                "BrokenPipeError",
                "ConnectionResetError",
            }
        finally:
            for place, mode in modes.items():
                place.chmod(mode)
