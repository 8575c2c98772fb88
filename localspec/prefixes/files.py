"""Prefixes on disk: a file each, for this user alone, checked before anything looks into it.

A file is written beside its place, synced and then renamed, so that a crash leaves the whole file
or none. It ends with an HMAC-SHA-256 over all before, whose key only this user has: a file that was
cut off, damaged or made elsewhere is found and deleted. Nothing is executed and nothing unpickled.

    magic · length of the header · header (JSON) · tokens (4 bytes each) · parts · HMAC

Errors of the disk end in `PrefixFiles`, with a line in the log: its caller then finds nothing.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from localspec import paths
from localspec.prefixes.tokens import WIDTH

_log = logging.getLogger("localspec.prefixes")

MAGIC = b"LSPREFX1"
SUFFIX = ".prefix"
_DIGEST = 32
_MAX_HEADER, _MAX_TOKENS, _MAX_PARTS = 1 << 16, 1 << 24, 64
_PIECE = 4 << 20
"""Bytes written or read at once: some milliseconds, after which a writer may make way."""
_KEY = re.compile(r"[0-9a-f]{8,64}")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The beginning of a file: whose text it is, of which model, and what its parts are.

    `key` is a fingerprint of all that the bits depend on. `parts` are lengths in tokens and bytes:
    first all that the slot held, then copies of states. If it `trims`, it can be cut to any length.
    `read_seconds` is the time that reading the tokens would take here. `adapters` are scales of
    LoRA adapters, of a slot that was saved by name.
    """

    key: str
    model: str
    role: str
    client: str
    tokens: int
    parts: list[tuple[int, int]]
    trims: bool
    read_seconds: float = 0.0
    adapters: tuple[float, ...] = ()


class Listed(NamedTuple):
    """A file as its header says; `used_at` in seconds since 1970."""

    path: Path
    header: Header
    tokens: bytes
    bytes: int
    used_at: float


class Part(NamedTuple):
    """The memory of a text's first `length` tokens."""

    length: int
    data: Any


class Damaged(ValueError):
    """The error of a file that is not what was written."""


def directory() -> Path:
    """The directory of all prefixes; it need not exist."""
    return paths.cache_dir() / "prefixes"


@dataclass(slots=True)
class PrefixFiles:
    """The files of one directory, those of other models and processes included. Any thread.

    Args:
        root: The directory; made when something is written.
        secret: The key of the checksums.
        most_bytes: The bytes that all files may have together, from those they have now.
    """

    root: Path
    secret: bytes
    most_bytes: Callable[[int], int]
    refused: str = ""
    """Why the disk takes no files; "" while it takes them. Logged once."""

    def listed(self, key: str, *, drop: bool = True) -> list[Listed]:
        """The files of a key, by their headers; with `drop` those that are damaged are deleted."""
        found = []
        for path in _files(self.root / key):
            try:
                one = glance(path)
                if one.header.key != key:
                    raise Damaged("it is of another model")
                found.append(one)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                if drop:
                    self.drop(path, error)
        return found

    def read(self, path: Path) -> tuple[Listed, list[Part]] | None:
        """A file's text and parts; None where it is gone or damaged, and then it is deleted."""
        try:
            return read_file(path, self.secret)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, MemoryError) as error:
            self.drop(path, error)
            return None

    def write(
        self,
        header: Header,
        tokens: bytes,
        parts: Sequence[Part],
        going: Callable[[], bool] = lambda: True,
    ) -> Path | None:
        """Write a file; None where the disk refuses, or `going` says no between two pieces."""
        folder = self.root / header.key
        path = folder / f"{_name(header, tokens)}{SUFFIX}"
        size = len(_beginning(header, tokens)) + sum(count for _, count in header.parts) + _DIGEST
        try:
            if not self._make_room(size, path):
                return None
            paths.make_private(self.root)
            paths.make_private(folder)
            if not write_file(path, self.secret, header, tokens, parts, going):
                return None
        except OSError as error:
            self._refuse(str(error))
            return None
        self.refused = ""
        return path

    def _make_room(self, size: int, path: Path) -> bool:
        """Delete files used longest ago until `size` more bytes fit; False if they cannot."""
        self.sweep()
        there = sorted(everything(self.root), key=lambda each: each[1])
        used = sum(count for _, _, count in there)
        most = self.most_bytes(used)
        if size > most:
            return False
        for old, _, count in there:
            if used + size <= most:
                break
            if old != path:
                _unlink(old)
                used -= count
        return True

    def used_bytes(self) -> int:
        """Bytes of all files, those of other processes included."""
        return sum(count for _, _, count in everything(self.root))

    def sweep(self) -> None:
        """Delete temporary files of writers that are gone."""
        for path in self.root.glob(f"*/.*{SUFFIX}.*.tmp"):
            pid = path.name.split(".")[-3]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and not _alive(int(pid)):
                _unlink(path)

    def used(self, path: Path) -> None:
        """Note that a file was used: those used longest ago are deleted first."""
        with contextlib.suppress(OSError):
            os.utime(path)

    def drop(self, path: Path, why: object) -> None:
        """Delete a file that cannot be used."""
        _log.warning("prefix dropped file=%s reason=%s", path.name, why)
        _unlink(path)

    def _refuse(self, why: str) -> None:
        if not self.refused:
            _log.warning("prefixes are not kept on disk path=%s reason=%s", self.root, why)
        self.refused = why


