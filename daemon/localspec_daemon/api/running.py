"""Counts tokens and times of an answer while it streams. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from localspec.wire.messages import Delta, Reading, Spent, Started
from localspec.wire.values import Timings
from localspec_daemon.api.dialect import Json


@dataclass(slots=True)
class Running:
    """Counts and times of one request's choices so far. Lives as long as the request."""

    started: Started | None = None
    counts: Counter[int] = field(default_factory=Counter)
    """Tokens by choice."""
    lines: Counter[int] = field(default_factory=Counter)
    """Line breaks by choice."""
    _spent: dict[int, Spent] = field(default_factory=dict)

    def take(self, choice: int, delta: Delta) -> None:
        """Adds the next part of a choice."""
        self.counts[choice] += len(delta.decided)
        self.lines[choice] += delta.text.count("\n")
        if delta.decided:
            self._spent[choice] = delta.spent

    def progress(self, reading: Reading) -> Json:
        """Returns llama-server's `prompt_progress`."""
        started = self.started
        progress = {
            "total": started.prompt_tokens if started else 0,
            "cache": started.cached_tokens if started else 0,
            "processed": reading.tokens,
            "time_ms": round(1000 * reading.seconds),
        }
        return {"prompt_progress": progress}

    def timings(self, reading: Reading | None = None, choice: int = 0) -> Json:
        """Returns llama-server's `timings` so far."""
        started, spent = self.started, self._spent.get(choice, Spent())
        cached = started.cached_tokens if started else 0
        read = (started.prompt_tokens if started else 0) - cached
        seconds = spent.prompt_seconds
        if reading is not None:
            read, seconds = (
                reading.tokens - cached,
                reading.seconds if reading.tokens > cached else 0.0,
            )
        count = self.counts[choice]
        steps = max(0, count - 1)
        prompt_ms, predicted_ms = 1000 * seconds, 1000 * spent.decode_seconds
        drafted = sum(source.drafted for source in spent.sources.values())
        accepted = sum(source.accepted for source in spent.sources.values())
        timings: Json = msgspec.to_builtins(
            Timings(
                cache_n=cached,
                prompt_n=read,
                prompt_ms=prompt_ms,
                prompt_per_token_ms=prompt_ms / read if read else 0.0,
                prompt_per_second=read / seconds if seconds else 0.0,
                predicted_n=count,
                predicted_ms=predicted_ms,
                predicted_per_token_ms=predicted_ms / steps if steps else 0.0,
                predicted_per_second=1000 * steps / predicted_ms if predicted_ms else 0.0,
                draft_n=drafted,
                draft_n_accepted=accepted,
                **Timings.origins(cached, started.origin if started else "slot"),
            )
        )
        return timings
