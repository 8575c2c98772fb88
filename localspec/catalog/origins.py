"""Records where the files of a models directory came from, which gives models further names."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from localspec import paths
from localspec.catalog import locks

_FILE = "origins.json"


class Origin(msgspec.Struct, frozen=True):
    """A repository `OWNER/REPO` with the chosen quantization, or the URL of a file."""

    source: str
    label: str = ""
    license: str = ""
    unfinished: bool = False
    """The file has its name, but its companions may be missing: the next pull continues."""


def read(directory: Path) -> dict[str, Origin]:
    """The origins by file name.

    An unreadable record counts as empty, which loses only the further names.
    """
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(paths.read_regular(directory / _FILE), type=dict[str, Origin])
    return {}


def remember(directory: Path, file: str, origin: Origin | None) -> None:
    """Record where `file` comes from, perhaps just before it exists; None removes the record.

    Raises OSError.
    """
    if read(directory).get(file) == origin:
        return
    with locks.records(directory):
        before = read(directory)
        # A file that is being joined from its parts is recorded before it exists.
        known = {
            name: old
            for name, old in before.items()
            if old.unfinished or (directory / name).exists()
        }
        known.pop(file, None)
        if origin is not None:
            known[file] = origin
        if known:
            data = msgspec.json.format(msgspec.json.encode(known), indent=2)
            paths.write_atomically(directory / _FILE, data + b"\n")
        else:
            (directory / _FILE).unlink(missing_ok=True)


def names(origin: Origin | None) -> tuple[str, ...]:
    """Further names of a model with this origin: `owner/repo`, alone and with its quantization.

    Empty while its pull is unfinished.
    """
    if origin is None or origin.unfinished or "://" in origin.source:
        return ()
    repo = origin.source.lower()
    return (repo, f"{repo}:{origin.label.lower()}") if origin.label else (repo,)
