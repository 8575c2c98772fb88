"""Copies of what a slot holds, out of a native context and into it (llama_state_seq_*_data_ext)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from localspec.engine.llama.library import native, ours
from localspec.engine.llama.model import Model
from localspec.errors import EngineError

WHOLE, STATE_ONLY = 0, 1  # LLAMA_STATE_SEQ_FLAGS


class Copies:
    """Reads and writes the memory of slots of one context. Used by the context's thread.

    Without `native/cells.cmake` llama.cpp leaves out of a copy the cells that its last token does
    not see through a sliding window. A slot that holds such a copy is `partial`: it cannot be cut,
    because an earlier token that became its last would miss cells in its window.

    Args:
        handle: Gives the present native context, as one that grows is replaced.
        model: The context's model.
    """

    def __init__(self, handle: Callable[[], Any], model: Model) -> None:
        self._handle = handle
        self._leaves_out = model.window > 0 and not ours.whole_copies
        self.partial: set[int] = set()

    def size(self, slot: int, what: int = WHOLE) -> int:
        """Bytes of a copy."""
        return int(native.llama_state_seq_get_size_ext(self._handle(), slot, what))

    def saved(self, slot: int) -> Any:
        """A copy of all that the slot holds. Raises MemoryError."""
        state = (ctypes.c_uint8 * self.size(slot))()
        self.save(slot, state)
        return state

    def save(self, slot: int, state: Any, what: int = WHOLE) -> None:
        """Write the copy into a buffer of its size."""
        size, get = len(state), native.llama_state_seq_get_data_ext
        if get(self._handle(), state, size, slot, what) != size:
            raise EngineError(f"The memory of slot {slot} could not be read.")

    def load(self, slot: int, state: Any, what: int = WHOLE) -> None:
        """Let the slot hold what was saved."""
        put = native.llama_state_seq_set_data_ext
        if not put(self._handle(), state, len(state), slot, what):
            raise EngineError(f"The memory of slot {slot} could not be taken over.")
        if what == WHOLE and self._leaves_out:
            self.partial.add(slot)
