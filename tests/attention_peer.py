"""A process that computes attention by ggml's CPU library and prints what came out.

    python -m attention_peer LIBRARIES [--least]

Like `products_peer`. With `--least`, least microseconds of one layer's attention by cells and rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from ctypes import c_float, c_int, c_int64
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from emulated import Emulated, Sent, is_emulated
from numpy.typing import NDArray

from localspec.engine.llama.products import Products, call

F32, F16 = 0, 1
"""ggml's numbers of these types."""
ROWS = [1, 2, 3, 5, 8, 12, 17, 31, 32]
MOST = max(ROWS)
EMULATED = [(1, 1), (1, 5), (2, 2), (5, 5), (12, 1), (17, 2), (MOST, 5), (MOST, 2)]
"""Rows and threads of what an emulator computes."""


class Case(NamedTuple):
    """One attention: numbers of a head's keys and values, heads, cells, and what else there is."""

    key: int = 64
    value: int = 64
    heads: int = 6
    kv_heads: int = 2
    cells: int = 1280
    streams: int = 1
    sinks: bool = False
    cap: float = 0.0

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())


CASES = [
    Case(),
    Case(heads=4, kv_heads=4, cells=256),
    Case(key=128, value=128, heads=7, kv_heads=1, streams=3),
    Case(key=192, value=128, cells=768),
    Case(key=80, value=80, heads=8, sinks=True),
    Case(key=256, value=256, heads=2, cells=768, cap=30.0),
]


class Inputs(NamedTuple):
    """The inputs of a case.

    q (streams, rows, heads, key), k and v (streams, cells, kv_heads, key and value), mask (streams,
    rows, cells), sinks (heads,).
    """

    q: NDArray[np.float32]
    k: NDArray[np.float16]
    v: NDArray[np.float16]
    mask: NDArray[np.float16]
    sinks: NDArray[np.float32] | None

    def tensors(self) -> list[tuple[int, NDArray[Any]]]:
        """In ggml's order, with its numbers of their types."""
        sinks = [] if self.sinks is None else [(F32, self.sinks)]
        return [(F32, self.q), (F16, self.k), (F16, self.v), (F16, self.mask[:, None]), *sinks]

    def of(self, rows: int, padding: int) -> Inputs:
        """The first rows alone, and so many cells more."""
        more = ((0, 0), (0, padding), (0, 0), (0, 0))
        k, v = (np.pad(each, more, constant_values=np.nan) for each in (self.k, self.v))
        mask = np.pad(self.mask, ((0, 0), (0, 0), (0, padding)), constant_values=-np.inf)
        return Inputs(self.q[:, :rows], k, v, np.ascontiguousarray(mask[:, :rows]), self.sinks)


def inputs(case: Case) -> Inputs:
    """Random; each row sees one cell more than the one before, and none of another's text.

    Cells that no row sees hold no numbers.
    """
    random = np.random.default_rng(case.cells + case.heads)
    shape = (case.streams, case.cells, case.kv_heads)
    k = random.standard_normal((*shape, case.key)).astype(np.float16)
    v = random.standard_normal((*shape, case.value)).astype(np.float16)
    q = 3 * random.standard_normal((case.streams, MOST, case.heads, case.key)).astype(np.float32)
    mask = np.zeros((case.streams, MOST, case.cells), np.float16)
    for row in range(MOST):
        mask[:, row, case.cells - MOST - 20 + row :] = -np.inf
    mask[:, :, 37:90] = -np.inf
    for unseen in (slice(37, 90), slice(case.cells - 21, None)):
        k[:, unseen] = np.nan
        v[:, unseen] = np.inf
    sinks = random.standard_normal(case.heads).astype(np.float32) if case.sinks else None
    return Inputs(q, k, v, mask, sinks)


