"""Handles requests for strict exactness: they wait until it is decided, or are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from localspec.errors import RequestError
from localspec.wire.messages import Event, Progress
from localspec.worker.assemble import Loaded
from localspec.worker.preparation import PreparedRequest
from localspec.worker.queue import Waiting

_TELL_SECONDS = 0.1
"""Seconds between two progress events."""


class Demand:
    """Runs the exactness check at once while a request waits for it, and sends its progress.

    Model lifetime; the engine's thread.

    Args:
        loaded: The model.
        send: Takes progress events, and a new `Ready`.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, loaded: Loaded, send: Callable[[Event], None], clock: Callable[[], float]
    ) -> None:
        self._loaded, self._send, self._clock = loaded, send, clock
        self._ready = loaded.ready
        self._told_at = -math.inf

    def waits(self, prepared: PreparedRequest) -> bool:
        """Whether the request is for strict exactness and exactness is not decided yet.

        While no answer is running later requests wait as well: a check that ran between other
        answers might never end.
        """
        return _asks(prepared) and not self._loaded.decision.over

    def check(self, prepared: PreparedRequest) -> None:
        """Raises RequestError for a request for strict exactness where that is not in force."""
        loaded = self._loaded
        if _asks(prepared) and loaded.ready.exactness != "strict":
            raise RequestError(
                f"Strict exactness is not in force for {loaded.ready.model}: {loaded.probe.detail}",
                fix='Send it without, or set engine.exactness = "strict" in config.toml, which '
                "gives it where this machine's kernels can.",
                param="speculation.exactness",
            )

    def advance(self, waiting: Iterable[Waiting]) -> None:
        """Make one forward of the check, if a request waits for it. No answer is running."""
        asking = [each.id for each in waiting if self.waits(each.prepared)]
        if not asking:
            return
        decision, now = self._loaded.decision, self._clock()
        decision.advance()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            done, total = decision.step
            why = f"checking that drafts change nothing, {done} of {total}"
            for id_ in asking:
                self._send(Progress("probe", done / max(1, total), why, id_))

    def announce(self) -> bool:
        """Send `Ready` again if it has changed. Returns whether it has."""
        if self._loaded.ready is self._ready:
            return False
        self._ready = self._loaded.ready
        self._send(self._ready)
        return True


def _asks(prepared: PreparedRequest) -> bool:
    return prepared.request.speculation.exactness == "strict"
