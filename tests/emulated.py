"""ggml's CPU library for another CPU: `native/compute.cpp` in an emulator.

Where libraries are for another CPU, `runner` beside them names the emulator.
"""

from __future__ import annotations

import math
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.kernels import Layout, formats
from localspec.engine.llama.products import Format
from localspec.types import Floats

_PRODUCT, _ATTENTION, _CROSSED = 0, 1, 2
_F32 = 0


class Sent(NamedTuple):
    """A tensor as it is sent: ggml's number of its type, sizes as ggml orders them, its bytes."""

    type: int
    sizes: tuple[int, ...]
    data: bytes
    packed: bool = False

    @property
    def head(self) -> bytes:
        """The name by which a request selects it."""
        padded = *self.sizes, *[1] * (4 - len(self.sizes))
        return struct.pack("=6q", self.type, self.packed, *padded)


def is_emulated(libraries: Path) -> bool:
    """Whether they are for another CPU than this."""
    return (libraries / "runner").exists()


class Emulated:
    """Some of what `Products` does. Its process ends with this one."""

    def __init__(self, libraries: Path) -> None:
        runner = (libraries / "runner").read_text().split()
        self._process = subprocess.Popen(
            [*runner, libraries / "compute"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        lines = (self._stdout.readline().decode().strip() for _ in range(3))
        self.kernels, said, attention = lines
        self.formats, self.attends = formats(said), bool(attention)
        self._threads, self._runs = 2, 0

    def use_threads(self, count: int) -> None:
        """As `Products` does."""
        self._threads = count

    def weights(self, layout: Layout, kind: Format, width: int, outputs: int) -> Sent:
        """As `Products` does."""
        data = kind.blocks(width, outputs).tobytes()
        return Sent(kind.number, (width, outputs), data, packed=layout == "packed")

    def free(self, weights: Sent) -> None:
        """They are sent with every product."""

    @contextmanager
    def listing(self, outputs: int, runs: NDArray[np.int32]) -> Iterator[None]:
        """As `Products` does, for all products."""
        del outputs
        self._runs = sum(1 << int(run) for run in runs)
        yield
        self._runs = 0

    def product(self, weights: Sent, x: Floats) -> tuple[Floats, float]:
        """As `Products` does, but for the seconds."""
        rows = Sent(_F32, x.shape[::-1], x.tobytes())
        shape = len(x), weights.sizes[1]
        return self._computed(_PRODUCT, [weights, rows], shape, self._runs), 0.0

    def batches(self, weights: Sent, x: Floats, *, crossed: bool) -> Floats | None:
        """Rows in batches (b3, b2, rows, width) by weights; None where these may not be there.

        `crossed` says that rows of one batch lie among those of the others.
        """
        lie = np.ascontiguousarray(x.swapaxes(1, 2)) if crossed else x
        rows = Sent(_F32, lie.shape[::-1], lie.tobytes())
        asked = _CROSSED if crossed else _PRODUCT
        found = self._answer(asked, [weights, rows], 0)
        return found.reshape(*x.shape[:3], weights.sizes[1]) if len(found) else None

    def attention(self, given: Sequence[Sent], shape: tuple[int, ...], cap: float) -> Floats:
        """Of q, k, v, a mask and perhaps sinks."""
        return self._computed(_ATTENTION, given, shape, cap)

    def _computed(
        self, operation: int, given: Sequence[Sent], shape: tuple[int, ...], detail: float
    ) -> Floats:
        found = self._answer(operation, given, detail)
        assert len(found) == math.prod(shape)
        return found.reshape(shape)

    def _answer(self, operation: int, given: Sequence[Sent], detail: float) -> Floats:
        asked = struct.pack("=4q", operation, self._threads, int(detail), len(given))
        heads = b"".join(each.head for each in given)
        self._stdin.write(asked + heads + b"".join(each.data for each in given))
        self._stdin.flush()
        (count,) = struct.unpack("=q", self._stdout.read(8))
        return np.frombuffer(self._stdout.read(count), np.float32)
