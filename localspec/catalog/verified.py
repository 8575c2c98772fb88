"""Remembers which files passed their SHA-256 check, so that they are not read at every start.

A mark holds while size, modification time and inode stay the same. A lost mark costs only one more
reading of the file, so two processes may overwrite each other's marks.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from localspec import paths

_FILE = ".verified.json"
_READ_BYTES = 1 << 20


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    size_bytes: int
    modified_ns: int
    inode: int
    sha256: str


def holds(path: Path, sha256: str) -> bool:
    """Whether `path` is unchanged since it was found to have this SHA-256."""
    try:
        return _read(path.parent).get(path.name) == _now(path, sha256)
    except OSError:
        return False


def digest(path: Path, read: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file; `read` is called with the number of bytes read so far.

    Raises OSError.
    """
    found, done = hashlib.sha256(), 0
    with paths.open_regular(path) as file:
        while chunk := file.read(_READ_BYTES):
            found.update(chunk)
            done += len(chunk)
            read(done)
    return found.hexdigest()


def recorded(path: Path) -> str:
    """The SHA-256 that the file had when it was last checked; "" if none is recorded."""
    mark = _read(path.parent).get(path.name)
    return mark.sha256 if mark else ""


def forget(path: Path) -> None:
    """Drop the file's mark, so that the file is read again before it counts as verified."""
    marks = _read(path.parent)
    if marks.pop(path.name, None):
        _write(path.parent, marks)


def mark(path: Path, sha256: str) -> None:
    """Record that `path` has this SHA-256, if the directory can be written."""
    marks = {name: old for name, old in _read(path.parent).items() if (path.parent / name).exists()}
    marks[path.name] = _now(path, sha256)
    _write(path.parent, marks)


def _write(directory: Path, marks: dict[str, _Mark]) -> None:
    with contextlib.suppress(OSError):
        paths.write_atomically(directory / _FILE, msgspec.json.encode(marks) + b"\n")


def _now(path: Path, sha256: str) -> _Mark:
    found = path.stat()
    return _Mark(found.st_size, found.st_mtime_ns, found.st_ino, sha256)


def _read(directory: Path) -> dict[str, _Mark]:
    try:
        return msgspec.json.decode(paths.read_regular(directory / _FILE), type=dict[str, _Mark])
    except (OSError, msgspec.DecodeError):
        return {}
