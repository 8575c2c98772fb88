"""Runs the idle work of a worker, one piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.engine.prefill import IdlePrefill
from localspec.engine.step import Engine
from localspec.worker.measuring import Measuring
from localspec.worker.profile import Profile

SAVE_SECONDS = 60.0
"""A worker may be killed at any time; then no more than this of learning is lost."""


class IdleTask(Protocol):
    """Work for an idle engine, in pieces of a few forwards: a request may have to wait for one."""

    def advance(self, now: float) -> bool:
        """One piece of it at `now`, in seconds of the engine's clock; False where there is none."""


class IdleTasks:
    """One thing at a time, what is worth most first: costs, texts read ahead, probes, kernels.

    What comes `before` costs is needed to know which.

    It begins half a second after the last request, so that a person who types never waits.
    Where nothing is left, what requests have taught is kept. It belongs to the engine's thread.
    """

    def __init__(
        self,
        engine: Engine,
        profile: Profile,
        measuring: Measuring,
        *further: IdleTask,
        before: Sequence[IdleTask] = (),
    ) -> None:
        self._engine, self._profile, self._measuring = engine, profile, measuring
        self._prefill = IdlePrefill(engine)
        self._chores: tuple[IdleTask, ...] = (*before, measuring, self._prefill, *further)
        self._saved_steps, self._saved_at = -1, 0.0

    @property
    def measuring(self) -> bool:
        """Whether an idle engine has costs to measure."""
        return not self._measuring.over

    def advance(self, now: float) -> bool:
        """One short piece of work; False when there is none left. `now`: seconds, monotonic."""
        at = self._engine.clock()
        if self._prefill.quiet(at) and any(chore.advance(at) for chore in self._chores):
            return True
        if self._engine.steps != self._saved_steps and now - self._saved_at >= SAVE_SECONDS:
            self._saved_steps, self._saved_at = self._engine.steps, now
            self._profile.save()
        return False
