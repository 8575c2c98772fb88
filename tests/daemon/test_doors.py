"""The private socket and the loopback port: their owner, and who may connect."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
from full_disk import full_disk

from localspec.errors import AlreadyRunning, ConfigError, DiskFull, Forbidden, LocalSpecError
from localspec_daemon.http import listen
from localspec_daemon.log import OneLineFormatter


def test_the_socket_is_private_before_it_listens_whatever_the_umask(tmp_path: Path) -> None:
    """0600 in a 0700 directory under umask 0; a connection before `listen` is refused."""
    before = os.umask(0)
    try:
        with listen.unix(tmp_path / "run" / "s") as door:
            assert stat.S_IMODE((tmp_path / "run" / "s").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
            with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
                early.connect(str(tmp_path / "run" / "s"))
            assert os.umask(0) == 0
            assert not door.get_inheritable()
    finally:
        os.umask(before)
    assert not (tmp_path / "run" / "s").exists()


def test_nobody_ever_sees_another_mode(tmp_path: Path) -> None:
    """A thread that stats the path all the time finds 0600 or no file."""
    path = tmp_path / "s"
    tmp_path.chmod(0o700)
    modes: set[int] = set()
    over = threading.Event()

    def race() -> None:
        while not over.is_set():
            try:
                modes.add(stat.S_IMODE(path.lstat().st_mode))
            except FileNotFoundError:
                continue

    racer = threading.Thread(target=race)
    before = os.umask(0)
    racer.start()
    try:
        opened = 0
        while opened < 300 or not modes:  # a racer that never looked would prove nothing
            with listen.unix(path) as door:
                door.listen()
            opened += 1
    finally:
        over.set()
        racer.join()
        os.umask(before)
    assert modes == {0o600}


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    """A socket is replaced only if a probe gets no answer, whether or not a lock is held."""
    tmp_path.chmod(0o700)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AlreadyRunning), listen.unix(path):
            pass
    assert path.exists()
    with listen.unix(path) as door:
        door.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_of_two_daemons_exactly_one_wins_also_before_it_listens(tmp_path: Path) -> None:
    """The lock decides, for as long as the first daemon lives."""
    path = tmp_path / "run" / "s"
    with (
        listen.unix(path),
        pytest.raises(AlreadyRunning, match="Another daemon"),
        listen.unix(path),
    ):
        pass
    with listen.unix(path):
        pass


def test_a_socket_that_another_daemon_made_since_is_left_alone(tmp_path: Path) -> None:
    """A daemon removes at its end only the socket that it made."""
    path = tmp_path / "run" / "s"
    with listen.unix(path):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"


def test_an_impossible_place_is_refused_with_a_reason(tmp_path: Path) -> None:
    """The path is too long, its directory is writable for others, or a file is in the way."""
    with pytest.raises(ConfigError, match="the system allows"), listen.unix(tmp_path / ("x" * 200)):
        pass
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(Forbidden, match="0777"), listen.unix(shared / "s"):
        pass
    assert stat.S_IMODE(shared.stat().st_mode) == 0o777, "not ours to change"
    tmp_path.chmod(0o700)
    (tmp_path / "s").write_text("precious")
    with pytest.raises(ConfigError, match="not a socket"), listen.unix(tmp_path / "s"):
        pass
    assert (tmp_path / "s").read_text() == "precious"


def test_the_kernel_says_who_calls(tmp_path: Path) -> None:
    """On a Unix socket the kernel gives the caller's uid; on TCP it gives none."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert listen.peer_uid(ours) == os.getuid()
    with listen.tcp(("127.0.0.1", 0)) as door:
        assert listen.peer_uid(door) != os.getuid() or os.getuid() == 0
    assert not list(tmp_path.iterdir())


