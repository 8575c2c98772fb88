"""Checks which files can be models. A header is read again after the file or the rules change."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localspec import paths
from localspec.catalog import header
from localspec.errors import BadGGUF


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """A file's state when its header was read, and by which `rules`; `reason` is "" if sound."""

    size_bytes: int
    modified_ns: int
    inode: int
    rules: int
    reason: str


def broken(files: Sequence[Path]) -> dict[Path, str]:
    """The files that cannot be used, each with the reason.

    Reads no weights. Results are kept in the user's cache.
    """
    known = _known()
    found = {str(file): _look(file, known.get(str(file))) for file in files}
    if found.items() - known.items():
        kept = {name: seen for name, seen in known.items() if Path(name).exists()}
        with contextlib.suppress(OSError):  # without the record the headers are read again
            paths.write_atomically(_file(), msgspec.json.encode(kept | found))
    return {Path(name): seen.reason for name, seen in found.items() if seen.reason}


def _look(file: Path, seen: _Seen | None) -> _Seen:
    try:
        now = file.stat()
    except OSError as error:
        return _Seen(0, 0, 0, 0, f"It cannot be read: {error.strerror}.")
    state = now.st_size, now.st_mtime_ns, now.st_ino, _rules()
    if seen and (seen.size_bytes, seen.modified_ns, seen.inode, seen.rules) == state:
        return seen
    reason = ""
    try:
        header.read(file)
    except BadGGUF as error:
        reason = error.message.partition("cannot be used. ")[2] or error.message
    return _Seen(*state, reason)


@functools.cache
def _rules() -> int:
    """The checksum of the rules' source, which an upgrade changes where it changes a verdict."""
    sources = ("architecture_rules", "ggml_types", "header", "keys", "reader", "rules")
    here = Path(__file__).parent
    return zlib.crc32(b"".join((here / f"{name}.py").read_bytes() for name in sources))


def _known() -> dict[str, _Seen]:
    try:
        return msgspec.json.decode(paths.read_own(_file()), type=dict[str, _Seen])
    except (OSError, msgspec.DecodeError):
        return {}


def _file() -> Path:
    return paths.cache_dir() / "headers.json"
