"""Single products by ggml's CPU library alone, with which our kernels are tried.

It needs no model and no llama.cpp, so a library for another instruction set can be tried as well.
Only processes that may die import it: a miscompiled kernel ends its process.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import time
from collections.abc import Sequence
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.kernels import KernelInfo, Layout
from localspec.types import Floats

FLOAT, INTEGER = 0, 26  # ggml_type
_TOGETHER = 32
"""No layout packs more rows into one block."""
_SUFFIX = "dylib" if sys.platform == "darwin" else "so"


class Format(NamedTuple):
    """ggml's number of a type, weights and bytes of a block, and where its 16-bit floats are."""

    number: int
    weights: int
    size: int
    halves: tuple[int, ...]

    def blocks(self, width: int, outputs: int) -> NDArray[np.uint8]:
        """Random bits for all weights; each output has 16-bit floats of one kind.

        The kinds are usual values, denormal ones with zeros of both signs, and the largest.
        """
        random = np.random.default_rng(width + outputs)
        count = width // self.weights
        found = random.integers(0, 256, (outputs, count, self.size), np.uint8)
        for at in self.halves:
            for output in range(outputs):
                chosen = random.choice(_STEPS[output % len(_STEPS)], count).astype("<u2")
                found[output, :, at : at + 2] = chosen.view(np.uint8).reshape(count, 2)
        return np.ascontiguousarray(found.reshape(outputs, -1))


FORMATS = {
    "q4_0": Format(2, 32, 18, (0,)),
    "q8_0": Format(8, 32, 34, (0,)),
    "q4_K": Format(12, 256, 144, (0, 2)),
    "q5_K": Format(13, 256, 176, (0, 2)),
    "q6_K": Format(14, 256, 210, (208,)),
    "iq4_xs": Format(23, 256, 136, (0,)),
}
"""Quantized formats that our kernels compute, by ggml's names."""


def _halves(*values: float) -> NDArray[np.uint16]:
    return np.array(values, np.float16).view(np.uint16)


_STEPS = [
    _halves(*np.linspace(-0.02, 0.02, 40)),
    _halves(6e-8, -6e-8, 3e-5, 0.0, -0.0),
    _halves(65504, -65504, 60000),
]


class _Parameters(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("memory", c_void_p), ("no_alloc", c_bool)]


def call(library: ctypes.CDLL, name: str, *arguments: Any, result: Any = c_void_p) -> Any:
    """A function of ggml; by default it returns a pointer, or nothing that matters."""
    function = library[f"ggml_{name}"]
    function.restype = result
    found = function(*arguments)
    return c_void_p(found) if result is c_void_p else found


class Stored(NamedTuple):
    """A matrix as files have it: ggml's number of its type, its sizes, the bytes of all rows."""

    type: int
    width: int
    outputs: int
    data: NDArray[np.uint8]


class Weights(NamedTuple):
    """A matrix as ggml holds it: its tensor, the memory of both, outputs."""

    tensor: Any
    buffer: Any
    context: Any
    outputs: int