def test_another_user_is_turned_away_before_a_byte_is_read(tmp_path: Path) -> None:
    """A caller with another uid finds the connection closed, whatever the socket's mode."""
    path = tmp_path / "run" / "s"
    with listen.unix(path) as door:
        door.listen()
        for owner, enters in ((lambda: os.getuid() + 1, False), (os.getuid, True)):
            door.owner = owner
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(str(path))
                if enters:
                    door.accept()[0].close()
                    continue
                with pytest.raises(ConnectionAbortedError):
                    door.accept()
                assert caller.recv(1) == b""


def test_a_full_house_turns_callers_away_with_an_answer(tmp_path: Path) -> None:
    """Over the connection limit a caller gets 503 as JSON, unread; later ones are served again."""
    with listen.unix(tmp_path / "run" / "s") as door:
        door.listen()
        door.full = lambda: True
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "run" / "s"))
            with pytest.raises(ConnectionAbortedError):
                door.accept()
            answer = client.makefile("rb").read()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert f"Content-Length: {len(body)}".encode() in head
        assert body.startswith(b'{"error":{')
        door.full = lambda: False
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "run" / "s"))
            connection, _ = door.accept()
            connection.close()


def test_the_token_is_made_once_private_and_not_kept(tmp_path: Path) -> None:
    """The file stays the same at every start; one that others could read is refused."""
    path = tmp_path / "state" / "token"
    first = listen.token(path)
    assert listen.token(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().strip()) >= 43
    assert path.read_bytes().strip() != first
    for mode in (0o644, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(Forbidden, match="not a private file"):
            listen.token(path)


def test_a_full_disk_at_the_first_start_leaves_no_token_that_refuses_the_next(
    tmp_path: Path,
) -> None:
    """The error is a sentence, and a token is made once there is room, also over an empty file."""
    path = tmp_path / "state" / "token"
    with full_disk(), pytest.raises(DiskFull, match="no room"):
        listen.token(path)
    assert not list(path.parent.iterdir())
    path.touch(mode=0o600)
    assert listen.token(path) == hashlib.sha256(path.read_bytes().strip()).digest()
    assert len(path.read_text()) > 40


def test_a_link_at_lock_or_token_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """A link there could make the daemon open, or fill, another file."""
    tmp_path.chmod(0o700)
    (tmp_path / "precious").write_text("mine")
    for name in ("token", "s.lock"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    with pytest.raises(Forbidden, match="token is a symbolic link"):
        listen.token(tmp_path / "token")
    with pytest.raises(Forbidden, match="lock is a symbolic link"), listen.unix(tmp_path / "s"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_home_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """The sentence names the directory, the lock or the token."""
    (tmp_path / "home").write_text("a file, where a directory should be")
    with (
        pytest.raises(LocalSpecError, match="cannot be used"),
        listen.unix(tmp_path / "home/run/s"),
    ):
        pass
    with pytest.raises(LocalSpecError, match="cannot be used"):
        listen.token(tmp_path / "home" / "token")


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    """A model's name or tokenizer cannot forge a log line, nor control a reader's terminal."""
    said = logging.LogRecord(
        "a", logging.INFO, "", 0, "pre = %s", ("x\n2026 ERROR forged\x1b[2J",), None
    )
    line = OneLineFormatter("%(levelname)s %(message)s").format(said)
    assert line == "INFO pre = x\\n2026 ERROR forged\\x1b[2J"
    try:
        int("one\n2026 ERROR forged")
    except ValueError:
        said.exc_info = sys.exc_info()
    first, *trace = OneLineFormatter("%(message)s").format(said).split("\n")
    assert first.startswith("pre = ")
    assert all(line.startswith("  | ") for line in trace)


def test_a_taken_port_says_so() -> None:
    """The second daemon on a port does not start, and names the process that holds it."""
    with listen.tcp(("127.0.0.1", 0)) as door:
        door.listen()
        with pytest.raises(AlreadyRunning, match=rf"cannot be used: .*{os.getpid()}"):
            listen.tcp(door.getsockname())
