"""Bounds of memory and disk, and a record of the work that prefixes have saved."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from localspec import paths
from localspec.wire.values import PrefixFigures

AUTO = -1
_MEMORY_SHARE, _MEMORY_MOST = 16, 1 << 30
"""A sixteenth of what is free, and at most a gigabyte for each model: the system's own cache of
files holds copies of files on disk as well, and gives way to programs."""
_DISK_SHARE, _DISK_MOST = 10, 16 << 30
"""A tenth of what is free, and at most 16 GiB: half a million tokens of a 1.5B model."""
_SAVED = "saved.json"


def memory_bytes(wanted: int, free_bytes: int) -> int:
    """Bytes for copies in memory, where `free_bytes` are free now."""
    return min(free_bytes // _MEMORY_SHARE, _MEMORY_MOST) if wanted == AUTO else wanted


def of_disk(wanted: int, root: Path) -> Callable[[int], int]:
    """A function that gives the bytes all files may have, from those they have now.

    It looks at the disk's free space in each call.
    """

    def most(used: int) -> int:
        if wanted != AUTO:
            return wanted
        place = next(each for each in (root, *root.parents) if each.exists())
        try:
            free = shutil.disk_usage(place).free
        except OSError:
            return 0
        return min((free + used) // _DISK_SHARE, _DISK_MOST)

    return most


def saved(root: Path) -> PrefixFigures:
    """Tokens and seconds that prefixes have saved since they were last cleared."""
    try:
        return msgspec.json.decode(paths.read_own(root / _SAVED), type=PrefixFigures)
    except (OSError, msgspec.DecodeError):
        return PrefixFigures()


def add_saved(root: Path, more: PrefixFigures) -> None:
    """Add to the saved figures. Two processes at once may lose one's part, which is only shown."""
    known = saved(root)
    total = PrefixFigures(
        hits=known.hits + more.hits,
        tokens=known.tokens + more.tokens,
        seconds=known.seconds + more.seconds,
    )
    with contextlib.suppress(OSError):  # a disk that refuses was told of already
        paths.make_private(root)
        paths.write_atomically(root / _SAVED, msgspec.json.encode(total))


def forget_saved(root: Path) -> None:
    """Delete the saved figures. Raises OSError."""
    (root / _SAVED).unlink(missing_ok=True)
