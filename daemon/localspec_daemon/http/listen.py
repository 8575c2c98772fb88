"""Listening sockets: a private Unix socket and, if it is configured, a loopback TCP port."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec import paths
from localspec.errors import AlreadyRunning, ConfigError, Forbidden, of_system
from localspec_daemon.http.port_owner import port_owner

MAX_PATH_BYTES = 103 if sys.platform == "darwin" else 107
BACKLOG = 1024
"""A Unix socket with a full backlog refuses at once, which looks like a stopped daemon."""
PROBE_SECONDS = 2.0
PRIVATE = 0o600
WRITABLE_BY_OTHERS = 0o022
_BUSY_BODY = (
    b'{"error":{"message":"Too many connections.","type":"rate_limit_error","code":"busy"}}'
)
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_BUSY_BODY), _BUSY_BODY)
)


class Listener(socket.socket):
    """A listening socket that checks every connection before a byte of it is read.

    On a Unix socket the peer's user id must be that of `owner`; while `full` is true, every
    connection is answered with 503. One file is kept open in reserve. When the process has no file
    descriptor left, this file is closed, and its descriptor serves to accept a waiting connection
    and answer 503: otherwise the event loop would call `accept` for ever.
    """

    full: Callable[[], bool] = staticmethod(lambda: False)
    owner: Callable[[], int] = staticmethod(os.getuid)

    _reserve: int | None = None

    def listen(self, _accepts: int = 0, /) -> None:
        """Delegate to socket.listen, always with a backlog of BACKLOG."""
        super().listen(BACKLOG)
        if self._reserve is None:
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Delegate to socket.close."""
        self._give_reserve()
        super().close()

    def accept(self) -> tuple[socket.socket, object]:
        """Delegate to socket.accept. Raises ConnectionAbortedError for a refused connection."""
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            self._refuse_one()
            raise ConnectionAbortedError("no more open files") from None
        if self.family == socket.AF_UNIX and peer_uid(connection) != self.owner():
            connection.close()
            raise ConnectionAbortedError("another user")
        if self.full():
            _refuse(connection)
            raise ConnectionAbortedError("too many connections")
        return connection, address

    def _refuse_one(self) -> None:
        """Accept the oldest waiting connection with the reserved descriptor, and refuse it."""
        self._give_reserve()
        with contextlib.suppress(OSError):
            _refuse(super().accept()[0])
        with contextlib.suppress(OSError):  # another process took the descriptor: retried next time
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_reserve(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None


def _refuse(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(_BUSY)
    connection.close()


def peer_uid(connection: socket.socket) -> int | None:
    """The user id of the peer, from the kernel; None if it is unknown."""
    try:
        if sys.platform == "darwin":
            local_level, local_peercred, size = 0, 1, 76  # <sys/un.h>, struct xucred
            credentials = connection.getsockopt(local_level, local_peercred, size)
            _, uid = struct.unpack_from("=II", credentials)
            return int(uid)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("=iII", credentials)
        return int(uid)
    except OSError:
        return None


@contextmanager
def unix(path: Path) -> Iterator[Listener]:
    """The private socket, bound and not yet listening; its file is removed at the end.

    Its lock is held until then, so only one of two daemons has the path, also while the first one
    drains. Raises AlreadyRunning, ConfigError, Forbidden.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(
            f"The socket path {path} has {len(os.fsencode(path))} bytes; the system allows "
            f"{MAX_PATH_BYTES}.",
            fix="Set server.socket to a shorter path.",
            param="server.socket",
        )
    with locked(path):
        _remove_stale(path)
        listener = Listener(socket.AF_UNIX, socket.SOCK_STREAM)
        with listener:
            mask = os.umask(0o177)
            try:
                with _explained(path):
                    listener.bind(str(path))
            finally:
                os.umask(mask)
            born = path.lstat()
            if stat.S_IMODE(born.st_mode) != PRIVATE:
                raise Forbidden(f"{path} could not be made private.", fix="Move server.socket.")
            try:
                yield listener
            finally:
                with contextlib.suppress(FileNotFoundError):
                    if path.lstat().st_ino == born.st_ino:
                        path.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a socket's path. Raises AlreadyRunning, Forbidden."""
    with lock(path) as taken:
        if not taken():
            raise already_running(path)
        yield


@contextmanager
def lock(path: Path) -> Iterator[Callable[[], bool]]:
    """A function that tries to take the lock of a socket's path; False while another daemon has it.

    Only this user may write to the directory. Raises Forbidden.
    """
    with _explained(path.parent):
        paths.make_directory(path.parent)
        _check_directory(path.parent)
    lock = path.with_name(path.name + ".lock")
    with _explained(lock):
        handle = paths.create(lock, PRIVATE, os.O_RDWR)

    def taken() -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        yield taken
    finally:
        os.close(handle)  # the file stays: removing it would let two daemons lock two files


def tcp(address: tuple[str, int]) -> Listener:
    """A bound socket on loopback. Raises AlreadyRunning when the port is taken."""
    host, port = address
    listener = Listener(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        who = port_owner(port)
        raise AlreadyRunning(
            f"server.tcp = {host}:{port} cannot be used: {error.strerror}"
            + (f", by {who}." if who else "."),
            fix='Choose another server.tcp in the configuration, such as "127.0.0.1:0".',
        ) from error
    return listener


def address(listener: Listener) -> str:
    """The address of a TCP listener as in a URL: "127.0.0.1:8080", "[::1]:8080"."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def token(path: Path) -> bytes:
    """The SHA-256 of the token of TCP callers; the token is made at the first start.

    Only its hash stays in memory. The file is written atomically, so a full disk leaves no partial
    token; an empty file is written again. Raises Forbidden when others could have read the file, or
    when it is a link.
    """
    with _explained(path):
        paths.make_private(path.parent)
        secret = _read_token(path)
        if not secret:
            paths.write_atomically(path, secrets.token_urlsafe(32).encode() + b"\n")
            secret = _read_token(path)
    return hashlib.sha256(secret).digest()


def _read_token(path: Path) -> bytes:
    """The secret; b"" if there is none yet. Raises Forbidden, OSError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o077
        ):
            raise Forbidden(f"{path} is not a private file.", fix=f"Delete it: rm {path}")
        return file.read().strip()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raises an OSError about `path` as an error of this project."""
    try:
        yield
    except OSError as error:
        raise of_system(error, path) from error


def _check_directory(directory: Path) -> None:
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & WRITABLE_BY_OTHERS:
        raise Forbidden(
            f"{directory} is not yours alone to write to (mode "
            f"{stat.S_IMODE(status.st_mode):04o}), so others could take the socket's place.",
            fix=f"chmod 700 {directory}, or set server.socket.",
        )


def _remove_stale(path: Path) -> None:
    """Remove a socket that no daemon answers on. Raises AlreadyRunning, ConfigError."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} is in the way and is not a socket.", fix="Move it away.")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise AlreadyRunning(f"{path} is in use: {error}.", fix="localspec stop") from error
    raise already_running(path)


def already_running(path: Path) -> AlreadyRunning:
    """The error that another daemon has the socket, with the commands that show and end it."""
    return AlreadyRunning(f"Another daemon owns {path}.", fix="localspec status; localspec stop")
