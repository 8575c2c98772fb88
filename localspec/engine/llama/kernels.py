"""Describes the kernels that LocalSpec compiled into llama.cpp (`native/`), as its library says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int32, c_int64
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Layout = Literal["plain", "packed", "tiles"]
"""Weights as in a file, or as llama.cpp packs them on this CPU: for vectors, or for AMX tiles."""


NEVER = 1 << 30
"""More rows than any forward has (`KernelInfo.many_rows`)."""
UNLISTED_LOGIT = np.float32(-1e30)
"""The logit of an output row that was not computed (`native/shortlist.h`)."""


class KernelInfo:
    """LocalSpec's own functions in one library. What a build lacks is "", empty, None or False.

    `tiled_rows` is the number given to `many_rows`, 0 while tiles of bf16 compute nothing.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.tiled_rows = 0

    @property
    def kernels(self) -> str:
        """Instruction set of our kernels (`rows.cpp`), unless they are switched off."""
        said: bytes | None = self._said("rows_kernels", c_char_p)
        return (said or b"").decode()

    @property
    def formats(self) -> list[tuple[Layout, str]]:
        """The layouts and formats of weights that our kernels compute."""
        said: bytes | None = self._said("rows_formats", c_char_p)
        return formats((said or b"").decode())

    @property
    def attends(self) -> bool:
        """Whether attention is ours as well (`attention.h`).

        False once this process has met attention that our kernels do not compute: with slopes, or
        over another type than f16.
        """
        return bool(self._said("rows_attention", c_bool))

    @property
    def graphs(self) -> bool:
        """Whether there is a graph for each row count (`graphs.cmake`)."""
        return self._function("graphs") is not None

    @property
    def cells(self) -> bool:
        """Whether KV cells on the host take memory when they are used (`cells.cmake`)."""
        return bool(self._said("cells", c_bool))

    @property
    def states(self) -> bool:
        """Whether states are only of rows with logits, and layers have taps (`states.cmake`)."""
        return self._function("tap") is not None

    @property
    def trees(self) -> bool:
        """Whether rows of one sequence can be a tree, memory allowing (`trees.cmake`)."""
        return self._function("trees") is not None

    @property
    def exits(self) -> bool:
        """Whether forwards can leave the model before its last layers (`states.cmake`)."""
        return self._function("leave_early") is not None

    @property
    def whole_copies(self) -> bool:
        """Whether copies of sequences have all of their cells (`cells.cmake`)."""
        return bool(self._said("copies", c_bool))

    @property
    def switch(self) -> Callable[[bool], None] | None:
        """`use`; None in a build that cannot change that."""
        return self.use if self._function("rows_use") else None

    def use(self, ours: bool) -> None:  # noqa: FBT001 — it is what is switched
        """Compute with our kernels in this process from now on, or only with llama.cpp's own."""
        self._library.localspec_rows_use(c_bool(ours))

    def many_rows(self, rows: int) -> bool:
        """Compute products of `rows` rows or more by tiles of bf16 (`bf16.h`), from the next graph.

        Their results are as near to the exact ones as those of few rows, but have other bits.
        Returns whether this build has such kernels; before this call they compute nothing.
        """
        switch = self._function("rows_many")
        if switch is None:
            return False
        switch.restype = c_bool
        has = bool(switch(c_int(rows)))
        self.tiled_rows = rows if has and rows < NEVER else 0
        return has

    @contextmanager
    def listing(self, outputs: int, runs: NDArray[np.int32]) -> Iterator[None]:
        """Compute only these runs of 16 outputs of products with so many outputs (`shortlist.h`).

        All other outputs are `UNLISTED_LOGIT`. A product that our kernels do not compute has all
        its outputs computed. Use it around one forward at a time in a process.
        """
        shorten = self._function("rows_shortlist")
        if shorten is None:
            yield
            return
        listed = np.ascontiguousarray(runs, np.int32)
        shorten(c_int64(outputs), listed.ctypes.data_as(POINTER(c_int32)), c_int(len(listed)))
        try:
            yield
        finally:
            shorten(c_int64(0), None, c_int(0))

    def call(self, name: str, gives: Any, *arguments: Any) -> Any:
        """Call a function of ours that this build has; `gives` is the ctypes type of its result."""
        function = self._function(name)
        function.restype = gives
        return function(*arguments)

    def _said(self, name: str, kind: Any) -> Any:
        function = self._function(name)
        if function is None:
            return None
        function.restype = kind
        return function()

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"localspec_{name}", None)


def formats(said: str) -> list[tuple[Layout, str]]:
    """Layouts and names of `localspec_rows_formats`, which says "packed q4_0 plain q8_0"."""
    found: dict[tuple[Layout, str], None] = {}
    layout: Layout = "plain"
    for word in said.split():
        if word in {"plain", "packed"}:
            layout = "packed" if word == "packed" else "plain"
        else:
            found[layout, word] = None
    return list(found)