def expected(case: Case, given: Inputs) -> NDArray[np.float64]:
    """(streams, rows, heads, value), as the formula says, in double precision."""
    shared = case.heads // case.kv_heads
    k, v = (
        np.repeat(np.nan_to_num(each.astype(np.float64), posinf=0), shared, 2)
        for each in given[1:3]
    )
    scores = np.einsum("srhd,schd->srhc", given.q.astype(np.float64), k) / np.sqrt(case.key)
    if case.cap:
        scores = case.cap * np.tanh(scores / case.cap)
    scores += given.mask[:, :, None].astype(np.float64)
    peak = scores.max(-1, keepdims=True)
    weights = np.exp(scores - peak)
    sums = weights.sum(-1, keepdims=True)
    if given.sinks is not None:
        sums += np.exp(given.sinks[None, None, :, None] - peak)
    found: NDArray[np.float64] = np.einsum("srhc,schd->srhd", weights / sums, v)
    return found


def attention(
    ggml: Products | Emulated, case: Case, given: Inputs, repeats: int = 1
) -> tuple[NDArray[np.float32], float]:
    """(streams, rows, heads, value) as ggml computes it, and the least seconds it took."""
    shape = (case.streams, given.q.shape[1], case.heads, case.value)
    if isinstance(ggml, Emulated):
        sent = [Sent(kind, data.shape[::-1], data.tobytes()) for kind, data in given.tensors()]
        return ggml.attention(sent, shape, case.cap), 0.0
    context = ggml.context()

    def tensor(kind: int, data: NDArray[Any]) -> Any:
        sizes = map(c_int64, (*data.shape[::-1], *[1] * (4 - data.ndim)))
        return call(ggml.base, "new_tensor_4d", context, c_int(kind), *sizes)

    def turned(kept: Any) -> Any:
        """As attention reads what has all heads of a cell side by side."""
        return call(ggml.base, "permute", context, kept, *map(c_int, (0, 2, 1, 3)))

    q, k, v, mask, *sinks = tensors = [tensor(*each) for each in given.tensors()]
    numbers = map(c_float, (case.key**-0.5, 0.0, case.cap))
    found = call(
        ggml.base, "flash_attn_ext", context, turned(q), turned(k), turned(v), mask, *numbers
    )
    for each in sinks:
        call(ggml.base, "flash_attn_ext_add_sinks", found, each)
    written = zip(tensors, (data for _, data in given.tensors()), strict=True)
    return ggml.computed(context, found, list(written), shape, repeats)


def digests(ggml: Products | Emulated) -> dict[str, dict[str, Any]]:
    """By case: how far from the formula, and of each row what it came to in each company.

    An emulator is slow: it has fewer of them.
    """
    found = {}
    companies = list(itertools.product(ROWS, (1, 2, 5), (0, 256)))
    if isinstance(ggml, Emulated):
        companies = [(rows, threads, 256 * (rows % 2)) for rows, threads in EMULATED]
    for case in CASES:
        given = inputs(case)
        by_rows: dict[str, list[str]] = {}
        for rows, threads, padding in companies:
            ggml.use_threads(threads)
            out, _ = attention(ggml, case, given.of(rows, padding))
            by_rows[f"{rows} rows, {threads} threads, {padding} more cells"] = [
                hashlib.sha256(out[:, row].tobytes()).hexdigest()[:12] for row in range(rows)
            ]
        wrong = np.abs(out - expected(case, given)).max()
        found[str(case)] = {"wrong": float(wrong), "rows": by_rows}
    return found


def least(ggml: Products) -> dict[str, dict[int, int]]:
    """Microseconds by heads and cells, and by rows, on one thread."""
    found: dict[str, dict[int, int]] = {}
    for heads, cells in itertools.product([(12, 2), (32, 8), (32, 32)], (256, 1024, 4096)):
        case = Case(128, 128, *heads, cells)
        times = found[f"{case.heads} by {case.kv_heads} heads, {cells} cells"] = {}
        for rows in (1, 2, 4, 8, 16, 32):
            _, seconds = attention(ggml, case, inputs(case).of(rows, 0), 12)
            times[rows] = round(1e6 * seconds)
    return found


def main() -> None:
    """As the module says."""
    libraries = Path(sys.argv[1])
    ggml = (Emulated if is_emulated(libraries) else Products)(libraries)
    found: dict[str, Any] = {}
    if "--least" in sys.argv:
        assert isinstance(ggml, Products)
        ggml.use_threads(1)
        found = least(ggml)
    elif ggml.attends:
        found = digests(ggml)
    json.dump({"kernels": ggml.kernels, "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
