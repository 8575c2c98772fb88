"""Probes the strict class in idle moments, farther into the context than a load has time for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from localspec.engine.calibrate import FAR_TOKENS
from localspec.engine.exactness import classes
from localspec.engine.step import Engine
from localspec.worker.profile import Profile

FIRST_PAUSE_SECONDS = 10.0
"""After this long without a request a text is forgotten to make room for a probe; the wait doubles
for each further text. A client that returns sooner finds its text, and few are read again."""


class BackgroundProbe:
    """Probes one forward at a time, to one line after the other, until the context ends.

    A line is a number of tokens up to which the class is probed.

    It reads in empty slots. Where every slot holds a text, the least recently used one is forgotten
    after a long pause. When a request takes a slot, the line begins anew. The result is the
    engine's shape from then on, kept in the profile. The engine's thread. `remark` gives a further
    sentence on exactness.
    """

    def __init__(self, engine: Engine, profile: Profile) -> None:
        self.remark: Callable[[], str] = lambda: ""
        self._engine, self._profile = engine, profile
        self._slots_taken, self._quiet_since = -1, 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._failed: int | None = None
        self._work: Iterator[None] = iter(())

    @property
    def detail(self) -> str:
        """The present claim, for people."""
        return "; ".join(filter(None, (self._engine.shape.detail, self.remark())))

    def advance(self, now: float) -> bool:
        """Compute one forward; False where there is nothing to do, or no slot for it yet.

        Args:
            now: Seconds, monotonic.
        """
        engine = self._engine
        if engine.slots_taken != self._slots_taken:
            self._slots_taken, self._quiet_since, self._work = engine.slots_taken, now, iter(())
        if next(self._work, self) is None:
            return True
        # A cache is not grown for a probe; once a text has made it grow, the probe goes farther.
        line = classes.next_line(engine.shape, engine.unasked)
        if line is None or line <= engine.shape.cells or line == self._failed:
            return False
        if not (slots := self._slots(now)):
            return False
        self._work = self._probing(line, slots)
        return next(self._work, self) is None

    def _slots(self, now: float) -> list[int]:
        """The slots to read in; the first is read up to the line. None while all keep texts."""
        engine = self._engine
        slots = range(engine.target.n_slots)
        empty = [slot for slot in reversed(slots) if not engine.remembers(slot)]
        texts = engine.held()
        if not empty and texts and now - self._quiet_since >= self._pause_seconds:
            self._pause_seconds *= 2
            oldest, _ = texts[-1]
            engine.release_slot(oldest, "", [])
            return [oldest]
        return empty

    def _probing(self, line: int, slots: list[int]) -> Iterator[None]:
        engine = self._engine
        reached = engine.shape.cells
        for found in classes.farther(engine.target, engine.shape, line, slots):
            if found is not None:  # the last one
                for slot in slots:  # the next text there begins at position 0
                    engine.target.truncate(slot, 0)
                engine.shape = self._profile.shape = found
                self._profile.save()
            yield
        if engine.shape.cells == reached:
            self._failed = line


class NearProbe:
    """The first part of the probe: as far as costs are measured, and before they are.

    Beyond the probed tokens nothing is drafted, so costs are not needed there.
    """

    def __init__(self, probe: BackgroundProbe, engine: Engine) -> None:
        self._probe, self._engine = probe, engine

    def advance(self, now: float) -> bool:
        """Advance the probe, until it has reached as far as costs are measured."""
        return self._engine.shape.cells < FAR_TOKENS and self._probe.advance(now)
