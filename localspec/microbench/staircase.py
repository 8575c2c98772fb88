"""Measures forwards by their rows: `python -m localspec.microbench.staircase MODEL`.

The model is measured with nothing else running, through the same `Context` that serves requests.
After a context of some tokens come several forwards of one row count, then several of the next, and
this is repeated until forwards of one row count agree in time. The first and second forward of each
row count are kept apart, because a device that keeps a graph for one row count has to build it anew
for another. Native code may crash on a strange file, so only this process runs it. Standard output
carries one JSON object, the `Measured` of `bench/staircase.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.config import Placement
from localspec.errors import EngineError, LocalSpecError
from localspec.types import Row

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.model import Model

_READ_ROWS = 512
"""Rows of one forward while the context is read."""
_SPREAD = 0.03
"""Row counts are measured again until the middle half of each lies within 3 % of its median."""
_PATIENCE = 4
"""Multiple of the wanted repeats after which a noisy machine's times are accepted."""
_STEADY = 3
"""Forwards of one row count in a row after the first two: only these are steady."""


def main() -> int:
    """Measure and write the result; the exit code is 0, or that of an error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m localspec.microbench.staircase")
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=_counts, required=True, metavar="N,N")
    parser.add_argument("--cells", type=_counts, required=True, metavar="N,N")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gpu-layers", type=int, default=-1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--flash-attention", choices=("auto", "on", "off"), default="auto")
    asked = parser.parse_args()
    # Native code may print to descriptor 1 at any time; our answer gets a descriptor of its own.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    placement = Placement(
        gpu_layers=asked.gpu_layers,
        threads=asked.threads,
        flash_attention=asked.flash_attention,
    )
    try:
        measured = _measure(asked.model, placement, asked.rows, asked.cells, asked.repeats)
    except LocalSpecError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the starting process reads the last line
        return error.exit_code
    with answer:
        answer.write(msgspec.json.encode(measured))
    return 0


def _counts(text: str) -> list[int]:
    counts = sorted({int(part) for part in text.split(",")})
    if counts[0] < 1:
        raise ValueError(text)
    return counts


def _measure(
    path: Path, placement: Placement, rows: Sequence[int], cells: Sequence[int], repeats: int
) -> dict[str, Any]:
    # Imported here: --help and bad arguments need no native library.
    from localspec.engine.llama.context import Context  # noqa: PLC0415 - see above
    from localspec.engine.llama.library import build_info  # noqa: PLC0415
    from localspec.engine.llama.model import Model  # noqa: PLC0415
    from localspec.engine.speculation.head import threads  # noqa: PLC0415
    from localspec.microbench.head import token_ms  # noqa: PLC0415

    length = max(cells) + max(rows)
    model = Model.load(path, placement)
    try:
        if length > model.context_train:
            raise EngineError(f"A context of {length} is over the model's {model.context_train}.")
        context = Context.open(
            model, placement, slots=1, context=length, rows=max(_READ_ROWS, *rows)
        )
        try:
            curves = [_curve(context, length, rows, repeats) for length in cells]
            head_ms = token_ms(model.width, threads(beside_target=model.on_cpu))
        finally:
            context.close()
    finally:
        model.close()
    return {
        "build": build_info(),
        "parameters": model.parameters,
        "size_bytes": model.size_bytes,
        "memory": _memory(model, context),
        "curves": curves,
        "head_ms": head_ms,
    }


def _memory(model: Model, context: Context) -> dict[str, int]:
    """Bytes by device and purpose, which show where the layers are."""
    buffers = [*model.buffers, *context.buffers]
    return {f"{buffer.device} {buffer.what}": buffer.bytes for buffer in buffers}


def _curve(context: Context, cells: int, counts: Sequence[int], repeats: int) -> dict[str, Any]:
    """Forwards of each row count after `cells` tokens, and the rate at which these were read.

    If only one row count is asked for, only its very first forward has another one before it.
    """
    _read(context, cells)  # the first reading sets up kernels and memory
    reading = _read(context, cells)
    spans = {count: _Spans() for count in counts}
    for repeat in range(1 + repeats * _PATIENCE):
        for count in counts:
            visit = [_forward(context, cells, count) for _ in range(2 + _STEADY)]
            if repeat:  # the first of each kind warms up
                spans[count].take(visit)
        if repeat >= repeats and max(_spread(span.steady) for span in spans.values()) <= _SPREAD:
            break
    return {
        "cells": cells,
        "prefill_tokens_per_second": cells / reading,
        "stairs": [spans[count].stair(count) for count in counts],
    }


@dataclass
class _Spans:
    """Seconds of forwards of one row count: right after another one, the second, and all later."""

    changed: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)

    def take(self, visit: Sequence[float]) -> None:
        """Add some forwards in a row, of which the first comes after another row count."""
        self.changed.append(visit[0])
        self.second.append(visit[1])
        self.steady += visit[2:]

    def stair(self, rows: int) -> dict[str, float]:
        """The figures of a `Stair`."""
        return {
            "rows": rows,
            "median_ms": 1000 * statistics.median(self.steady),
            "least_ms": 1000 * min(self.steady),
            "spread": _spread(self.steady),
            "changed_ms": 1000 * statistics.median(self.changed),
            "second_ms": 1000 * statistics.median(self.second),
        }


def _read(context: Context, cells: int) -> float:
    """Fill the empty slot with `cells` tokens; returns the seconds that it took."""
    context.truncate(0, 0)
    began = time.perf_counter()
    for start in range(0, cells, _READ_ROWS):
        stop = min(start + _READ_ROWS, cells)
        # The last row wants logits, so that each forward ends before the next begins, on a GPU too.
        context.decode(
            [_row(context, at, wants_logits=at == stop - 1) for at in range(start, stop)]
        )
    return time.perf_counter() - began


def _forward(context: Context, cells: int, count: int) -> float:
    """The seconds of one forward with logits for all rows, which are removed again afterwards."""
    rows = [_row(context, at, wants_logits=True) for at in range(cells, cells + count)]
    began = time.perf_counter()
    logits = context.decode(rows).logits
    seconds = time.perf_counter() - began
    if not abs(float(logits[0].sum())) < float("inf"):
        raise EngineError("The model's logits are not finite, so its times mean nothing.")
    context.truncate(0, cells)
    return seconds


def _row(context: Context, position: int, *, wants_logits: bool) -> Row:
    return Row(position * 7919 % context.n_vocab, position, 0, wants_logits)


def _spread(seconds: Sequence[float]) -> float:
    """The middle half of some times relative to their median; 0 for fewer than four times."""
    if len(seconds) < 4:  # noqa: PLR2004 - quartiles
        return 0.0
    lower, middle, upper = statistics.quantiles(seconds, n=4)
    return (upper - lower) / middle


if __name__ == "__main__":
    sys.exit(main())
