"""A summary of the files on disk, for people: by model, without the texts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from localspec.errors import LocalSpecError
from localspec.prefixes import budget, files
from localspec.prefixes.files import PrefixFiles
from localspec.wire.values import PrefixFigures


class KeptModel(msgspec.Struct, frozen=True):
    """The files of one model: texts, their tokens, bytes on disk.

    `bytes` count copies for its draft model too. `used_at` is in seconds since 1970.
    """

    model: str
    key: str
    texts: int
    tokens: int
    bytes: int
    used_at: float


class Overview(msgspec.Struct, frozen=True):
    """All that is kept on disk, how much that may be, and what it has saved since the last clear.

    `directory` is where it is.
    """

    directory: str
    bytes: int
    most_bytes: int
    models: list[KeptModel]
    saved: PrefixFigures


def overview(settings_disk_bytes: int) -> Overview:
    """Read the headers of all files; what cannot be read is left out."""
    root = files.directory()
    there = PrefixFiles(root, b"", lambda _: 0)
    total = there.used_bytes()
    models: dict[str, KeptModel] = {}
    for key in files.keys(root):
        for listed in there.listed(key, drop=False):
            header, name = listed.header, listed.header.model
            known = models.get(name, KeptModel(name, key, 0, 0, 0, 0.0))
            text = header.role == "target"
            models[name] = KeptModel(
                name,
                known.key if not text else key,
                known.texts + text,
                known.tokens + text * header.tokens,
                known.bytes + listed.bytes,
                max(known.used_at, listed.used_at),
            )
    kept = sorted(models.values(), key=lambda each: -each.used_at)
    most = budget.of_disk(settings_disk_bytes, root)(total)
    return Overview(str(root), total, most, kept, budget.saved(root))


class Cleared(msgspec.Struct, frozen=True):
    """The result of a clear: files that were deleted, and their bytes."""

    files: int
    bytes: int


def clear() -> Cleared:
    """Delete everything on disk. Raises LocalSpecError where the disk refuses."""
    root: Path = files.directory()
    try:
        found = Cleared(*files.clear(root))
        budget.forget_saved(root)
    except OSError as error:
        raise LocalSpecError(
            f"{root} cannot be cleared: {error}.", fix=f"Remove it yourself: rm -r {root}"
        ) from error
    return found
