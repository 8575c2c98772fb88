"""The head of an index's file: which files of which folders it holds. Read without numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from localspec import paths

MAGIC = b"LSCORPUS"
VERSION = 1
_ALIGNED = 64
_MOST_BYTES = 64 * 1024 * 1024
"""A head of 50,000 files has ten megabytes."""


class IndexedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file in the index, as it was when it was read, and the place of its tokens."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    start: int
    tokens: int


class Folder(msgspec.Struct, frozen=True):
    """A folder of the configuration: `why` tells what is wrong with it, or that it is too large."""

    folder: str
    why: str = ""
    files: int = 0
    tokens: int = 0
    left_out: dict[str, int] = {}


class Contents(msgspec.Struct, frozen=True):
    """The contents of an index; `tokenizer` names the model that it was first made for.

    `crowded_out` counts the files that found no room, and `too_long` are those of them that were
    read to find out: path, size, modification time in ns, inode.
    """

    tokenizer: str
    tokens: int
    keys: tuple[int, int, int]
    folders: tuple[Folder, ...]
    files: tuple[IndexedFile, ...]
    crowded_out: int = 0
    too_long: tuple[tuple[str, int, int, int], ...] = ()

    def encoded(self, magic: bytes, version: int) -> bytes:
        """The head as a file begins with it, padded."""
        data = msgspec.json.encode(self)
        head = magic + version.to_bytes(4, "little") + len(data).to_bytes(4, "little") + data
        return head + bytes(-len(head) % _ALIGNED)

    @property
    def sentence(self) -> str:
        """The index's contents, for people."""
        said = f"{self.tokens} tokens of {len(self.files)} files"
        if self.crowded_out:
            said += f"; {self.crowded_out} older files found no room"
        return "; ".join([said, *(each.why.rstrip(".") for each in self.folders if each.why)])


class Sections(NamedTuple):
    """Where the parts of a file begin, and where it ends, in bytes."""

    tokens: int
    keys: tuple[int, ...]
    end: int


def layout(start: int, tokens: int, keys: Sequence[int]) -> Sections:
    """The places of an index's parts behind a head that ends at `start`."""
    place, places = start + 4 * tokens, []
    for count in keys:
        place += -place % _ALIGNED
        places.append(place)
        place += 8 * count
    return Sections(start, tuple(places), place)


def decoded(file: BinaryIO) -> tuple[Contents, int]:
    """The head of a file, and where it ends. Raises ValueError if this is none, OSError."""
    fixed = file.read(16)
    size = int.from_bytes(fixed[12:16], "little")
    if fixed[:8] != MAGIC or int.from_bytes(fixed[8:12], "little") != VERSION:
        raise ValueError("it is no index of this version")
    if len(fixed) < 16 or not 0 < size <= _MOST_BYTES:  # noqa: PLR2004 - its fixed part
        raise ValueError("the index has no head")
    try:
        contents = msgspec.json.decode(file.read(size), type=Contents)
    except msgspec.DecodeError as error:
        raise ValueError(f"the head of the index is damaged: {error}") from error
    if min(contents.tokens, *contents.keys) < 0:
        raise ValueError("the index has sizes below zero")
    end = 16 + size
    return contents, end + -end % _ALIGNED


def directory() -> Path:
    """The directory of all indexes, one for each tokenizer; it need not exist."""
    return paths.cache_dir() / "corpus"


def file_of(vocabulary: str) -> Path:
    """The file for models with that vocabulary, named by its hash."""
    return directory() / f"{vocabulary}.index"


def vocabulary_name(pieces: Sequence[bytes], sample: Sequence[int]) -> str:
    """A name for a tokenizer: a hash of all its tokens and of how it reads a sample text."""
    told = hashlib.sha256()
    for piece in pieces:
        told.update(len(piece).to_bytes(4, "little") + piece)
    told.update(repr(list(sample)).encode())
    return told.hexdigest()[:20]


def every() -> list[tuple[Path, Contents]]:
    """The indexes on disk and what they hold; a damaged one is left out."""
    found = []
    for path in sorted(directory().glob("*.index")) if directory().is_dir() else ():
        try:
            with path.open("rb") as file:
                found.append((path, decoded(file)[0]))
        except (OSError, ValueError):
            continue
    return found


def forget() -> int:
    """Delete all indexes; how many there were. They are made anew where folders are left.

    Raises OSError.
    """
    count = 0
    for path in directory().glob("*") if directory().is_dir() else ():
        path.unlink(missing_ok=True)
        count += 1
    return count
