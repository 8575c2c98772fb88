"""A process that multiplies matrices by rows in batches, and prints what went wrong.

    python -m batches_peer LIBRARIES

In every memory that llama.cpp may choose for weights: what it takes it has to multiply right. Where
the libraries are for another CPU an emulator runs them (`emulated.py`).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from emulated import Emulated, Sent, is_emulated
from numpy.typing import NDArray

from localspec.built import installed
from localspec.engine.llama.products import Products, Stored, call
from localspec.types import Floats

Lie = Literal["together", "apart", "crossed"]
"""One behind the other, with gaps of equal size, or those of a batch among those of the others."""
WIDTH, OUTPUTS = 256, 64
GAP = 32
"""Numbers between rows that lie apart."""
ROWS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 48, 49, 63, 64]
SOME_ROWS = [1, 2, 5, 33]
ONE_MATRIX = [(1, 1), (2, 1), (4, 1), (1, 2), (3, 2)]
"""Batches by which one matrix is multiplied."""
BATCHES = [((2, 1), (2, 1)), ((2, 1), (4, 1)), ((1, 2), (3, 2)), ((2, 2), (4, 2)), ((3, 1), (3, 2))]
"""Weights that are a batch themselves, and the rows'."""
FEW = 32
"""So many rows are computed by our kernels in every format that is theirs."""
OF_AMX = {"q4_0", "q4_K", "q6_K"}
"""The formats that are ours in llama.cpp's layout for it (`amx.cpp`)."""
CLOSE = 0.03
"""So much of a row's length may come of activations in eight bits; another row is further away."""
GUARD, FREE = 0xA5, 0x5A
"""The filling around a result, and in it before it is computed."""
NUMBERS = [1, 2, 3, 6, 7, 8, *range(10, 15), *range(16, 24), 29, 30, 34, 35, *range(39, 43)]
"""ggml's, of all types that weights may have in a file: halves, and quantized ones."""
_OF_BUFFER, _OF_STRIDES, _OF_DATA = 8, 48, 248
"""Where a ggml_tensor has its buffer and its four strides."""


class Case(NamedTuple):
    """Sizes of the batches, and the rows in each."""

    weights: tuple[int, int]
    batch: tuple[int, int]
    rows: int
    lie: Lie = "together"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of the rows, the outermost first."""
        return self.batch[1], self.batch[0], self.rows

    def __str__(self) -> str:
        of, by = ("x".join(map(str, each)) for each in (self.weights, self.batch))
        return f"{of} matrices by {by} batches of {self.rows} rows {self.lie}"


def cases(*, all_rows: bool) -> Iterator[Case]:
    """All, by rows; or those of some rows alone."""
    apart: tuple[Lie, ...] = ("apart", "crossed")
    for batch in ONE_MATRIX:
        yield from (Case((1, 1), batch, rows) for rows in (ROWS if all_rows else SOME_ROWS))
        yield from (Case((1, 1), batch, rows, lie) for rows in SOME_ROWS for lie in apart)
    for (weights, batch), rows in itertools.product(BATCHES, SOME_ROWS):
        yield Case(weights, batch, rows)


class Kind(NamedTuple):
    """A type of ggml's, and matrices of the largest batch as files have them and as numbers."""

    name: str
    number: int
    data: NDArray[np.uint8]
    values: Floats

    def part(self, weights: tuple[int, int]) -> tuple[NDArray[np.uint8], Floats]:
        """Of a smaller batch."""
        count = weights[0] * weights[1]
        shape = weights[1], weights[0], OUTPUTS, WIDTH
        return np.ascontiguousarray(self.data[:count]), self.values[:count].reshape(shape)


def kinds() -> list[Kind]:
    """Of all types, by the library for this CPU."""
    library = Products(installed())
    random = np.random.default_rng(5)
    count = max(of[0] * of[1] for of, _ in BATCHES)
    values = random.standard_normal((count * OUTPUTS, WIDTH)).astype(np.float32)
    found = []
    for number in NUMBERS:
        name = call(library.base, "type_name", c_int(number), result=c_char_p).decode()
        data = _quantized(library, values, number)
        stored = Stored(number, WIDTH, count * OUTPUTS, data)
        rows = library.rows(stored, np.arange(count * OUTPUTS, dtype=np.int32))
        parts = data.reshape(count, -1), rows.reshape(count, OUTPUTS, WIDTH)
        found.append(Kind(name, number, *parts))
    return found


def _quantized(library: Products, values: Floats, number: int) -> NDArray[np.uint8]:
    """As ggml quantizes; where that needs to know which weights matter, all of them do."""
    rows, width = values.shape
    size = call(library.base, "row_size", c_int(number), c_int64(width), result=c_size_t)
    data = _aligned(rows * size).reshape(rows, size)
    equal = np.ones(width, np.float32)
    pointers = (each.ctypes.data_as(c_void_p) for each in (values, data))
    sizes = c_int64(0), c_int64(rows), c_int64(width), equal.ctypes.data_as(c_void_p)
    call(library.base, "quantize_chunk", c_int(number), *pointers, *sizes, result=c_size_t)
    return data


