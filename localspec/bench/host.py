"""The host path: milliseconds of a round besides its forwards, measured without any model."""

from __future__ import annotations

import msgspec

from localspec.bench import native
from localspec.bench.report import Table


class Span(msgspec.Struct, frozen=True):
    """Milliseconds of one part over many rounds; the least is the cost of the code itself."""

    least_ms: float
    median_ms: float


class SamplingHost(msgspec.Struct, frozen=True):
    """One way of choosing tokens: whole rounds in which all rows were kept, and their parts."""

    limit_ms: float
    rounds: int
    round: Span
    parts: dict[str, Span]


class HostPath(msgspec.Struct, frozen=True):
    """Both ways, greedy and sampled, over `rows` rows of `vocabulary` logits.

    `undrafted` are rounds of one row without a draft, between a device's forwards, by route.
    """

    rows: int
    vocabulary: int
    ways: dict[str, SamplingHost]
    undrafted: dict[str, Span]


def measure() -> HostPath:
    """Measure the host path, in a few seconds of one core. Raises EngineError."""
    return native.ask(HostPath, "microbench.host")


def tables(found: HostPath) -> list[Table]:
    """A table for each way, with its parts, the rest, the round and its limit; and `undrafted`."""
    undrafted = Table(
        f"Host time of a round that drafts nothing, 1 row of {found.vocabulary} logits",
        ["session", "least ms", "median ms"],
        [_row(route, span) for route, span in found.undrafted.items()],
        "Between two forwards of a device: what is done while that computes is left out.",
    )
    ways = [
        Table(
            f"Host time of a round, {name}, {found.rows} rows of {found.vocabulary} logits",
            ["part", "least ms", "median ms"],
            [
                *(_row(part, span) for part, span in way.parts.items()),
                _row("rest", _rest(way)),
                _row("round", way.round),
                ["limit", f"{way.limit_ms:.3f}", ""],
            ],
            f"{way.rounds} rounds in which every drafted token was kept, the dearest kind.",
        )
        for name, way in found.ways.items()
    ]
    return [*ways, undrafted]


def _rest(way: SamplingHost) -> Span:
    """The time that no part accounts for: rows, scheduling, committing and counting."""
    parts = way.parts.values()
    return Span(
        max(0.0, way.round.least_ms - sum(span.least_ms for span in parts)),
        max(0.0, way.round.median_ms - sum(span.median_ms for span in parts)),
    )


def _row(name: str, span: Span) -> list[str]:
    return [name, f"{span.least_ms:.3f}", f"{span.median_ms:.3f}"]
