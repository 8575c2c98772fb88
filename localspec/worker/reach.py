"""While nobody waits, the strict class of forwards is probed farther than a load has time for."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.engine import exactness
from localspec.engine.probe import REACH
from localspec.engine.step import Engine
from localspec.worker.profile import Profile


class Reach:
    """Work for an idle engine: one forward at a time, line after line, until the context ends.

    It reads in the last slot and stands in others that are empty; whoever takes a slot meanwhile
    makes it begin its line anew. What it finds is the engine's shape from then on, and kept in the
    profile. It belongs to the engine's thread. `remark` is what else is to be said of exactness.
    """

    remark = ""

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self._engine, self._profile = engine, profile
        self._seated = engine.seated
        self._work = self._lines()

    @property
    def detail(self) -> str:
        """What is claimed now, for people."""
        return "; ".join(filter(None, (self._engine.shape.detail, self.remark)))

    def advance(self) -> bool:
        """Compute one forward; False where there is nothing to do, or the last slot remembers."""
        if self._engine.remembers(self._engine.target.n_slots - 1):
            return False
        if self._engine.seated != self._seated:
            self._seated, self._work = self._engine.seated, self._lines()
        return next(self._work, self) is None

    def _lines(self) -> Iterator[None]:
        engine, target = self._engine, self._engine.target
        last = target.n_slots - 1
        empty = [slot for slot in range(last) if not engine.remembers(slot)]
        while line := exactness.next_line(engine.shape, target.context):
            if line + REACH > engine.unasked:  # until a text has made the cache grow
                return
            reached = engine.shape.cells
            for found in exactness.farther(target, engine.shape, line, [last, *empty]):
                if found is not None:
                    engine.shape = self._profile.shape = found
                    self._profile.save()
                yield
            if engine.shape.cells == reached:
                return
