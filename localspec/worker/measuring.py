"""Measures in idle moments every cost that is not known yet, and saves it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from localspec.control.costs import POINTS, STEADY
from localspec.engine import calibrate
from localspec.engine.calibrate import MeasuringPlace
from localspec.engine.images import words
from localspec.engine.step import Engine
from localspec.errors import EngineError, NoRoom
from localspec.types import Drafter
from localspec.worker.profile import Profile

_log = logging.getLogger("localspec.worker")


class Measuring:
    """Measures a few short forwards or one draft at a time, as far as cells allow.

    Every cost of a `fresh` profile is measured, otherwise only those not known yet. Idle slots keep
    their texts: where the memory cannot forget a part of one, only an empty slot is used. The
    engine's thread.
    """

    def __init__(self, engine: Engine, profile: Profile, *, fresh: bool) -> None:
        self.over = False
        self._engine, self._profile, self._costs = engine, profile, profile.costs
        self._work = self._everything(fresh=fresh)

    def advance(self, _now: float = 0.0) -> bool:
        """Measure a little; False where nothing is left. The profile is saved at the end."""
        if self.over:
            return False
        try:
            self.over = next(self._work, self) is self
        except NoRoom as error:
            self.over = True
            slot = self._engine.target.n_slots - 1
            self._engine.target.truncate(slot, self._engine.kept(slot))
            _log.warning("costs are not measured: %s", error)
        if self.over:
            self._profile.save()  # a worker killed from now on need not measure that again
        return not self.over

    def _everything(self, *, fresh: bool) -> Iterator[None]:
        engine, costs = self._engine, self._costs
        target, clock = engine.target, engine.clock

        def where() -> MeasuringPlace:
            return calibrate.place(engine)

        if fresh:
            for alike, seconds in enumerate(calibrate.changes(target, where(), clock)):
                costs.expect_change(alike, seconds)
            yield
        warm = STEADY if costs.change_seconds > calibrate.FREE * costs.target(1) else 0
        missing = sorted(set(POINTS) - (set() if fresh else set(costs.measured_rows())))
        yield from calibrate.staircase(target, missing, where, costs.measured, clock, warm)
        if engine.shape.rollback != "none" and costs.furthest < calibrate.far_tokens(target):
            for forward in calibrate.far_measurements(engine, calibrate.REPEATS, clock, warm):
                costs.measured(*forward)
                yield
        # The costs of drafts are kept relative to the target's, so they are measured after it.
        for drafter in engine.drafters.values():
            known = drafter.free or drafter.name in costs.measured_drafters
            if not known and not getattr(drafter, "live", False):
                try:
                    yield from self._rehearsing(drafter)
                except EngineError:
                    _log.exception("drafter %s failed while it was measured", drafter.name)

    def _rehearsing(self, drafter: Drafter) -> Iterator[None]:
        """Measure one drafter, in the last slot."""
        engine, clock = self._engine, self._engine.clock
        n_vocab = getattr(drafter, "n_vocab", engine.target.n_vocab)
        slot = engine.target.n_slots - 1
        held = words(dict(engine.held()).get(slot, []))
        change = yield from calibrate.draft_change(drafter, slot, held, n_vocab, clock)
        self._costs.expect_draft_change(drafter.name, change)
        for cost in calibrate.rehearsals(drafter, calibrate.REPEATS, slot, held, n_vocab, clock):
            self._costs.measured_draft(
                cost.name, cost.pending, cost.depth, cost.seconds, cost.cells, cost.changes
            )
            yield
