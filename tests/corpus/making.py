"""Makes indexes of folders for tests; a token is a byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localspec.corpus import building
from localspec.corpus.index import Index


def tokenize(text: str) -> list[int]:
    """A token for each byte."""
    return list(text.encode())


def write(root: Path, **files: str) -> None:
    """Files by name."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text)


def built(
    path: Path, folders: Sequence[str], old: Index | None = None, read: list[str] | None = None
) -> Index:
    """The index of these folders; `read` gets the texts that were tokenized for it."""

    def tokenized(text: str) -> list[int]:
        if read is not None:
            read.append(text)
        return tokenize(text)

    building_ = building.build(folders, tokenized, path, old)
    while True:
        try:
            next(building_)
        except StopIteration:
            return Index.open(path)
