"""The activity of a process, read from /proc: whether it works shows without its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

Activity: TypeAlias = tuple[int, ...]
"""Page faults, clock ticks of all threads, bytes read: a working process soon has other values."""

_MINOR_FAULTS, _MAJOR_FAULTS, _USER, _SYSTEM = 7, 9, 11, 12
"""Places in /proc/PID/stat behind the name, counted from the state; proc(5)."""


def activity(pid: int) -> Activity | None:
    """The activity of a process so far; None where the system does not tell.

    It stays the same for a stopped process and for one whose threads all wait for each other. It
    changes for one that computes, and for one that a slow disk still gives something.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        done = [int(fields[place]) for place in (_MINOR_FAULTS, _MAJOR_FAULTS, _USER, _SYSTEM)]
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except (OSError, IndexError, ValueError):
        return None
    read = (line.split() for line in lines if line.startswith(("rchar", "read_bytes")))
    return (*done, *(int(count) for _, count in read))
