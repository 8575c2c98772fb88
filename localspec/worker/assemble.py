"""From `Load` to a model that answers: weights, contexts, drafters, controller, engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from localspec.control.controller import Controller
from localspec.control.costs import POINTS, STEADY, Costs
from localspec.engine import calibrate
from localspec.engine.calibrate import Behind
from localspec.engine.prefill import IdlePrefill
from localspec.engine.step import Engine, Limits
from localspec.errors import EngineError
from localspec.protocol import Load, Ready
from localspec.types import Drafter
from localspec.worker.intake import Intake
from localspec.worker.loader import Loader, OnProgress
from localspec.worker.profile import Profile
from localspec.worker.reach import Reach
from localspec.worker.router import Router

if TYPE_CHECKING:
    from localspec.engine.model import Model

_log = logging.getLogger("localspec.worker")

_SAVE_SECONDS = 60.0
"""A worker may be killed at any time; then no more than this of learning is lost."""


@dataclass(slots=True)
class Loaded:
    """A model that answers, and everything that belongs to it. A context manager."""

    ready: Ready
    model: Model
    engine: Engine
    intake: Intake
    router: Router
    profile: Profile
    _parts: ExitStack
    _measuring: Iterator[None]
    _prefill: IdlePrefill
    reach: Reach
    _unmeasured: bool = True
    _saved_steps: int = -1
    _saved_at: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.profile.save()
        self._parts.close()

    def cost_ms_by_rows(self, cells: int = 0) -> dict[int, float]:
        """The target's measured staircase behind so many tokens."""
        return {
            rows: round(seconds * 1000, 3)
            for rows, seconds in self.profile.costs.measured_rows(cells).items()
        }

    def draft_ms(self, cells: int = 0) -> dict[str, float]:
        """What one more drafted token costs of each source that is not free; a guess at first."""
        return {
            name: round(self.profile.costs.draft(name, 1, 1, cells) * 1000, 3)
            for name, drafter in self.engine.drafters.items()
            if not drafter.free
        }

    @property
    def measuring(self) -> bool:
        """Whether an idle engine has costs to measure."""
        return self._unmeasured

    def rest(self, now: float) -> bool:
        """One short piece of work for an idle engine; False when there is none left.

        A request that comes meanwhile waits for a few forwards at most. `now` is in seconds,
        monotonic.
        """
        if self._unmeasured:
            self._unmeasured = next(self._measuring, self) is None
            if self._unmeasured:
                return True
        if self._prefill.advance(self.engine.clock()) or self.reach.advance():
            return True
        if self.engine.steps != self._saved_steps and now - self._saved_at >= _SAVE_SECONDS:
            self._saved_steps, self._saved_at = self.engine.steps, now
            self.profile.save()
        return False


def load(command: Load, on_progress: OnProgress) -> Loaded:
    """Load the pair and put the engine together. The files passed the supervisor's header check.

    Raises:
        ModelError: llama.cpp refused a file or its context.
        ConfigError: config names a drafter that does not exist.
    """
    if command.config.engine.exactness == "strict":
        os.environ["GGML_CPU_TILED_MM"] = "0"  # read once, when llama_cpp is imported
    with ExitStack() as parts:
        loader = Loader(command, on_progress, parts)
        target = loader.target()
        place = loader.place
        priced = place.context(target, "target")
        profile = Profile.open(
            loader.files,
            command.config.engine,
            loader.build,
            command.safe_kernels,
            command.machine,
        )
        fresh = profile.shape is None
        if profile.shape is None:
            profile.shape = loader.probe(target, priced, profile.costs)
            profile.save()  # probing takes long; a worker killed early must not do it again
        shape = profile.shape
        sources, off = loader.drafters(target, shape)
        for name, drafter in sources.items():
            if not drafter.free and loader.size_ratio:
                profile.costs.expect_draft(name, loader.size_ratio)
        controller = Controller(profile.costs, profile.acceptance, multiple=shape.multiple)
        engine = Engine(
            priced,
            sources,
            place.policy(controller),
            ends=target.model.eog,
            shape=shape,
            limits=Limits(command.config.engine.prefill_rows, command.config.speculation.max_draft),
            clock=place.clock,
        )
        measuring = _measuring(profile.costs, engine, fresh=fresh)
        if command.machine:  # nothing may depend on when a first request comes
            for _ in measuring:
                on_progress("probe", 1.0)
        return Loaded(
            ready=loader.ready(target, engine, shape, off),
            model=target.model,
            engine=engine,
            intake=Intake(target.model, engine.context, sources),
            router=Router(sources, pair_fits=loader.pair_fits, can_roll_back=shape.can_roll_back),
            profile=profile,
            _parts=parts.pop_all(),
            _measuring=measuring,
            _prefill=IdlePrefill(engine),
            reach=Reach(engine, profile),
        )


def _measuring(costs: Costs, engine: Engine, *, fresh: bool) -> Iterator[None]:
    """Measure what is not known yet: a few short forwards or one draft for each `next`.

    Of a `fresh` profile nothing is known well. What an idle slot remembers stays there.
    """
    target, clock = engine.target, engine.clock
    slot = target.n_slots - 1

    def where() -> Behind:
        return Behind(slot, min(engine.kept(slot), target.context - max(POINTS)))

    if fresh:
        for alike, seconds in enumerate(calibrate.changes(target, where(), clock)):
            costs.expect_change(alike, seconds)
        yield
    warm = STEADY if costs.change_seconds > calibrate.FREE * costs.target(1) else 0
    missing = sorted(set(POINTS) - (set() if fresh else set(costs.measured_rows())))
    yield from calibrate.staircase(target, missing, where, costs.measured, clock, warm)
    if costs.furthest < calibrate.far_tokens(target):
        for forward in calibrate.far_measurements(engine, calibrate.REPEATS, clock, warm):
            costs.measured(*forward)
            yield
    # Drafts are kept relative to the target, so they come second.
    for drafter in engine.drafters.values():
        if not drafter.free and drafter.name not in costs.measured_drafters:
            try:
                yield from _rehearsing(costs, engine, drafter, clock)
            except EngineError:
                _log.exception("drafter %s failed while it was measured", drafter.name)


def _rehearsing(
    costs: Costs, engine: Engine, drafter: Drafter, clock: Callable[[], float]
) -> Iterator[None]:
    """Measure one drafter, in the last slot."""
    n_vocab, slot = engine.target.n_vocab, engine.target.n_slots - 1
    held = dict(engine.held()).get(slot, [])
    change = calibrate.draft_change(drafter, slot, held, n_vocab, clock)
    costs.expect_draft_change(drafter.name, change)
    yield
    for cost in calibrate.rehearsals(drafter, calibrate.REPEATS, slot, held, n_vocab, clock):
        costs.measured_draft(
            cost.name, cost.pending, cost.depth, cost.seconds, cost.cells, cost.changes
        )
        yield
