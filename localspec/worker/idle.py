"""Runs the idle work of a worker, one piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.engine.prefill import IdlePrefill
from localspec.engine.step import Engine
from localspec.worker.measuring import Measuring
from localspec.worker.profile import Profile

SAVE_SECONDS = 60.0
"""Seconds between two saves: a worker that is killed loses no more than this of learning."""


class IdleTask(Protocol):
    """Work for an idle engine, in pieces of a few forwards: a request waits for one at most."""

    def advance(self, now: float) -> bool:
        """Do one piece at `now`, in seconds of the engine's clock; False where none is left."""


class IdleTasks:
    """Runs one task at a time, the most useful first: costs, prefill, probes, kernels.

    The tasks in `before` run before costs are measured: they decide which forwards to measure, or
    are short.

    Work begins half a second after the last request, so that a person who types never waits.
    Where no task is left, it saves what requests have taught. The engine's thread.
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
        self.left = True
        """Whether there is work, or soon will be: true for half a second after a request, too."""

    @property
    def measuring(self) -> bool:
        """Whether an idle engine has costs to measure."""
        return not self._measuring.over

    def advance(self, now: float) -> bool:
        """Do one short piece of work; False where none is left. `now`: seconds, monotonic."""
        at = self._engine.clock()
        quiet = self._prefill.quiet(at)
        self.left = not quiet or any(chore.advance(at) for chore in self._chores)
        if quiet and self.left:
            return True
        if self._engine.steps != self._saved_steps and now - self._saved_at >= SAVE_SECONDS:
            self._saved_steps, self._saved_at = self._engine.steps, now
            self._profile.save()
        return False