class Products(KernelInfo):
    """Matrices and their products, by ggml's library and our kernels in it.

    Used by one thread; weights stay until `free`. `buffer_types` are the kinds of memory that
    weights may have on this CPU, by ggml's names: plain ("CPU") or in layouts that it makes.
    """

    def __init__(self, libraries: Path, *, threads: int = 2) -> None:
        self.base, self._cpu = (
            ctypes.CDLL(str(libraries / f"libggml-{name}.{_SUFFIX}")) for name in ("base", "cpu")
        )
        super().__init__(self._cpu)
        self._backend = call(self._cpu, "backend_cpu_init")
        self.use_threads(threads)
        registry = call(self._cpu, "backend_cpu_reg")
        self.device = call(self.base, "backend_reg_dev_get", registry, c_size_t(0))
        name = c_char_p(b"ggml_backend_dev_get_extra_bufts")
        address = call(self.base, "backend_reg_get_proc_address", registry, name)
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(address.value)(self.device)
        kinds = map(c_void_p, itertools.takewhile(bool, map(extra.__getitem__, range(9))))
        self._plain = call(self.base, "backend_dev_buffer_type", self.device)
        self.buffer_types = {"CPU": self._plain} | {
            call(self.base, "backend_buft_name", each, result=c_char_p).decode(): each
            for each in kinds
        }
        self._layouts = {
            "plain": self._plain,
            "packed": self.buffer_types.get("CPU_REPACK"),
            "tiles": self.buffer_types.get("AMX"),
        }

    def fastest(self, name: str, outputs: int) -> Layout:
        """The layout in which our kernels compute a format; plain if in none, or rows are over."""
        ours = ("packed", name) in self.formats and outputs % _TOGETHER == 0
        return "packed" if ours else "plain"

    def use_threads(self, count: int) -> None:
        """Use so many threads for all that is computed from now on."""
        call(self._cpu, "backend_cpu_set_n_threads", self._backend, c_int(count))

    def weights(self, layout: Layout, kind: Format, width: int, outputs: int) -> Weights:
        """A random matrix in this layout; packing it happens here."""
        return self.stored(Stored(kind.number, width, outputs, kind.blocks(width, outputs)), layout)

    def stored(self, matrix: Stored, layout: Layout = "plain") -> Weights:
        """A copy of a matrix in this layout; packing it happens here."""
        context, tensor = self._tensor(matrix.type, matrix.width, matrix.outputs)
        buffer = self._allocate(context, self._layouts[layout])
        self.write(tensor, matrix.data)
        return Weights(tensor, buffer, context, matrix.outputs)

    def lent(self, matrix: Stored) -> Weights:
        """A matrix used in place; its data has to be aligned to 32 bytes and must not move."""
        context, tensor = self._tensor(matrix.type, matrix.width, matrix.outputs)
        at = matrix.data.ctypes.data_as(c_void_p)
        size = c_size_t(matrix.data.nbytes)
        buffer = call(self.base, "backend_cpu_buffer_from_ptr", at, size)
        call(self.base, "backend_tensor_alloc", buffer, tensor, at, result=c_int)
        return Weights(tensor, buffer, context, matrix.outputs)

    def rows(self, matrix: Stored, which: NDArray[np.int32]) -> Floats:
        """Some rows of a matrix, as float32 (rows, width)."""
        lent, context = self.lent(matrix), self.context()
        places = call(self.base, "new_tensor_1d", context, c_int(INTEGER), c_int64(len(which)))
        found = call(self.base, "get_rows", context, lent.tensor, places)
        shape = len(which), matrix.width
        computed, _ = self.computed(context, found, [(places, which)], shape)
        self.free(lent)
        return computed

    def quantized(self, matrix: Floats, kind: Format) -> Stored:
        """A matrix, float32 (outputs, width), as ggml quantizes it."""
        outputs, width = matrix.shape
        data = np.empty((outputs, width // kind.weights * kind.size), np.uint8)
        source = np.ascontiguousarray(matrix, np.float32)
        call(
            self.base,
            "quantize_chunk",
            c_int(kind.number),
            source.ctypes.data_as(c_void_p),
            data.ctypes.data_as(c_void_p),
            c_int64(0),
            c_int64(outputs),
            c_int64(width),
            c_void_p(None),
            result=c_size_t,
        )
        return Stored(kind.number, width, outputs, data)

    def free(self, weights: Weights) -> None:
        """Give their memory back."""
        call(self.base, "backend_buffer_free", weights.buffer)
        call(self.base, "free", weights.context)

    def product(self, weights: Weights, x: Floats, repeats: int = 1) -> tuple[Floats, float]:
        """The product of rows and weights, and the least seconds that it took.

        Rows may be in batches: up to two dimensions before the two of a matrix.
        """
        context = self.context()
        sizes = [*x.shape[::-1], 1, 1][:4]
        right = call(self.base, "new_tensor_4d", context, c_int(FLOAT), *map(c_int64, sizes))
        product = call(self.base, "mul_mat", context, weights.tensor, right)
        shape = *x.shape[:-1], weights.outputs
        return self.computed(context, product, [(right, x)], shape, repeats)

    def context(self) -> Any:
        """A ggml context for tensors that get their memory later (`allocate`)."""
        return call(self.base, "init", _Parameters(1 << 18, None, no_alloc=True))

    def computed(
        self,
        context: Any,
        result: Any,
        given: Sequence[tuple[Any, NDArray[Any]]],
        shape: tuple[int, ...],
        repeats: int = 1,
    ) -> tuple[Floats, float]:
        """Compute `result` from the `given` tensors and data; its values, and the least seconds.

        Frees the context.
        """
        graph = call(self.base, "new_graph", context)
        call(self.base, "build_forward_expand", graph, result)
        buffer = self.allocate(context)
        for tensor, data in given:
            self.write(tensor, data)
        spans = []
        for _ in range(repeats):
            began = time.perf_counter()
            self.compute(graph)
            spans.append(time.perf_counter() - began)
        found = np.empty(shape, np.float32)
        self.read(result, found)
        call(self.base, "backend_buffer_free", buffer)
        call(self.base, "free", context)
        return found, min(spans)

    def _tensor(self, kind: int, width: int, height: int) -> tuple[Any, Any]:
        """A tensor without memory, after the context of its own that it is in."""
        context = self.context()
        sizes = c_int64(width), c_int64(height)
        return context, call(self.base, "new_tensor_2d", context, c_int(kind), *sizes)

    def allocate(self, context: Any) -> Any:
        """Memory for all tensors of a context that have none; a buffer to be freed with it.

        Raises MemoryError.
        """
        return self._allocate(context, self._plain)

    def _allocate(self, context: Any, where: Any) -> Any:
        buffer = call(self.base, "backend_alloc_ctx_tensors_from_buft", context, where)
        if buffer.value is None:
            raise MemoryError("ggml found no memory for a matrix.")
        return buffer

    def compute(self, graph: Any) -> None:
        """Compute all of a graph."""
        call(self.base, "backend_graph_compute", self._backend, graph, result=c_int)

    def write(self, tensor: Any, data: NDArray[Any]) -> None:
        """Write all of a tensor; ggml packs weights here if their layout is a packed one."""
        at = np.ascontiguousarray(data).ctypes.data_as(c_void_p)
        call(self.base, "backend_tensor_set", tensor, at, c_size_t(0), c_size_t(data.nbytes))

    def view(self, tensor: Any, count: int, kind: type[np.generic] = np.float32) -> NDArray[Any]:
        """A view of a tensor as a vector, valid as long as its memory is there."""
        at = call(self.base, "get_data", tensor).value
        memory = (ctypes.c_byte * (count * np.dtype(kind).itemsize)).from_address(at)
        return np.ndarray((count,), kind, memoryview(memory).cast("B"))

    def read(self, tensor: Any, into: NDArray[Any]) -> None:
        """Read all of a tensor."""
        at, size = into.ctypes.data_as(c_void_p), c_size_t(into.nbytes)
        call(self.base, "backend_tensor_get", tensor, at, c_size_t(0), size)


def activations(width: int, rows: int) -> Floats:
    """Random test rows, some with zeros, denormals, or peaks of both signs. At least five rows."""
    random = np.random.default_rng(width)
    x = random.standard_normal((rows, width)).astype(np.float32)
    x[1, :32] = 0
    x[2] *= np.float32(1e-38)
    x[3, 5], x[3, 7] = 9, -9
    x[4, 5], x[4, 7] = -9, 9
    return x
