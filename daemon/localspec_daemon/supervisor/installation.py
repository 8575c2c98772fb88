"""Notices that LocalSpec was updated while the daemon runs.

The daemon goes on with the code that it has in memory, but new workers start with the code on disk.
Where the two do not fit together a worker fails, and a restart of the daemon helps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec import paths

RESTART = "localspec restart  # LocalSpec was updated since the daemon started"


class Installation:
    """The Python files below `roots`, as they were when this was made."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._then = self._files()

    def replaced(self) -> bool:
        """Whether any file has been changed, added or removed. It takes a few milliseconds."""
        return self._files() != self._then

    def _files(self) -> frozenset[tuple[str, int, int]]:
        return frozenset(found for root in self._roots for found in _below(str(root)))


def _below(directory: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of change of each Python file; what cannot be read is left out."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path)
                elif entry.name.endswith(".py"):
                    found = entry.stat()
                    yield entry.path, found.st_size, found.st_mtime_ns
    except OSError:  # an update is replacing it right now
        return


RUNNING = Installation([Path(paths.__file__).parent, Path(__file__).parents[1]])
"""Both packages of this process: all of the daemon is imported before anything is served."""
