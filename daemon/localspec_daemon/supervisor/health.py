"""The activity of a process, as the system counts it: it tells work from a hang without asking."""

from __future__ import annotations

from typing import TypeAlias

import psutil

Activity: TypeAlias = tuple[float, ...]
"""Seconds of processor time, and on Linux bytes read: a working process soon has other values."""


def activity(pid: int) -> Activity | None:
    """The activity of a process so far; None where the system does not tell.

    It stays the same for a stopped process and for one whose threads all wait for each other. It
    changes for one that computes, and on Linux for one that still gets data from a slow disk, pages
    of mapped files included.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        user, system, *_ = process.cpu_times()
        if not psutil.LINUX:
            return user, system
        read = process.io_counters()
    except Exception:  # noqa: BLE001 - no descriptor is free, /proc/PID/io is empty or missing, ...
        return None
    return user, system, read.read_chars, read.read_bytes
