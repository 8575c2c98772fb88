"""Locks of a models directory, which processes and threads hold in turn, as long as they run."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec import paths


def locked(path: Path, opened: Callable[[], int], wait: Callable[[], None]) -> int:
    """A descriptor of the file or directory at `path` that has its lock; `opened` opens it.

    `wait` is called if another has the lock. Raises OSError.
    """
    while True:
        handle = opened()
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            # The previous holder of the lock may have renamed or removed it meanwhile.
            found = os.fstat(handle)
            if paths.identity(path)[:2] == (found.st_dev, found.st_ino):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


@contextlib.contextmanager
def building(directory: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for building files in `directory`, which one process at a time can have.

    The directory is made if it is missing; its holder may remove it. Raises OSError.
    """

    def opened() -> int:
        while True:
            paths.make_directory(directory)
            with contextlib.suppress(FileNotFoundError):  # its holder has just removed it
                return os.open(directory, os.O_RDONLY | os.O_CLOEXEC)

    handle = locked(directory, opened, wait)
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def records(directory: Path) -> Iterator[None]:
    """Hold the lock for changing the records of a models directory: origins, attached drafts.

    It is held for a moment only. Raises OSError.
    """
    paths.make_directory(directory, paths.MODELS_MODE)
    path = directory / ".records.lock"
    handle = locked(path, lambda: paths.create(path, flags=os.O_RDWR), lambda: None)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
