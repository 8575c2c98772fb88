"""The staircase of one GGUF on one device, measured with nothing else running, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from localspec.bench import native
from localspec.bench.report import Table
from localspec.catalog import header
from localspec.machine import Forwards

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)
"""Row counts of a round: CUDA's kernels change after 8, so 9 is among them."""
CELLS = (64, 2048)
"""Tokens in the context: those of a short chat, and those of a file that is being edited."""


class Stair(msgspec.Struct, frozen=True):
    """Forwards of `rows` rows: milliseconds, and the middle half of them relative to the median.

    These forwards are steady: at least the two before each had as many rows. `changed_ms` is the
    median of the forwards right after another row count, `second_ms` of those that follow these.
    """

    rows: int
    median_ms: float
    least_ms: float
    spread: float
    changed_ms: float
    second_ms: float


class Curve(msgspec.Struct, frozen=True):
    """A staircase after a context of `cells` tokens, ascending from one row."""

    cells: int
    prefill_tokens_per_second: float
    stairs: list[Stair]

    @property
    def row_ms(self) -> float:
        """One row: the time of a token in plain decoding, and of a drafted token of a draft."""
        return self.stairs[0].median_ms


class Measured(msgspec.Struct, frozen=True):
    """One file on one device; `memory` maps llama.cpp's names of buffers to bytes.

    `head_ms` is the time of a feature head's token on the host; None if the model can have none.
    """

    build: str
    parameters: int
    size_bytes: int
    memory: dict[str, int]
    curves: list[Curve]
    head_ms: float | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether weights are in a GPU's own memory."""
        return any(name.startswith("CUDA") and "Host" not in name for name in self.memory)


def measure(  # noqa: PLR0913 - a file, and how it is measured, by name
    path: Path,
    *,
    rows: Sequence[int] = ROWS,
    cells: Sequence[int] = CELLS,
    repeats: int = 7,
    gpu_layers: int = -1,
    threads: int = 0,
) -> Measured:
    """Measure one GGUF in a process of its own. Raises BadGGUF, EngineError."""
    header.read(path)
    return native.ask(
        Measured,
        "microbench.staircase",
        str(path),
        f"--rows={','.join(map(str, (1, *rows)))}",
        f"--cells={','.join(map(str, cells))}",
        f"--repeats={repeats}",
        f"--gpu-layers={gpu_layers}",
        f"--threads={threads}",
    )


def table(found: dict[str, Measured]) -> Table:
    """One line for each model and context: milliseconds of one row, others relative to it."""
    rows = sorted({stair.rows for one in found.values() for c in one.curves for stair in c.stairs})
    return Table(
        "Cost of one forward by rows, relative to one row",
        ["model", "context", "prefill tok/s", "ms of 1 row", *(str(count) for count in rows[1:])],
        [
            [
                name,
                str(curve.cells),
                f"{curve.prefill_tokens_per_second:.0f}",
                f"{curve.row_ms:.2f}",
                *(f"{stair.median_ms / curve.row_ms:.2f}" for stair in curve.stairs[1:]),
            ]
            for name, one in found.items()
            for curve in one.curves
        ],
        "Medians of forwards after others of as many rows, measured alone. A round that verifies "
        "n - 1 drafted tokens has n rows.",
        labels=2,
    )


def changes(found: dict[str, Measured]) -> Table:
    """The time of a forward right after another row count, and of the forwards that follow it."""
    rows = sorted({stair.rows for one in found.values() for stair in one.curves[0].stairs})
    return Table(
        "Milliseconds of a forward by the forwards before it",
        ["model", "after", *map(str, rows)],
        [
            [name, after, *(f"{getattr(stair, field):.2f}" for stair in one.curves[0].stairs)]
            for name, one in found.items()
            for after, field in (
                ("others", "changed_ms"),
                ("one alike", "second_ms"),
                ("two alike", "median_ms"),
            )
        ],
        "By rows, behind the shortest context. Where a device keeps a graph of its kernels for one "
        "row count, another one has to be prepared anew.",
        labels=2,
    )


def forwards(found: Measured) -> Forwards:
    """The model's costs for a table of the machine that it was measured on."""
    near, far = found.curves[0], found.curves[-1]
    tokens = max(1, far.cells - near.cells)
    looks = {
        # Noise could make the few tokens of the near context seem to cost all of its time.
        one.rows: min(
            max(0.0, other.median_ms - one.median_ms) / tokens, one.median_ms / near.cells / 2
        )
        for one, other in zip(near.stairs, far.stairs, strict=True)
    }
    return Forwards(
        {one.rows: round(one.median_ms - near.cells * looks[one.rows], 4) for one in near.stairs},
        {one.rows: round(max(0.0, one.changed_ms - one.median_ms), 4) for one in near.stairs},
        {one.rows: round(max(0.0, one.second_ms - one.median_ms), 4) for one in near.stairs},
        {rows: round(ms, 8) for rows, ms in looks.items()},
        round(1000 / far.prefill_tokens_per_second, 4),
    )


def drafting(target: Measured, draft: Measured) -> Table:
    """Cost of a drafted token in rows of the target."""
    return Table(
        "Cost of one drafted token",
        ["context", "ms", "in rows of the target"],
        [
            [str(mine.cells), f"{mine.row_ms:.2f}", f"{mine.row_ms / base.row_ms:.2f}"]
            for base, mine in zip(target.curves, draft.curves, strict=True)
        ],
    )
