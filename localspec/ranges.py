"""What a request's numbers and stop strings may be: one table for config, API and engine. Pure.

Whatever is in range is safe: for every value here the sampler has a law, given finite logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.errors import RequestError

if TYPE_CHECKING:
    import msgspec


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, both included. NaN is in no range."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"

    @property
    def meta(self) -> msgspec.Meta:
        """The range as a bound of a field that msgspec decodes."""
        import msgspec  # noqa: PLC0415 — the command line reads this table and should start quickly

        return msgspec.Meta(ge=self.low, le=self.high)


SAMPLING = {
    "temperature": Range(0, 100),
    "top_k": Range(0, 2**31 - 1),
    "top_p": Range(0, 1),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0.01, 100),
    "frequency_penalty": Range(-2, 2),
    "presence_penalty": Range(-2, 2),
    "penalty_last_n": Range(0, 4096),
    "seed": Range(0, 2**64 - 1),
}
"""By the name of each number of `types.SamplingParams`."""

TOKEN = Range(0, 2**31 - 1)
"""A token id, before the vocabulary is known."""

BIAS = Range(-1000, 1000)
MAX_BIASES = 4096
MAX_TOKENS = Range(0, 2**31 - 1)
MAX_DRAFT = Range(0, 64)
MAX_DRAFTERS = 16
"""Names that a request may list."""

MAX_STOPS = 32
MAX_STOP_BYTES = 1024
"""Of one stop string in UTF-8."""


def check_stops(stops: Sequence[str], param: str = "stop") -> None:
    """Refuse stop strings that are too many, empty or too long. Raises RequestError."""
    if len(stops) > MAX_STOPS:
        raise RequestError(
            f"{param} has {len(stops)} strings; {MAX_STOPS} are the most.",
            fix=f"Send at most {MAX_STOPS}.",
            param=param,
        )
    if not all(0 < len(stop.encode()) <= MAX_STOP_BYTES for stop in stops):
        raise RequestError(
            f"A stop string must have 1 to {MAX_STOP_BYTES} bytes of UTF-8.",
            fix="Leave empty ones out, and shorten the others.",
            param=param,
        )
