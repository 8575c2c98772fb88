"""Requests that ask for strict exactness: they wait until it is known, or hear why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from localspec.errors import RequestError
from localspec.wire.messages import Event, Progress
from localspec.worker.assemble import Loaded
from localspec.worker.preparation import PreparedRequest
from localspec.worker.queue import Waiting

_TELL_SECONDS = 0.1
"""Between two tellings of how far a check is."""


class Demand:
    """Has the check made at once that a request waits for, and tells how far it is.

    Model lifetime; the engine's thread.

    Args:
        loaded: The model.
        send: Takes what is told.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, loaded: Loaded, send: Callable[[Event], None], clock: Callable[[], float]
    ) -> None:
        self._loaded, self._send, self._clock = loaded, send, clock
        self._ready = loaded.ready
        self._told_at = -math.inf

    def waits(self, prepared: PreparedRequest) -> bool:
        """Whether it is not known yet what the order asks for.

        Who came later waits as well, or it would never be known.
        """
        return _asks(prepared) and not self._loaded.decision.over

    def check(self, prepared: PreparedRequest) -> None:
        """Raises RequestError for an order that asks for what is not in force."""
        loaded = self._loaded
        if _asks(prepared) and loaded.ready.exactness != "strict":
            raise RequestError(
                f"Strict exactness is not in force for {loaded.ready.model}: {loaded.probe.detail}",
                fix='Set engine.exactness = "strict" in config.toml, or send it without.',
                param="speculation.exactness",
            )

    def advance(self, waiting: Iterable[Waiting]) -> None:
        """Make one forward for who waits. Nobody is being answered."""
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
        """Say what the worker is, if that is another thing now; whether it is."""
        if self._loaded.ready is self._ready:
            return False
        self._ready = self._loaded.ready
        self._send(self._ready)
        return True


def _asks(prepared: PreparedRequest) -> bool:
    return prepared.request.speculation.exactness == "strict"