def stacked(case: Case) -> Floats:
    """Rows of all sizes, no two of them alike: (batches, batches, rows, width)."""
    random = np.random.default_rng(case.rows)
    x = random.standard_normal((*case.sizes, WIDTH)).astype(np.float32)
    x *= random.choice(np.array([1e-3, 1, 30], np.float32), (*case.sizes, 1))
    return x


def expected(x: Floats, weights: Floats) -> Floats:
    """The differences between numbers."""
    repeats = np.array(x.shape[:2]) // np.array(weights.shape[:2])
    matrices = np.repeat(np.repeat(weights, repeats[0], 0), repeats[1], 1)
    products: Floats = x @ matrices.swapaxes(-1, -2)
    return products


def far(found: Floats, right: Floats) -> bool:
    """Whether some row is another, but for eight bits of activations."""
    apart = np.linalg.norm(found - right, axis=-1)
    return bool(np.any(~(apart <= CLOSE * np.linalg.norm(right, axis=-1))))


class Memory:
    """A kind of memory for weights of one type and batch, in a library of this process."""

    def __init__(self, library: Products, name: str, kind: Kind, weights: tuple[int, int]) -> None:
        self.products, self.name, self.kind = library, name, kind
        self._type = library.buffer_types[name]
        data, self.values = kind.part(weights)
        self._context = library.context()
        sizes = map(c_int64, (WIDTH, OUTPUTS, *weights))
        self.tensor = call(library.base, "new_tensor_4d", self._context, c_int(kind.number), *sizes)
        self.taken = self._takes(weights)
        if self.taken:
            self._buffer = call(
                library.base, "backend_alloc_ctx_tensors_from_buft", self._context, self._type
            )
            library.write(self.tensor, data)

    def _takes(self, weights: tuple[int, int]) -> bool:
        """As llama.cpp asks before it loads: with memory of no size, and many rows."""
        call_ = self.products.base
        empty = call(call_, "backend_buft_alloc_buffer", self._type, c_size_t(0))
        _pointer(self.tensor, _OF_BUFFER, c_void_p).value = empty.value
        context, _, product = self._product((512, *weights))
        taken = self.supports(product)
        call(call_, "free", context)
        call(call_, "backend_buffer_free", empty)
        _pointer(self.tensor, _OF_BUFFER, c_void_p).value = None
        return taken

    def supports(self, product: Any) -> bool:
        """As llama.cpp's scheduler asks of every operation."""
        arguments = self.products.device, product
        return bool(call(self.products.base, "backend_dev_supports_op", *arguments, result=c_bool))

    def _product(self, rows: tuple[int, int, int]) -> tuple[Any, Any, Any]:
        base = self.products.base
        context = self.products.context()
        x = call(base, "new_tensor_4d", context, c_int(0), *map(c_int64, (WIDTH, *rows)))
        return context, x, call(base, "mul_mat", context, self.tensor, x)

    def product(self, case: Case, x: Floats) -> Floats | str:
        """Of rows that lie as the case says; or what went wrong."""
        base, outer = self.products.base, case.sizes
        context, rows, product = self._product(outer[::-1])
        whole, where = _laid(x, case.lie)
        _pointer(rows, _OF_STRIDES, c_size_t * 4)[:] = where.strides[::-1]
        size = 4 * OUTPUTS * x[..., 0].size
        guard = 4096 + 4 * size // 64 * 64
        memory = _aligned(guard + size + guard)
        memory[:] = GUARD
        memory[guard : guard + size] = FREE
        held = [
            self._lend(rows, whole, where.ctypes.data),
            self._lend(product, memory, memory.ctypes.data + guard),
        ]
        said: Floats | str = "is taken and then refused"
        if self.supports(product):
            graph = call(base, "new_graph", context)
            call(base, "build_forward_expand", graph, product)
            self.products.compute(graph)
            said = memory[guard : guard + size].view(np.float32).reshape(*outer, OUTPUTS).copy()
            if np.any(memory[:guard] != GUARD) or np.any(memory[guard + size :] != GUARD):
                said = "writes outside of its result"
        for each in held:
            call(base, "backend_buffer_free", each)
        call(base, "free", context)
        return said

    def _lend(self, tensor: Any, memory: NDArray[np.uint8], at: int) -> Any:
        """Our memory as a tensor's."""
        whole = memory.ctypes.data_as(c_void_p), c_size_t(memory.nbytes)
        buffer = call(self.products.base, "backend_cpu_buffer_from_ptr", *whole)
        _pointer(tensor, _OF_BUFFER, c_void_p).value = buffer.value
        _pointer(tensor, _OF_DATA, c_void_p).value = at
        return buffer

    def free(self) -> None:
        """All of it."""
        if self.taken:
            call(self.products.base, "backend_buffer_free", self._buffer)
        call(self.products.base, "free", self._context)


def _pointer(tensor: Any, offset: int, kind: Any) -> Any:
    """A field of a ggml_tensor."""
    return kind.from_address(tensor.value + offset)


