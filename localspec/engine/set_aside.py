"""Texts that idle slots remember, out of the target's memory while something needs every slot."""

from __future__ import annotations

from typing import Any

from localspec.engine.kv.prefixes import Storing
from localspec.engine.kv.slots import Slot
from localspec.engine.step import Engine
from localspec.errors import NoRoom


class SlotsSetAside:
    """Takes the texts of all idle slots out of the target, and puts them back.

    Meanwhile the engine lists them as if its slots held them, so they have to be back before a slot
    is taken (`Engine.vacate`). Engine lifetime.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[int, Any] = {}
        self.out = False
        """Whether every slot was emptied for another use."""

    def take_out(self) -> None:
        """Empty all slots, none of which is busy. A text that cannot be copied is forgotten."""
        self.out = True
        engine = self._engine
        for slot, _ in engine.held():
            try:
                if isinstance(engine.backend, Storing):
                    self._kept[slot] = engine.backend.take_out(slot)
                else:
                    engine.forget(slot)
            except MemoryError:
                engine.forget(slot)

    def put_back(self) -> None:
        """Let slots hold the texts again, and nothing else. A text without room is forgotten."""
        engine = self._engine
        for slot in range(engine.backend.n_slots):
            engine.backend.truncate(slot, 0)
        for slot, kept in self._kept.items():
            try:
                if isinstance(engine.backend, Storing):
                    engine.backend.put_back(slot, kept)
            except NoRoom:
                engine.forget(slot)
        self._kept.clear()
        self.out = False

    def forget(self) -> list[Slot]:
        """Forget all texts; returns them, the latest used first."""
        self._kept.clear()
        return [self._engine.forget(slot) for slot, _ in self._engine.held()]
