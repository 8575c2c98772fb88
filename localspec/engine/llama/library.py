"""The one file that imports llama_cpp: the library itself, its log, what it was built with.

`model.py`, `context.py`, `slot_memory.py`, `copies.py`, `vectors.py`, `images.py`, `fed.py`,
`pooling.py`, `quantize.py`, `devices.py` and `rpc.py` take `native` from here; no other file calls
it. llama.cpp aborts the process on what it considers a bug of the caller, so they check every
argument before the call, and only the worker process may import them.
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from localspec.built import installed

# libgomp reads this once, when llama_cpp is imported. Its threads wait for each other some hundred
# times in a forward; by default they spin for milliseconds, even on a core that the thread they
# wait for needs. So a forward took ten times as long beside one busy process; now it is twice.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
os.environ["LLAMA_CPP_LIB_PATH"] = str(installed())  # llama_cpp takes its libraries from there

os.environ["MTMD_CPP_LIB"] = os.environ["LLAMA_CPP_LIB_PATH"]

import llama_cpp.llama_cpp as native

from localspec.engine.llama.kernels import KernelInfo
from localspec.errors import ModelError, OutOfMemory

__all__ = [
    "Buffer",
    "build_info",
    "libraries",
    "log",
    "mtmd_library",
    "native",
    "ours",
]

_BUFFER_LINE = re.compile(r":\s+(\S+) (model|KV|RS|compute|output) buffer size =\s+([\d.]+) MiB")
_LAYER_LINE = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+),")
_MIB = 1024 * 1024
_NO_MEMORY = re.compile(r"alloc|out of memory|mmap|mlock", re.IGNORECASE)
_ERROR_LEVEL = 4  # ggml_log_level


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that llama.cpp allocated: on which `device`, for `what`, how many `bytes`."""

    device: str
    what: str
    bytes: int


class Log:
    """llama.cpp's log: errors kept for messages, lines on buffers and layers for the report."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.layers: dict[str, tuple[int, int]] = {}
        self.errors: list[str] = []
        self.callback = native.llama_log_callback(self._line)
        native.llama_log_set(self.callback, ctypes.c_void_p(0))

    def _line(self, level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR_LEVEL and line:
            self.errors = [*self.errors[-9:], line]
        elif found := _BUFFER_LINE.search(line):
            device, what, size = found.groups()
            self.buffers.append(Buffer(device, what, int(float(size) * _MIB)))
        elif found := _LAYER_LINE.match(line):
            layer, device = int(found[1]), found[2]
            self.layers[device] = (self.layers.get(device, (layer, layer))[0], layer)

    def take_buffers(self) -> list[Buffer]:
        taken, self.buffers = self.buffers, []
        return taken

    def take_layers(self) -> dict[str, tuple[int, int]]:
        taken, self.layers = self.layers, {}
        return taken

    def why(self) -> str:
        """The last errors as one sentence, and forget them."""
        taken, self.errors = self.errors, []
        return "; ".join(taken[-3:]) or "llama.cpp gave no reason"

    def refusal(self, what: str, fix: str) -> ModelError:
        """The last errors as an exception: for want of memory, or because of the file."""
        why = self.why()
        kind = OutOfMemory if _NO_MEMORY.search(why) else ModelError
        return kind(f"{what}: {why}.", fix=fix)


log = Log()
ours = KernelInfo(native._lib)  # noqa: SLF001 — for symbols that no binding has
native.llama_backend_init()


def mtmd_library() -> ModuleType | None:
    """The bindings of libmtmd, which makes vectors of images; None in a build without it."""
    try:
        mtmd = import_module("llama_cpp.mtmd_cpp")
    except (OSError, RuntimeError, AttributeError):  # no library, or one that lacks a function
        return None
    mtmd.mtmd_helper_log_set(log.callback, ctypes.c_void_p(0))
    return mtmd


def build_info() -> str:
    """Package version and the CPU features or devices that this build uses.

    ROWS is the instruction set of LocalSpec's own kernels (`native/rows.cpp`), if they are used;
    TILES the number of rows from which they are tiles of bf16 (`native/bf16.h`), if they are.
    GRAPHS: there is a graph for each row count (`native/graphs.cmake`). CELLS: KV cells take memory
    only when they are used (`native/cells.cmake`). STATES: any forward can show hidden states and
    inputs of layers (`native/states.cmake`). TREES: a forward can verify a tree
    (`native/trees.cmake`).
    """
    info: bytes = native.llama_print_system_info()
    added = f" ROWS = {ours.kernels} |" if ours.kernels else ""
    added += f" TILES = {ours.tiled_rows} |" if ours.tiled_rows else ""
    added += " GRAPHS = 1 |" if ours.graphs else ""
    added += " CELLS = 1 |" if ours.cells else ""
    added += " STATES = 1 |" if ours.states else ""
    added += " TREES = 1 |" if ours.trees else ""
    return f"llama-cpp-python {version('llama-cpp-python')}; {info.decode().strip()}{added}"


def libraries() -> list[tuple[str, int, int]]:
    """Names, sizes and times of change of the files that compute.

    They tell builds apart, because our kernels have no version that changes with each build.
    """
    files = sorted((Path(native.__file__).parent / "lib").glob("lib*"))
    return [(file.name, (found := file.stat()).st_size, found.st_mtime_ns) for file in files]
