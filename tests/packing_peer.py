"""A process that packs random weights by ggml's CPU library, and prints digests of what came out.

    python -m packing_peer LIBRARIES

And the types that llama.cpp's own code packed, as it logs them: all where LOCALSPEC_ROWS is 0.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import sys
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from batches_peer import NUMBERS

from localspec.engine.llama.products import Products, call

WIDTHS = [32, 96, 256, 768, 1536, 2816]
OUTPUTS = [4, 8, 12, 16, 40, 264]
"""Whole tiles and not: of others than whole ones llama.cpp packs nothing."""
EXPERTS = [1, 3]
_OF_EXTRA = 320
"""Where a ggml_tensor has its layout; nothing where llama.cpp does not pack it."""
_LOGGED = "repack tensor"


class Packing:
    """Packs tensors, and listens to what llama.cpp logs about it."""

    def __init__(self, libraries: Path) -> None:
        self.library = Products(libraries)
        self.by_llama: set[str] = set()
        self._callback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(self._hear)
        call(self.library.base, "log_set", self._callback, c_void_p())

    def _hear(self, _level: int, text: bytes, _data: object) -> None:
        said = text.decode()
        if _LOGGED in said:
            self.by_llama.add(said.split()[-1].rpartition("_")[0])

    def packed(self, kind: int, width: int, outputs: int, experts: int) -> bytes | None:
        """Of random weights; None where llama.cpp packs no such tensor."""
        base, context = self.library.base, self.library.context()
        sizes = map(c_int64, (width, outputs, experts))
        tensor = call(base, "new_tensor_3d", context, c_int(kind), *sizes)
        where = self.library.buffer_types["CPU_REPACK"]
        buffer = call(base, "backend_alloc_ctx_tensors_from_buft", context, where)
        found = None
        if c_void_p.from_address(tensor.value + _OF_EXTRA):
            count = call(base, "nbytes", tensor, result=c_size_t)
            data = np.random.default_rng(count).integers(0, 256, count, np.uint8)
            self.library.write(tensor, data)
            found = self.library.view(tensor, count, np.uint8).tobytes()
        call(base, "backend_buffer_free", buffer)
        call(base, "free", context)
        return found

    def digests(self) -> dict[str, str]:
        """By type and sizes, of all tensors that llama.cpp packs."""
        found = {}
        for kind, *sizes in itertools.product(NUMBERS, WIDTHS, OUTPUTS, EXPERTS):
            if sizes[0] % call(self.library.base, "blck_size", c_int(kind), result=c_int64):
                continue
            if (out := self.packed(kind, *sizes)) is not None:
                name = call(self.library.base, "type_name", c_int(kind), result=c_char_p).decode()
                key = f"{name} {'x'.join(map(str, sizes))}"
                found[key] = hashlib.sha256(out).hexdigest()[:12]
        return found


def main() -> None:
    """As the module says."""
    packing = Packing(Path(sys.argv[1]))
    found: dict[str, Any] = {"kernels": packing.library.kernels, "packed": packing.digests()}
    json.dump(found | {"by_llama": sorted(packing.by_llama)}, sys.stdout)


if __name__ == "__main__":
    main()
