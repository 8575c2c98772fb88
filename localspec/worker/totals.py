"""Counts a worker's tokens and requests for its heartbeats. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from localspec.wire.messages import Finished


@dataclass(slots=True)
class Totals:
    """Counts since the model was loaded, and the rate of decoding since the last heartbeat."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    routing: Counter[str] = field(default_factory=Counter)
    _at_last_beat: int = 0

    def finished(self, event: Finished) -> None:
        """Count a finished request."""
        self.routing[event.speculation.reason] += 1
        for name, source in event.speculation.sources.items():
            self.drafted[name] += source.drafted
            self.accepted[name] += source.accepted

    def rate(self, elapsed_seconds: float) -> float:
        """Tokens per second since the previous call, all sessions together."""
        new = self.completion_tokens - self._at_last_beat
        self._at_last_beat = self.completion_tokens
        return new / elapsed_seconds if elapsed_seconds > 0 else 0.0
