"""Slots saved by name: files of the state directory, which stay until they are deleted.

They have the format of prefixes on disk and are checked in the same way: what is damaged, was made
elsewhere, or is another client's or another model's is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from localspec import paths
from localspec.errors import LocalSpecError, RequestError, escaped
from localspec.prefixes import files
from localspec.prefixes.files import Damaged, Header, Listed, Part

MAX_NAME_BYTES = 200
_NEVER = frozenset('/\\:*?"<>|')


def directory() -> Path:
    """The directory of saved slots; it need not exist."""
    return paths.state_dir() / "slots"


def place(name: str) -> Path:
    """Where the file of that name is. Raises RequestError for one that could lead elsewhere."""
    size = len(name.encode("utf-8", "surrogatepass"))
    sound = name.isprintable() and not _NEVER & {*name} and name.strip(" ") == name
    if not 0 < size <= MAX_NAME_BYTES or not sound or name[0] == "." or name[-1] == ".":
        raise RequestError(
            escaped(f'"{name[:80]}" cannot be the name of a saved slot.'),
            fix=f"Send a filename of up to {MAX_NAME_BYTES} bytes without a path: slot1.bin.",
            param="filename",
        )
    return directory() / name


def save(path: Path, secret: bytes, header: Header, tokens: bytes, parts: Sequence[Part]) -> int:
    """Write a file and return its bytes. Raises RequestError, LocalSpecError."""
    try:
        if path.exists() and files.glance(path).header.client != header.client:
            raise _not_yours(path)
    except (OSError, ValueError) as error:
        raise _unusable(path, "cannot be replaced", error) from error
    try:
        paths.make_private(path.parent)
        files.write_file(path, secret, header, tokens, parts)
        return path.stat().st_size
    except OSError as error:
        raise LocalSpecError(
            escaped(f"The slot could not be written to {path}: {error.strerror or error}."),
            fix="Make room on that disk, or delete files of saved slots there.",
        ) from error


def load(path: Path, secret: bytes, client: str) -> tuple[Listed, list[Part]]:
    """A file of that client, whole. Raises RequestError with the reason."""
    try:
        found = files.read_file(path, secret)
    except FileNotFoundError:
        raise RequestError(
            escaped(f'No slot was saved as "{path.name}".'),
            fix="Save it first, with action=save.",
            param="filename",
        ) from None
    except (OSError, ValueError, MemoryError) as error:
        raise _unusable(path, "cannot be restored", error) from error
    if found[0].header.client != client:
        raise _not_yours(path)
    return found


def _not_yours(path: Path) -> RequestError:
    fix = "Choose another filename."
    return RequestError(escaped(f'"{path.name}" is another client\'s.'), fix=fix, param="filename")


def _unusable(path: Path, what: str, error: BaseException) -> RequestError:
    why = error if isinstance(error, Damaged) else getattr(error, "strerror", None) or error
    return RequestError(
        escaped(f'"{path.name}" {what}: {why}.'),
        fix=f"Save it under another name, or delete {os.fspath(path)}.",
        param="filename",
    )