def _aligned(size: int) -> NDArray[np.uint8]:
    """Memory that begins where ggml wants a tensor to."""
    memory = np.empty(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size]


def _laid(x: Floats, lie: Lie) -> tuple[NDArray[np.uint8], Floats]:
    """Memory that begins where ggml wants it to, and the same rows at some places of it."""
    shape = list(x.shape)
    if lie == "crossed":
        shape[1], shape[2] = shape[2], shape[1]
    shape[3] += GAP * (lie == "apart")
    whole = _aligned(4 * int(np.prod(shape)))
    memory = whole.view(np.float32).reshape(shape)
    memory[:] = np.nan
    seen = memory.swapaxes(1, 2) if lie == "crossed" else memory[..., :WIDTH]
    seen[:] = x
    return whole, seen


def is_ours(library: Products, memory: Memory) -> bool:
    """Whether few rows are by a kernel of ours."""
    layouts: dict[str, Any] = {"CPU": "plain", "CPU_REPACK": "packed"}
    if memory.name == "AMX":
        return memory.kind.name in OF_AMX
    return (layouts.get(memory.name), memory.kind.name) in library.formats


def fault(memory: Memory, case: Case, alone: dict[bytes, bytes], *, ours: bool) -> str:
    """The errors of one product; empty where it is right."""
    x = stacked(case)
    found = memory.product(case, x)
    if isinstance(found, str):
        return found
    if far(found, expected(x, memory.values)):
        return "has rows that are others"
    if not ours or x[..., 0].size > FEW or case.weights != (1, 1):
        return ""
    if memory.name == "CPU" and case.lie == "crossed":
        return ""  # of plain weights llama.cpp's own read rows that lie unevenly
    for row, outputs in zip(x.reshape(-1, WIDTH), found.reshape(-1, OUTPUTS), strict=True):
        single = alone.get(row.tobytes())
        if single is None:
            computed = memory.product(Case((1, 1), (1, 1), 1), row[None, None, None])
            assert not isinstance(computed, str)
            single = alone[row.tobytes()] = computed.tobytes()
        if outputs.tobytes() != single:
            return "has rows that differ from each of them alone"
    return ""


def faults(library: Products, name: str, kind: Kind) -> tuple[int, list[str]]:
    """Products of a kind's weights in some memory: how many, and what is wrong with them.

    First with our kernels, if any are for these, then with llama.cpp's own.
    """
    found, count = [], 0
    memories: dict[tuple[int, int], Memory] = {}
    for ours in (True, False):
        library.use(ours)
        alone: dict[bytes, bytes] = {}
        for case in cases(all_rows=name != "CPU" or ours):
            if case.weights not in memories:
                memories[case.weights] = Memory(library, name, kind, case.weights)
            memory = memories[case.weights]
            with_ours = ours and is_ours(library, memory)
            if not memory.taken or (ours and not with_ours):
                continue
            count += 1
            library.use_threads(1 + case.rows % 2)
            said = fault(memory, case, alone, ours=with_ours)
            if said:
                whose = "our" if ours else "llama.cpp's own"
                found.append(f"{name} {kind.name}, {case}, {whose} kernels: {said}")
                sys.stderr.write(found[-1] + "\n")  # what is wrong may end the process
    for memory in memories.values():
        memory.free()
    library.use(True)
    return count, found


def tried(libraries: Path) -> dict[str, Any]:
    """By memory: types that it takes, and products of each; and all that is wrong."""
    library = Products(libraries)
    wrong: list[str] = []
    taken: dict[str, dict[str, int]] = {name: {} for name in library.buffer_types}
    for kind, name in itertools.product(kinds(), taken):
        count, found = faults(library, name, kind)
        wrong += found
        if count:
            taken[name][kind.name] = count
    return {"kernels": library.kernels, "taken": taken, "wrong": wrong}


def tried_emulated(libraries: Path) -> dict[str, Any]:
    """The same for another CPU, of some rows: an emulator takes a hundred times as long.

    Our kernels compute what is theirs.
    """
    library = Emulated(libraries)
    wrong: list[str] = []
    taken: dict[str, dict[str, int]] = {"CPU": {}, "CPU_REPACK": {}}
    some = [each for each in cases(all_rows=False) if each.lie != "apart"]
    for kind, name, case in itertools.product(kinds(), taken, some):
        data, values = kind.part(case.weights)
        sizes = WIDTH, OUTPUTS, *case.weights
        weights = Sent(kind.number, sizes, data.tobytes(), packed=name == "CPU_REPACK")
        x = stacked(case)
        found = library.batches(weights, x, crossed=case.lie == "crossed")
        if found is None:
            continue
        taken[name][kind.name] = taken[name].get(kind.name, 0) + 1
        if far(found, expected(x, values)):
            wrong.append(f"{name} {kind.name}, {case}: has rows that are others")
    return {"kernels": library.kernels, "taken": taken, "wrong": wrong}


def main() -> None:
    """As the module says."""
    libraries = Path(sys.argv[1])
    every = tried_emulated if is_emulated(libraries) else tried
    json.dump(every(libraries), sys.stdout)


if __name__ == "__main__":
    main()
