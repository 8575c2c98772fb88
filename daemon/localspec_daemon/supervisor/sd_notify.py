"""Sends states to systemd: sd_notify(3), sd_watchdog_enabled(3)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*lines: str) -> None:
    """Send states such as "READY=1" to the service manager, if one listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
    ):
        channel.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        channel.sendall("\n".join(lines).encode())


def watchdog_seconds() -> float | None:
    """The watchdog's time limit in seconds; None where it is not enabled for this process."""
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if meant and microseconds.isdecimal() else None
