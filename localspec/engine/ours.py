"""What LocalSpec has put into llama.cpp (`native/`), as a library of it says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_bool, c_char_p
from typing import Any, Literal

Layout = Literal["plain", "packed"]
"""As in a file, or in the tiles that llama.cpp makes of it on this CPU."""


class Ours:
    """The functions of ours in one library. Of what a build lacks, "", nothing or False is said."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @property
    def kernels(self) -> str:
        """Instruction set of our kernels (`rows.cpp`), unless they are switched off."""
        said: bytes | None = self._said("rows_kernels", c_char_p)
        return (said or b"").decode()

    @property
    def formats(self) -> list[tuple[Layout, str]]:
        """What these are for."""
        said: bytes | None = self._said("rows_formats", c_char_p)
        return formats((said or b"").decode())

    @property
    def attends(self) -> bool:
        """Whether attention is ours as well (`attention.h`).

        False once this process has computed one that is not: of slopes, or over another type than
        f16.
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
    def switch(self) -> Callable[[bool], None] | None:
        """`use`; None in a build that cannot change that."""
        return self.use if self._function("rows_use") else None

    def use(self, ours: bool) -> None:  # noqa: FBT001 — it is what is switched
        """From now on our kernels compute in this process, or all is left to llama.cpp's own."""
        self._library.localspec_rows_use(c_bool(ours))

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
