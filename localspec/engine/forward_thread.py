"""A forward of the target that runs beside its caller, which meanwhile asks another model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from localspec.types import Backend, ForwardOutput, Row


class Running(Protocol):
    """A forward that was started. One runs at a time, and nothing else may use its backend."""

    @property
    def done(self) -> bool:
        """Whether its result is there."""

    @property
    def ended(self) -> float:
        """The time at which it was done; to be read after `result`."""

    def result(self) -> ForwardOutput:
        """Wait for it: what `decode` gives. Raises what that raises."""


@runtime_checkable
class StartingBackend(Backend, Protocol):
    """A backend that starts forwards by itself, as on a simulated machine."""

    def start(self, rows: Sequence[Row]) -> Running:
        """Begin a forward of these rows."""


@runtime_checkable
class CapacityBackend(Backend, Protocol):
    """A backend that knows whether there are cells for rows without making room.

    To make room it forgets texts, and those belong to the engine's thread.
    """

    def has_room(self, rows: Sequence[Row]) -> bool:
        """Whether there are cells for these rows already."""


class ForwardThread:
    """Starts forwards, on a thread of its own if need be: native code releases Python's lock.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None

    def start(self, target: Backend, rows: Sequence[Row]) -> Running | None:
        """A forward of these rows that has begun; None where it has to be run by the caller."""
        if isinstance(target, StartingBackend):
            return target.start(rows)
        if not isinstance(target, CapacityBackend) or not target.has_room(rows):
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "target")
        running = _Threaded(self._clock)
        try:
            running.future = self._pool.submit(running.run, target, rows)
        except RuntimeError:  # there is no memory for a thread
            return None
        return running


class _Threaded:
    future: Future[ForwardOutput]

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.ended = 0.0

    def run(self, target: Backend, rows: Sequence[Row]) -> ForwardOutput:
        """On the other thread."""
        try:
            return target.decode(rows)
        finally:
            self.ended = self._clock()

    @property
    def done(self) -> bool:
        return self.future.done()

    def result(self) -> ForwardOutput:
        return self.future.result()
