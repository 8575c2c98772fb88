"""A process that multiplies matrices by ggml's CPU library and prints what came out.

    python -m products_peer LIBRARIES [--least]

It calls ggml itself, so that a library for another instruction set can be tried without llama.cpp.
LOCALSPEC_ROWS is read once, so the two ways to compute need two processes. With `--least`, least
microseconds of a product as large as one of a model, by rows, instead of digests.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import sys
import time
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Format(NamedTuple):
    """ggml's number of a type, weights and bytes of a block, where its halves are, and layouts."""

    number: int
    weights: int
    size: int
    halves: tuple[int, ...]
    packed: bool


FORMATS = {
    "Q4_0": Format(2, 32, 18, (0,), packed=True),
    "Q8_0": Format(8, 32, 34, (0,), packed=False),
    "Q4_K": Format(12, 256, 144, (0, 2), packed=True),
    "Q5_K": Format(13, 256, 176, (0, 2), packed=False),
    "Q6_K": Format(14, 256, 210, (208,), packed=False),
}
"""What our kernels compute on x86."""
PACKED_OUTPUTS = 8
SHAPES = [(256, 8), (768, 33), (1280, 40), (512, 1)]
"""Activations and outputs: not all of them whole groups of what is computed at once."""
ROWS = [*range(1, 18), 24, 25, 31, 32]
"""Every count of a round, and the ends of what is computed at once and of what is ours."""
MORE_ROWS = [33, 49]
"""Of packed weights a prompt is ours too."""
LEAST_ROWS = [1, 2, 3, 4, 6, 8, 12, 16, 32]


class _Parameters(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("memory", c_void_p), ("no_alloc", c_bool)]


def call(library: ctypes.CDLL, name: str, *arguments: Any, result: Any = c_void_p) -> Any:
    """A function of ggml; by default it returns a pointer, or nothing that matters."""
    function = library[f"ggml_{name}"]
    function.restype = result
    found = function(*arguments)
    return c_void_p(found) if result is c_void_p else found


class Ggml:
    """The few functions of ggml that this needs, and its layouts of weights by name."""

    def __init__(self, libraries: Path) -> None:
        self.base, self.cpu = (
            ctypes.CDLL(str(libraries / f"libggml-{name}.so")) for name in ("base", "cpu")
        )
        self._backend = call(self.cpu, "backend_cpu_init")
        registry = call(self.cpu, "backend_cpu_reg")
        device = call(self.base, "backend_reg_dev_get", registry, c_size_t(0))
        self.plain = call(self.base, "backend_dev_buffer_type", device)
        name = c_char_p(b"ggml_backend_dev_get_extra_bufts")
        address = call(self.base, "backend_reg_get_proc_address", registry, name)
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(address.value)(device)
        kinds = map(c_void_p, itertools.takewhile(bool, map(extra.__getitem__, range(9))))
        self.layouts = {
            call(self.base, "backend_buft_name", kind, result=c_char_p).decode(): kind
            for kind in kinds
        }

    @property
    def kernels(self) -> str:
        """What our kernels say they are."""
        name = getattr(self.cpu, "localspec_rows_kernels", None)
        if name is None:
            return ""
        name.restype = c_char_p
        return (name() or b"").decode()

    def threads(self, count: int) -> None:
        """Of all that is computed from now on."""
        call(self.cpu, "backend_cpu_set_n_threads", self._backend, c_int(count))

    def tensors(self, layout: c_void_p, *shapes: tuple[int, int, int]) -> tuple[Any, list[Any]]:
        """A context with tensors: type, width and height of each, in one buffer."""
        context = call(self.base, "init", _Parameters(1 << 18, None, no_alloc=True))
        found = [
            call(self.base, "new_tensor_2d", context, c_int(kind), c_int64(width), c_int64(height))
            for kind, width, height in shapes
        ]
        call(self.base, "backend_alloc_ctx_tensors_from_buft", context, layout)
        return context, found

    def write(self, tensor: Any, data: NDArray[Any]) -> None:
        """All of a tensor; weights are packed here, if their layout is that."""
        at = data.ctypes.data_as(c_void_p)
        call(self.base, "backend_tensor_set", tensor, at, c_size_t(0), c_size_t(data.nbytes))

    def product(
        self, weights: Any, x: NDArray[np.float32], outputs: int, repeats: int = 1
    ) -> tuple[NDArray[np.float32], float]:
        """Rows by weights, and the least seconds it took."""
        rows, width = x.shape
        context = call(self.base, "init", _Parameters(1 << 18, None, no_alloc=True))
        right = call(self.base, "new_tensor_2d", context, c_int(0), c_int64(width), c_int64(rows))
        product = call(self.base, "mul_mat", context, weights, right)
        graph = call(self.base, "new_graph", context)
        call(self.base, "build_forward_expand", graph, product)
        buffer = call(self.base, "backend_alloc_ctx_tensors_from_buft", context, self.plain)
        self.write(right, x)
        spans = []
        for _ in range(repeats):
            began = time.perf_counter()
            call(self.base, "backend_graph_compute", self._backend, graph, result=c_int)
            spans.append(time.perf_counter() - began)
        found = np.empty((rows, outputs), np.float32)
        at = found.ctypes.data_as(c_void_p)
        call(self.base, "backend_tensor_get", product, at, c_size_t(0), c_size_t(found.nbytes))
        call(self.base, "backend_buffer_free", buffer)
        call(self.base, "free", context)
        return found, min(spans)


