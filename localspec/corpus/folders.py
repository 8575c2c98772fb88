"""Finds the files of a corpus: text of the user's own, as git would keep it, without secrets.

Left out are what `.gitignore` names, names that begin with a dot, links, files that hold secrets or
no text, and large ones. For a folder that cannot be used there is a sentence that says why; the
others are used.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from localspec import paths
from localspec.corpus import secrets
from localspec.corpus.ignored import Ignored
from localspec.errors import LocalSpecError, escaped

FILE_BYTES = 1 << 20
"""Larger files are generated, data or vendored: people do not write a mebibyte by hand."""
MOST_FILES = 50_000
MOST_ENTRIES = 400_000
"""The most names looked at in a folder: even the walk of a home directory ends, within seconds."""
_PIECE = 200
"""Names looked at in a piece: milliseconds on a disk that answers."""
_SNIFFED = 8192
"""The first bytes of a file; a zero byte among them says that it is no text, as for git."""


class File(NamedTuple):
    """A file of a corpus as it was seen: changed if one of the numbers has changed."""

    path: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(slots=True)
class Found:
    """The files of one folder; `why` says in a sentence why there are none, or not all.

    `directories` are those that were walked, `left_out` counts other files by reason.
    """

    folder: str
    why: str = ""
    files: list[File] = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)


def place_of(folder: str) -> Path:
    """The path that a folder's name in the configuration means."""
    if folder == "~" or folder.startswith("~/"):
        return paths.home() / folder[2:]
    return Path(folder)


def unusable(folder: str) -> str:
    """The reason in a sentence why a folder cannot be a corpus; "" if it can."""
    shown = escaped(folder)
    try:
        folder.encode()
        place = place_of(folder)
        if not place.is_absolute():
            return f"{shown} is no absolute path; write one, or one that begins with ~/."
        home = paths.home()
        real, own = place.resolve(strict=True), home.resolve()
        inside = place.is_relative_to(home) or place.is_relative_to(own)
        if inside and not real.is_relative_to(own):
            return f"{shown} is a link that leads out of your home, to {escaped(str(real))}."
        if not real.is_dir():
            return f"{shown} is not a folder."
        if own.is_relative_to(real):
            return f"{shown} holds all of your home; name a folder inside it, such as ~/src."
        with os.scandir(real):
            pass
    except (OSError, ValueError, RuntimeError, LocalSpecError) as error:
        return f"{shown} {_trouble(error)}."
    return ""


def _trouble(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is not there"
    if isinstance(error, UnicodeEncodeError):
        return "has a name that is not UTF-8, which a configuration cannot hold"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def walk(folder: str, *, most_files: int = MOST_FILES) -> Generator[None, None, Found]:
    """Find at most `most_files` of a folder, in short pieces; errors of the disk are counted."""
    found = Found(folder, unusable(folder))
    if found.why:
        return found
    root = place_of(folder).resolve()
    ignored = Ignored(root)
    waiting, looked = [root], 0
    while waiting:
        directory = waiting.pop()
        found.directories.add(str(directory))
        ignored.read(directory)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:  # as they come: a directory may hold any number
                    looked += 1
                    if looked % _PIECE == 0:
                        yield
                    if looked > MOST_ENTRIES or len(found.files) >= most_files:
                        found.why = (
                            f"{escaped(folder)} is too large to be looked through: the first "
                            f"{len(found.files)} files are used. Name a folder inside it."
                        )
                        return found
                    if (deeper := _look(entry, ignored, found)) is not None:
                        waiting.append(deeper)
        except OSError:
            found.left_out["unreadable"] += 1
        yield
    return found


def _look(entry: os.DirEntry[str], ignored: Ignored, found: Found) -> Path | None:
    """Take a file, or return a directory to walk, or count what is left out."""
    try:
        if why := _passed_over(entry, ignored):
            found.left_out[why] += 1
        elif entry.is_dir(follow_symlinks=False):
            return Path(entry.path)
        elif not entry.is_file(follow_symlinks=False):
            found.left_out["not a file"] += 1
        elif secrets.by_name(entry.name):
            found.left_out["secret"] += 1
        else:
            status = entry.stat(follow_symlinks=False)
            if status.st_size > FILE_BYTES:
                found.left_out["large"] += 1
            elif status.st_size:
                file = File(entry.path, status.st_size, status.st_mtime_ns, status.st_ino)
                found.files.append(file)
    except OSError:  # it has gone since
        found.left_out["unreadable"] += 1
    return None


def _passed_over(entry: os.DirEntry[str], ignored: Ignored) -> str:
    """The reason why a file or directory is passed over; "" if it is not. Raises OSError."""
    if entry.name.startswith("."):
        return "hidden"
    if not _is_text(entry.path):
        return "name not UTF-8"
    if entry.is_symlink():
        return "link"
    return "ignored" * ignored.names(entry.path, directory=entry.is_dir(follow_symlinks=False))


def _is_text(path: str) -> bool:
    """Whether a path is UTF-8: other bytes are lone surrogates in it, which cannot be encoded."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class Text(NamedTuple):
    """A file's text; or None, and why it is left out."""

    text: str | None
    why: str = ""


def read(file: File) -> Text:  # noqa: PLR0911 - one for each reason
    """The text of a file if it is still the one that was seen. Raises nothing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(file.path, flags)
        with os.fdopen(handle, "rb") as opened:
            before = os.fstat(handle)
            if not stat.S_ISREG(before.st_mode):
                return Text(None, "not a file")
            data = opened.read(FILE_BYTES + 1)
            after = os.fstat(handle)
    except (OSError, ValueError):
        return Text(None, "unreadable")
    seen = file.size, file.mtime_ns
    if {(each.st_size, each.st_mtime_ns) for each in (before, after)} != {seen} or len(
        data
    ) != file.size:
        return Text(None, "changing")
    if b"\0" in data[:_SNIFFED]:
        return Text(None, "binary")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Text(None, "binary")
    if secrets.in_text(text):
        return Text(None, "secret")
    return Text(text)


def newest(found: Sequence[Found], most_bytes: int) -> tuple[list[File], int]:
    """The newest files of all folders, as far as they find room, and the number of those left out.

    The newest are being worked on. Each file comes once, in the order of paths.
    """
    every = {file.path: file for folder in found for file in folder.files}
    chosen, size = [], 0
    for file in sorted(every.values(), key=lambda file: (-file.mtime_ns, file.path)):
        if size + file.size > most_bytes:
            continue
        size += file.size
        chosen.append(file)
    return sorted(chosen), len(every) - len(chosen)
