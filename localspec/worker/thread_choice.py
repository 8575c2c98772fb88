"""Chooses the number of threads of a target's forwards, and measures kinds of cores for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.engine.llama import cores
from localspec.engine.llama.threads import ThreadTuner, fastest, timed
from localspec.engine.pieces import Pieces
from localspec.types import Row
from localspec.wire.messages import Load
from localspec.worker.profile import Profile

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context


class ThreadChoice:
    """The threads of one load's forwards, the target's and the draft's. Model lifetime.

    Kinds of cores are measured while the worker is idle, or `at_once` where bits depend on the
    number: llama.cpp's attention splits a long text by threads.

    Args:
        command: The load. If it configures a number or a simulated machine, the number is fixed.
        strict: Whether the target is loaded for strict use now.
        at_once: Whether strict exactness is claimed from the first answer on.
    """

    def __init__(self, command: Load, strict: Callable[[], bool], *, at_once: bool) -> None:
        self._command, self._strict, self._at_once = command, strict, at_once
        self.tuner: ThreadTuner | None = None
        """None where the number is fixed, and before `choose`."""

    def choose(self, target: Context, profile: Profile) -> ThreadTuner:
        """The tuner of the target's threads, with the number kept in the profile."""
        counts = cores.counts()
        fixed = self._command.config.engine.target.threads
        if fixed or self._command.machine:
            return ThreadTuner(fixed or counts[0], varies=False)
        if (len(counts) == 1 or self._at_once) and not profile.threads:
            profile.threads = fastest(target, counts, lambda: _one_row(target))
        self.tuner = ThreadTuner(profile.threads or counts[0], varies=self._varies(target))
        target.join(self.tuner)
        return self.tuner

    def update(self, target: Context) -> None:
        """Let the number vary, or not, as the target's present use allows."""
        if self.tuner is not None:
            self.tuner.become(self.tuner.most, varies=self._varies(target))

    def measure(self, target: Context, profile: Profile) -> Pieces[None]:
        """Measure kinds of cores, if that is still to be done. All slots are empty."""
        if self.tuner is None or profile.threads:
            return
        profile.threads = yield from timed(target, cores.counts(), lambda: _one_row(target))
        self.tuner.become(profile.threads, varies=self._varies(target))

    def _varies(self, target: Context) -> bool:
        """Whether the number of threads may change between forwards."""
        from localspec.engine.llama.library import ours  # noqa: PLC0415 - see `assemble.load`

        return target.model.on_cpu and (ours.attends or not self._strict())


def _one_row(context: Context) -> None:
    """A forward of one row, in the first slot, which is empty."""
    context.decode([Row(0, 0, 0, wants_logits=True)])
    context.truncate(0, 0)