def halves(*values: float) -> NDArray[np.uint16]:
    """Their bits."""
    return np.array(values, np.float16).view(np.uint16)


STEPS = [
    halves(*np.linspace(-0.02, 0.02, 40)),
    halves(6e-8, -6e-8, 3e-5, 0.0, -0.0),  # denormal, and none
    halves(65504, -65504, 60000),  # the largest
]


def blocks(kind: Format, width: int, outputs: int) -> NDArray[np.uint8]:
    """Random bits for all weights and scales; of each output the halves are of one kind."""
    random = np.random.default_rng(width + outputs)
    count = width // kind.weights
    found = random.integers(0, 256, (outputs, count, kind.size), np.uint8)
    for at in kind.halves:
        for output in range(outputs):
            chosen = random.choice(STEPS[output % len(STEPS)], count).astype("<u2")
            found[output, :, at : at + 2] = chosen.view(np.uint8).reshape(count, 2)
    return np.ascontiguousarray(found.reshape(outputs, -1))


def activations(width: int) -> NDArray[np.float32]:
    """Rows of all sizes: zeros, denormals, a peak of either sign, and of both."""
    random = np.random.default_rng(width)
    x = random.standard_normal((max(ROWS + MORE_ROWS), width)).astype(np.float32)
    x[1, :32] = 0
    x[2] *= np.float32(1e-38)
    x[3, 5], x[3, 7] = 9, -9
    x[4, 5], x[4, 7] = -9, 9
    return x


def digest(row: NDArray[np.float32]) -> str:
    """Of one row of outputs."""
    return hashlib.sha256(row.tobytes()).hexdigest()[:12]


def layouts(ggml: Ggml, name: str, outputs: int) -> dict[str, Any]:
    """The layouts that such weights have on x86."""
    found = {"plain": ggml.plain} if name not in {"Q4_0", "Q4_K"} else {}
    if FORMATS[name].packed and outputs % PACKED_OUTPUTS == 0 and "CPU_REPACK" in ggml.layouts:
        found["packed"] = ggml.layouts["CPU_REPACK"]
    return found


def digests(ggml: Ggml) -> dict[str, dict[str, list[str]]]:
    """Of each row of every product, by format, layout and shape, and by rows in a product.

    Without our kernels, of rows that were multiplied one at a time.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for (name, kind), (width, outputs) in itertools.product(FORMATS.items(), SHAPES):
        x = activations(width)
        for layout, where in layouts(ggml, name, outputs).items():
            _, [weights] = ggml.tensors(where, (kind.number, width, outputs))
            ggml.write(weights, blocks(kind, width, outputs))
            by_rows = found[f"{name} {layout} {width}x{outputs}"] = {}
            if ggml.kernels:
                for rows in ROWS + MORE_ROWS * kind.packed:
                    product, _ = ggml.product(weights, x[:rows], outputs)
                    by_rows[str(rows)] = [digest(row) for row in product]
            else:
                singles = [ggml.product(weights, row[None], outputs)[0] for row in x]
                by_rows["1"] = [digest(product[0]) for product in singles]
    return found


def least(ggml: Ggml) -> dict[str, dict[str, float]]:
    """Microseconds by format and rows, on one thread; every row count in turn, some times."""
    width, outputs = 1536, 8960
    found: dict[str, dict[str, float]] = {}
    for name, kind in FORMATS.items():
        [(layout, where)] = layouts(ggml, name, outputs).items()
        _, [weights] = ggml.tensors(where, (kind.number, width, outputs))
        ggml.write(weights, blocks(kind, width, outputs))
        times = found[f"{name} {layout}"] = {}
        for _, rows in itertools.product(range(12), LEAST_ROWS):
            _, seconds = ggml.product(weights, activations(width)[:rows], outputs, 3)
            times[str(rows)] = min(times.get(str(rows), 1e9), round(1e6 * seconds))
    return found


def main() -> None:
    """As the module says."""
    ggml = Ggml(Path(sys.argv[1]))
    measured = "--least" in sys.argv
    ggml.threads(1 if measured else 2)
    found = least(ggml) if measured else digests(ggml)
    json.dump({"kernels": ggml.kernels, "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
