"""Measures from how many rows on the many-row kernels, tiles of bf16, compute (`native/bf16.h`).

Not every processor has them, and where it does they may be slower: products of both kinds are timed
once, and the choice is kept for the build. Tiles give other bits, so the choice is a part of the
build's description, and with it of every key under which anything that depends on bits is kept.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec import paths
from localspec.built import installed, processor
from localspec.engine.llama.kernels import NEVER
from localspec.engine.llama.products import FORMATS, Products, activations
from localspec.wire.messages import Load

_log = logging.getLogger("localspec.worker")

ROWS = (64, 128, 256)
"""Row counts from which tiles may compute: for fewer, unpacking a panel of weights never pays."""
_GAIN = 0.9
"""The most that tiles may take of the other kernels' time, so that noise does not choose them."""
_TYPES = ("q4_K", "q6_K")
"""The types of most models' weights: where tiles gain for these two, they gain for the others."""
_WIDTH, _OUTPUTS = 1536, 1024
"""A product of 256 rows takes a few milliseconds; its weights leave the second-level cache."""
_TURNS = 3


class Spans(NamedTuple):
    """Seconds that the same products take: by the kernels for few rows, and by tiles."""

    few: float
    many: float

    @property
    def gain(self) -> bool:
        """Whether tiles are faster."""
        return self.many <= _GAIN * self.few


def least_rows(spans: Callable[[int], Spans]) -> int:
    """The least of `ROWS` such that tiles are faster there and at all larger ones; 0 for none."""
    least = 0
    for rows in sorted(ROWS, reverse=True):
        if not spans(rows).gain:
            break
        least = rows
    return least


def use(command: Load) -> None:
    """Let tiles compute in this process, from the row count that was chosen for its build."""
    from localspec.engine.llama.library import build_info, ours  # noqa: PLC0415 - late: llama.cpp

    if command.machine or command.safe_kernels or not ours.kernels or not ours.many_rows(NEVER):
        return
    if rows := choose(build_info()):
        ours.many_rows(rows)


def choose(build: str) -> int:
    """The row count chosen for this build, measured if it is not known; 0 for none.

    Measuring takes a bounded time. Raises OSError where the library cannot be loaded once more.
    """
    key = hashlib.sha256(f"{build}\0{processor()}\0{os.cpu_count()}".encode()).hexdigest()[:16]
    path = paths.cache_dir() / "kernels" / f"many-rows-{key}.json"
    try:
        return msgspec.json.decode(paths.read_own(path), type=int)
    except (OSError, ValueError):
        pass  # not measured yet, or damaged
    chosen = measured(installed())
    try:
        paths.write_atomically(path, msgspec.json.encode(chosen))
    except OSError as error:
        _log.warning("choice of kernels not saved path=%s reason=%s", path, error)
    return chosen


def measured(libraries: Path) -> int:
    """The row count that is best for a build here, on one thread."""
    library = Products(libraries, threads=1)
    x = activations(_WIDTH, max(ROWS))
    matrices = [library.weights("tiles", FORMATS[name], _WIDTH, _OUTPUTS) for name in _TYPES]

    def seconds(rows: int, first: int) -> float:
        library.many_rows(first)
        return sum(library.product(weights, x[:rows])[1] for weights in matrices)

    def spans(rows: int) -> Spans:
        found = Spans(math.inf, math.inf)
        for _ in range(_TURNS):
            turn = Spans(seconds(rows, NEVER), seconds(rows, 1))
            found = Spans(min(found.few, turn.few), min(found.many, turn.many))
        return found

    try:
        return least_rows(spans)
    finally:
        library.many_rows(NEVER)
        for weights in matrices:
            library.free(weights)
