"""Idle prefill: drafters read what the slots hold, so that the next turn finds them ready."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from localspec.engine.images import words
from localspec.engine.sampling import Sampler
from localspec.engine.step import Engine
from localspec.types import Reading, SamplingParams

_log = logging.getLogger("localspec.engine")

QUIET_SECONDS = 0.5
"""Seconds without a step before drafters read: a client with steady requests never waits for it."""
CHUNK_ROWS = 64
"""Tokens read at a time: a request may have to wait for them."""


class IdlePrefill:
    """Work for an idle engine: its drafters read the conversations that its slots remember.

    It belongs to the engine's thread. A drafter that fails is left alone until the next step.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._steps = engine.steps
        self._quiet_since = 0.0
        self._work: Iterator[None] = iter(())

    def advance(self, now: float) -> bool:
        """Read some tokens, if there are any and there was no request lately.

        Args:
            now: Seconds, monotonic.
        """
        if not self.quiet(now):
            return False
        try:
            return next(self._work, self) is None
        except Exception:  # noqa: BLE001 — a drafter is optional whatever is wrong with it
            _log.exception("a drafter failed while it read ahead")
            return False

    def quiet(self, now: float) -> bool:
        """Whether there was no request lately."""
        if self._engine.steps != self._steps:
            self._steps, self._quiet_since = self._engine.steps, now
            self._work = self._texts()
        return now - self._quiet_since >= QUIET_SECONDS

    def _texts(self) -> Iterator[None]:
        """Read the slots' texts, the latest first. A step may change them: then begin anew."""
        for slot, text in self._engine.held():
            tokens = words(text)
            for drafter in self._engine.drafters.values():
                if isinstance(drafter, Reading) and not drafter.free:
                    opened = drafter.open(slot, tokens, Sampler(SamplingParams(temperature=0.0)))
                    while drafter.read(opened, CHUNK_ROWS):
                        yield
                    opened.close()
