"""Where the files of a models directory came from, so that they answer to that name too."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from localspec import paths

_FILE = "origins.json"


class Origin(msgspec.Struct, frozen=True):
    """A repository `OWNER/REPO` and the quantization taken of it, or the URL of a file."""

    source: str
    label: str = ""
    license: str = ""


def read(directory: Path) -> dict[str, Origin]:
    """By file name. What cannot be read is forgotten: names are lost then, and no model."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=dict[str, Origin])
    return {}


def remember(directory: Path, file: str, origin: Origin | None) -> None:
    """Where `file` came from; None forgets it. Raises OSError."""
    before = read(directory)
    known = {name: old for name, old in before.items() if (directory / name).exists()}
    known.pop(file, None)
    if origin is not None:
        known[file] = origin
    if known == before:
        return
    data = msgspec.json.format(msgspec.json.encode(known), indent=2)
    paths.write_atomically(directory / _FILE, data + b"\n")


def names(origin: Origin | None) -> tuple[str, ...]:
    """Other names of a model from there: `owner/repo`, and with its quantization."""
    if origin is None or "://" in origin.source:
        return ()
    repo = origin.source.lower()
    return (repo, f"{repo}:{origin.label.lower()}") if origin.label else (repo,)
