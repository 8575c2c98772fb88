"""Logs requests, one line each without their text, and keeps totals."""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from localspec.wire.messages import Delta, Finished, Progress, Replayed, Started
from localspec_daemon.supervisor.resumption import Resumed
from localspec_daemon.supervisor.worker import StreamEvent

_log = logging.getLogger("localspec.request")


@dataclass(slots=True)
class Tally:
    """Totals over the finished requests of one model; they outlive its workers."""

    requests: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_from: Counter[str] = field(default_factory=Counter)
    """Cached tokens by where they were: "slot", "memory", "disk"."""
    prompt_seconds: float = 0.0
    completion_tokens: int = 0
    completion_seconds: float = 0.0
    rounds: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    accepted_by_position: Counter[int] = field(default_factory=Counter)
    draft_rounds: int = 0
    host_seconds: float = 0.0
    resumes: int = 0
    longest: int = 0
    """Tokens of the longest text, prompt and answer."""

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum of several tallies."""
        total = cls()
        for tally in tallies:
            for name in cls.__slots__:
                together = max if name == "longest" else operator.add
                setattr(total, name, together(getattr(total, name), getattr(tally, name)))
        return total

    def embedded(self, texts: Sequence[int], seconds: float) -> None:
        """Count a request for embeddings: tokens of each text, and its seconds."""
        self.requests["embedded"] += 1
        self.prompt_tokens += sum(texts)
        self.prompt_seconds += seconds
        self.rounds += 1
        self.longest = max(self.longest, *texts)

    def add(self, finished: Finished) -> None:
        """Count a request that finished."""
        usage, timings, report = finished.usage, finished.timings, finished.speculation
        self.prompt_tokens += usage.prompt_tokens - usage.cached_tokens
        self.cached_tokens += usage.cached_tokens
        for origin in ("slot", "memory", "disk"):
            if tokens := getattr(timings, f"cache_{origin}_n"):
                self.cached_from[origin] += tokens
        self.prompt_seconds += timings.prompt_ms / 1000
        self.completion_tokens += usage.completion_tokens
        self.completion_seconds += timings.predicted_ms / 1000
        self.rounds += report.rounds
        self.longest = max(self.longest, usage.prompt_tokens + usage.completion_tokens)
        self.reasons[report.reason] += 1
        self.host_seconds += report.host_seconds
        drafted_first = 0
        for name, source in report.sources.items():
            self.drafted[name] += source.drafted
            self.accepted[name] += source.accepted
            self.accepted_by_position.update(dict(enumerate(source.accepted_by_position)))
            drafted_first += source.drafted_by_position[0] if source.drafted_by_position else 0
        self.draft_rounds += drafted_first


@dataclass(slots=True)
class Record:
    """The fields of one request's log line. Request lifetime."""

    id: str
    model: str
    client: str
    came_at: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_seconds: float = 0.0
    resumes: int = 0
    outcome: str = "cancelled"
    finished: Finished | None = None

    def see(self, event: Progress | Resumed | StreamEvent, now: float) -> None:
        """Take the next event of the request."""
        match event:
            case Resumed():
                self.resumes += 1
            case Started():
                self.prompt_tokens, self.cached_tokens = event.prompt_tokens, event.cached_tokens
            case Delta() if not self.ttft_seconds:
                self.ttft_seconds = now - self.came_at
            case Finished():
                self.finished, self.outcome = event, event.reason
            case Replayed():
                self.prompt_tokens, self.cached_tokens = event.prompt_tokens, event.cached_tokens
                self.outcome = "replayed"

    def write(self, now: float) -> None:
        """Log the request as one line."""
        fields: dict[str, object] = {
            "id": self.id,
            "model": self.model,
            "client": self.client,
            "finish": self.outcome,
            "seconds": f"{now - self.came_at:.3f}",
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "ttft_seconds": f"{self.ttft_seconds:.3f}",
        }
        if self.resumes:
            fields["resumes"] = self.resumes
        if self.finished:
            report = self.finished.speculation
            fields |= {
                "completion_tokens": self.finished.usage.completion_tokens,
                "tokens_per_second": f"{self.finished.timings.predicted_per_second:.1f}",
                "drafted": report.drafted,
                "accepted": report.accepted,
                "routing": report.reason,
            }
        _log.info("request %s", " ".join(f"{key}={value}" for key, value in fields.items()))
