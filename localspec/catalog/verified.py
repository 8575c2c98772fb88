"""Remembers which files passed their SHA-256, so that gigabytes are not read at every start.

A mark holds while size, modification time and inode stay the same. A lost mark costs only reading
the file once more, so a lost update between two processes is harmless.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from localspec import paths

_FILE = ".verified.json"


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    size_bytes: int
    modified_ns: int
    inode: int
    sha256: str


def holds(path: Path, sha256: str) -> bool:
    """Whether `path` is unchanged since its SHA-256 was found to be this one."""
    try:
        return _read(path.parent).get(path.name) == _now(path, sha256)
    except OSError:
        return False


def mark(path: Path, sha256: str) -> None:
    """Record that `path` has this SHA-256, if the directory can be written."""
    marks = {name: old for name, old in _read(path.parent).items() if (path.parent / name).exists()}
    marks[path.name] = _now(path, sha256)
    with contextlib.suppress(OSError):
        paths.write_atomically(path.parent / _FILE, msgspec.json.encode(marks) + b"\n")


def _now(path: Path, sha256: str) -> _Mark:
    found = path.stat()
    return _Mark(found.st_size, found.st_mtime_ns, found.st_ino, sha256)


def _read(directory: Path) -> dict[str, _Mark]:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=dict[str, _Mark])
    except (OSError, msgspec.DecodeError):
        return {}
