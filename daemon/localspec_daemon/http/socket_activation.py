"""Sockets that systemd opens before the daemon starts, and keeps afterwards: sd_listen_fds(3)."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import MutableMapping
from pathlib import Path

from localspec.errors import ConfigError, Forbidden
from localspec_daemon.http.listen import WRITABLE_BY_OTHERS, Listener

FIRST_DESCRIPTOR = 3


def names(environ: MutableMapping[str, str], pid: int) -> list[str]:
    """Names of the sockets handed to this process, in their order; [] for none.

    The variables are removed from `environ`: they are not meant for child processes.
    """
    listen_pid, count, called = (
        environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    )
    if listen_pid != str(pid) or not count.isdecimal():
        return []
    given = called.split(":") if called else []
    return (given + ["unknown"] * int(count))[: int(count)]


def listeners(first: int = FIRST_DESCRIPTOR) -> list[Listener]:
    """The sockets that systemd listens on for us; it owns them, so they outlive this process.

    Raises ConfigError, Forbidden for a socket that LocalSpec would not have opened itself.
    """
    found = []
    with contextlib.ExitStack() as stack:
        for descriptor, name in enumerate(names(os.environ, os.getpid()), first):
            os.set_inheritable(descriptor, False)
            try:
                found.append(stack.enter_context(Listener(fileno=descriptor)))
            except OSError as error:
                raise _refused(name, "is no socket") from error
            _check(found[-1], name)
        stack.pop_all()
    return found


def _check(listener: Listener, name: str) -> None:
    """Raise unless the socket is a listening stream, on a private path or on loopback."""
    listening = 0
    with contextlib.suppress(OSError):
        listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listening or listener.type != socket.SOCK_STREAM:
        raise _refused(name, "does not listen as a stream")
    address = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        _check_path(name, address)
    elif listener.family not in {socket.AF_INET, socket.AF_INET6}:
        raise _refused(name, "is neither a Unix socket nor TCP")
    elif not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
        raise _refused(name, f"is on {address[0]}, which is not loopback")


def _check_path(name: str, address: str | bytes) -> None:
    if not address or not isinstance(address, str):
        raise _refused(name, "has no path, so every user can connect to it")
    if Path(address).stat().st_mode & WRITABLE_BY_OTHERS:  # who may write may connect
        raise Forbidden(
            f"The socket {address} that systemd handed over is open to others.",
            fix="Set SocketMode=0600 in its unit.",
        )


def _refused(name: str, why: str) -> ConfigError:
    return ConfigError(
        f'The socket "{name}" that systemd handed over {why}.',
        fix="systemctl --user cat localspec.socket  # shows where it comes from",
    )
