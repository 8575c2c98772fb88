"""Gives each forward of a worker as many threads as `thread_count.py` decides."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from localspec.engine.llama.thread_count import Threads, Trial
from localspec.engine.pieces import Pieces, whole

_Result = TypeVar("_Result")

_TRIED_ROWS = 32
"""Forwards of more rows, which may last for seconds, are not part of a trial."""


class ThreadedContext(Protocol):
    """A context whose number of threads can be changed."""

    def use_threads(self, count: int) -> None:
        """Use so many threads from the next forward on."""


class ThreadTuner:
    """One number of threads for all contexts of a worker. Used by the engine's thread.

    Seconds are real ones, also where a simulated machine charges others.
    """

    def __init__(self, most: int, *, varies: bool) -> None:
        self._threads = Threads(most, varies=varies)

    def run(self, context: ThreadedContext, rows: int, forward: Callable[[], _Result]) -> _Result:
        """Run one forward, by as many threads as are best now."""
        kind: Hashable = (id(context), rows) if rows <= _TRIED_ROWS else None
        count = self._threads.count(kind)
        context.use_threads(count)
        began, waits = time.monotonic(), _waits()
        found = forward()
        ended = time.monotonic()
        self._threads.took(kind, count, ended - began, _waits() - waits, ended)
        return found

    def become(self, most: int, *, varies: bool) -> None:
        """Give forwards at most so many threads; if it `varies`, fewer beside a busy neighbour."""
        if (most, varies) != (self._threads.most, self._threads.varies):
            self._threads = Threads(most, varies=varies)

    @property
    def most(self) -> int:
        """The most threads of a forward."""
        return self._threads.most

    @property
    def varies(self) -> bool:
        """Whether forwards may have fewer threads because of other processes."""
        return self._threads.varies

    @property
    def sentence(self) -> str:
        """A sentence for people, if other processes are why there are fewer threads; else empty."""
        chosen, most = self._threads.chosen, self._threads.most
        return f"{chosen} of {most} threads, because others compute here" * (chosen < most)


def fastest(context: ThreadedContext, counts: Sequence[int], forward: Callable[[], object]) -> int:
    """The number of threads, of these, with which the forward is fastest, measured in turns."""
    return whole(timed(context, counts, forward))


def timed(
    context: ThreadedContext, counts: Sequence[int], forward: Callable[[], object]
) -> Pieces[int]:
    """`fastest`, forward by forward."""
    if len(counts) == 1:
        return counts[0]
    trial = Trial(counts)
    while trial.fastest is None:
        count = trial.count(None)
        context.use_threads(count)
        began = time.monotonic()
        forward()
        trial.took(None, count, time.monotonic() - began)
        yield
    return trial.fastest


def _waits() -> int:
    """How often a thread of this process was pushed aside by another process, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