def read_file(path: Path, secret: bytes) -> tuple[Listed, list[Part]]:
    """A file's text and parts, checked. Raises OSError, Damaged, MemoryError."""
    with open_own(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = bytearray(size)
        view, digest = memoryview(data), hmac.new(secret, digestmod="sha256")
        for start in range(0, size, _PIECE):
            piece = view[start : start + _PIECE]
            if file.readinto(piece) != len(piece):
                raise Damaged("it became shorter while it was read")
            digest.update(piece[: max(0, size - _DIGEST - start)])
    if size < _DIGEST or not hmac.compare_digest(digest.digest(), bytes(view[-_DIGEST:])):
        raise Damaged("its checksum is wrong")
    header, start = _header(bytes(view[: _MAX_HEADER + 16]), size)
    listed = Listed(path, header, bytes(view[start : start + WIDTH * header.tokens]), size, 0.0)
    start += WIDTH * header.tokens
    parts = []
    for length, count in header.parts:
        parts.append(Part(length, view[start : start + count]))
        start += count
    return listed, parts


def write_file(  # noqa: PLR0913, PLR0917 - all that makes a file
    path: Path,
    secret: bytes,
    header: Header,
    tokens: bytes,
    parts: Sequence[Part],
    going: Callable[[], bool] = lambda: True,
) -> bool:
    """Write a file in place of another, whole or not at all; False if `going` stopped it.

    Raises OSError.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp"
    blocks = [_beginning(header, tokens), *(part.data for part in parts)]
    try:
        if not _write(temporary, secret, blocks, going):
            return False
        temporary.replace(path)
        _sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return True


def _write(path: Path, secret: bytes, blocks: Sequence[Any], going: Callable[[], bool]) -> bool:
    digest = hmac.new(secret, digestmod="sha256")
    with os.fdopen(paths.create(path), "wb", buffering=0) as file:
        for block in blocks:
            view = memoryview(block).cast("B")
            for start in range(0, len(view), _PIECE):
                if not going():
                    return False
                piece = view[start : start + _PIECE]
                digest.update(piece)
                _write_all(file.fileno(), piece)
        _write_all(file.fileno(), memoryview(digest.digest()))
        os.fsync(file.fileno())
    return True


def glance(path: Path) -> Listed:
    """The header and tokens of a file, unchecked but for its size. Raises OSError, Damaged."""
    with open_own(path) as file:
        found = os.fstat(file.fileno())
        header, start = _header(file.read(_MAX_HEADER + 16), found.st_size)
        file.seek(start)
        tokens = file.read(WIDTH * header.tokens)
    return Listed(path, header, tokens, found.st_size, found.st_mtime)


def open_own(path: Path) -> Any:
    """A file of this user, for reading. Raises OSError, also for a link or another user's."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags), "rb", buffering=0)
    found = os.fstat(file.fileno())
    if paths.other_writers(found) or found.st_uid != os.getuid():
        file.close()
        raise PermissionError(f"others may have written {path}")
    return file


def _header(data: bytes, size: int) -> tuple[Header, int]:
    """The header at the beginning of `data`, and where it ends. Raises Damaged."""
    count = int.from_bytes(data[8:12], "little")
    if data[:8] != MAGIC or not 0 < count <= min(_MAX_HEADER, len(data) - 12):
        raise Damaged("it does not begin like one")
    try:
        header = msgspec.json.decode(data[12 : 12 + count], type=Header)
    except msgspec.DecodeError as error:
        raise Damaged(f"its header is damaged: {error}") from error
    lengths = [number for part in header.parts for number in part]
    if not 0 < header.tokens <= _MAX_TOKENS or not 0 < len(header.parts) <= _MAX_PARTS:
        raise Damaged("its header is damaged: too many tokens or parts, or none")
    whole = 12 + count + WIDTH * header.tokens + sum(part[1] for part in header.parts) + _DIGEST
    if min(lengths) <= 0 or whole != size:
        raise Damaged(f"it has {size} bytes instead of {whole}")
    return header, 12 + count


def _beginning(header: Header, tokens: bytes) -> bytes:
    said = msgspec.json.encode(header)
    return MAGIC + len(said).to_bytes(4, "little") + said + tokens


def _name(header: Header, tokens: bytes) -> str:
    digest = hmac.new(header.client.encode(), tokens, "sha256")
    digest.update(header.role.encode())
    return digest.hexdigest()[:32]


def _files(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return
    yield from (folder / name for name in sorted(names) if name.endswith(SUFFIX))


def keys(root: Path) -> list[str]:
    """The keys of which there are files."""
    try:
        return sorted(path.name for path in root.iterdir() if _KEY.fullmatch(path.name))
    except OSError:
        return []


def everything(root: Path) -> Iterator[tuple[Path, float, int]]:
    """All files of prefixes, temporary ones too: when each was used, and its bytes."""
    for key in keys(root):
        with contextlib.suppress(OSError), os.scandir(root / key) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if entry.name.endswith((SUFFIX, ".tmp")):
                        yield Path(entry.path), found.st_mtime, found.st_size


def clear(root: Path) -> tuple[int, int]:
    """Delete all prefixes; how many files there were, and their bytes. Raises OSError."""
    there = list(everything(root))
    for key in keys(root):
        shutil.rmtree(root / key)
    return len(there), sum(count for _, _, count in there)


def secret() -> bytes:
    """The key of this user's checksums, made at the first call.

    Where it cannot be kept, each process has its own: then no file outlives its process.
    """
    path = paths.state_dir() / "prefixes.key"
    try:
        found = paths.read_own(path)
        if len(found) == _DIGEST:
            return found
    except OSError:
        pass
    made = secrets.token_bytes(_DIGEST)
    try:
        paths.write_atomically(path, made)
        return paths.read_own(path)  # the key of the process that wrote last
    except OSError as error:
        _log.warning("no key for prefixes path=%s reason=%s", path, error)
        return made


def _write_all(handle: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(handle, piece) :]


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
