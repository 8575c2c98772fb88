"""The identity of a model file: a SHA-256 of its whole content, computed once for each file.

It holds as long as size, inode and both times of change stay the same. A name does not identify a
file: `models pull` puts a new file in the place of an old one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localspec import paths

_log = logging.getLogger("localspec.prefixes")

_PIECE = 8 << 20
_MOST = 256
"""The most files remembered: enough for the largest collections."""


class _Known(msgspec.Struct, frozen=True, array_like=True):
    size_bytes: int
    inode: int
    modified_ns: int
    changed_ns: int
    sha256: str


def _file() -> Path:
    return paths.cache_dir() / "identities.json"


def state(path: Path) -> tuple[int, int, int, int]:
    """Size, inode and times of change, by which a file is still the same. Raises OSError."""
    found = path.stat()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _all_known() -> dict[str, _Known]:
    try:
        return msgspec.json.decode(paths.read_own(_file()), type=dict[str, _Known])
    except (OSError, ValueError):
        return {}


def known(files: Sequence[Path]) -> str | None:
    """The identity of these files together; None while one of them was not read yet."""
    remembered, digest = _all_known(), hashlib.sha256()
    for path in files:
        try:
            entry = remembered.get(str(path.resolve()))
            if entry is None or state(path) != msgspec.structs.astuple(entry)[:4]:
                return None
        except OSError:
            return None
        digest.update(bytes.fromhex(entry.sha256))
    return digest.hexdigest()


def learn(files: Sequence[Path]) -> str | None:
    """Read the files, remember what they are, and return `known`; None where one changes now."""
    for path in files:
        if known([path]) is not None:
            continue
        try:
            before, found = state(path), _sha256(path)
            if state(path) != before:
                return None
            entries = {str(path.resolve()): _Known(*before, found)}
            others = [each for each in _all_known().items() if each[0] not in entries]
            paths.write_atomically(
                _file(), msgspec.json.encode(dict(others[1 - _MOST :]) | entries)
            )
        except OSError as error:
            _log.warning("no identity file=%s reason=%s", path, error)
            return None
    return known(files)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            digest.update(data)
    return digest.hexdigest()
