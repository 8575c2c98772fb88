"""Keeps on disk what was learned about one model on this machine."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec

from localspec import paths
from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.engine.exactness.classes import Shape
from localspec.worker.loading_cost import LoadingCost

_log = logging.getLogger("localspec.worker")

_VERSION = 7


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: JSON, readable by people; a lost one is measured again."""

    version: int
    costs: dict[str, Any]
    acceptance: dict[str, Any]
    shape: dict[str, Any] | None
    worth: dict[int, float] = {}
    threads: int = 0
    loading: dict[str, float] = {}
    exits: dict[int, float] = {}


@dataclass(slots=True)
class Profile:
    """Costs, acceptance and the exactness class of one pair in one setting. Model lifetime.

    worth: By rows, how many times as long forwards take with llama.cpp's own kernels.
    threads: The threads of a forward; 0 while that is not known.
    loading: What it takes to read a token of a prompt, and to load a copy instead.
    exits: By number of first layers, how often these have the likeliest token of all layers.

    It holds only numbers, and nothing of any text. A file that is damaged or of another version
    counts as empty.
    """

    path: Path
    costs: Costs
    acceptance: Acceptance
    shape: Shape | None = None
    worth: dict[int, float] = field(default_factory=dict)
    threads: int = 0
    loading: LoadingCost = field(default_factory=LoadingCost)
    exits: dict[int, float] = field(default_factory=dict)

    @classmethod
    def open(cls, files: Sequence[Path], *facts: Any) -> Self:
        """The profile of these files; an empty one at first.

        `facts` are everything else that costs depend on: settings and build.
        """
        key = fingerprint(files, *facts)
        path = paths.cache_dir() / "profiles" / f"{files[0].stem}-{key}.json"
        try:
            saved = msgspec.json.decode(paths.read_own(path), type=_Saved)
            if saved.version == _VERSION:
                return cls(
                    path,
                    Costs.from_dict(saved.costs),
                    Acceptance.from_dict(saved.acceptance),
                    _shape(saved.shape),
                    saved.worth,
                    saved.threads,
                    LoadingCost.from_dict(saved.loading),
                    saved.exits,
                )
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _log.warning("profile ignored path=%s reason=%s", path, error)
        return cls(path, Costs(), Acceptance())

    def save(self) -> None:
        """Write the file. An error of the disk is only logged."""
        shape = asdict(self.shape) if self.shape is not None else None
        learned = self.costs.to_dict(), self.acceptance.to_dict(), shape
        loading = self.loading.to_dict()
        saved = _Saved(_VERSION, *learned, self.worth, self.threads, loading, self.exits)
        try:
            paths.write_atomically(self.path, msgspec.json.encode(saved))
        except OSError as error:
            _log.warning("profile not saved path=%s reason=%s", self.path, error)


def fingerprint(files: Sequence[Path], *facts: Any) -> str:
    """A name for these files under these facts, as 16 hexadecimal digits."""
    known = [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    return hashlib.sha256(msgspec.json.encode((known, facts))).hexdigest()[:16]


def _shape(saved: dict[str, Any] | None) -> Shape | None:
    """The saved shape. Raises ValueError if a field is missing: a default could break exactness."""
    if saved is None:
        return None
    if saved.keys() != asdict(Shape()).keys():
        raise ValueError("the exactness class has other fields")
    return msgspec.convert(saved, Shape)
