"""Bounds of a request's numbers and stop strings: one table for config, API and engine. Pure.

Everything in range is safe: the sampler has a distribution for it, given finite logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.errors import ConfigError, RequestError, escaped

if TYPE_CHECKING:  # the command line reads this table and starts without msgspec
    import msgspec

    from localspec.chain import SamplingParams


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both included. NaN is in no range."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"

    @property
    def meta(self) -> msgspec.Meta:
        """The range as a bound of a field that msgspec decodes."""
        import msgspec  # noqa: PLC0415 — see above

        return msgspec.Meta(ge=self.low, le=self.high)

    @property
    def at_most(self) -> msgspec.Meta:
        """The upper end of the range alone, as a bound of a field that msgspec decodes."""
        import msgspec  # noqa: PLC0415 — see above

        return msgspec.Meta(le=self.high)


ADAPTER_SCALE = Range(-100, 100)
"""The scale of a LoRA adapter: 1 adds it as it was trained, a negative one subtracts it."""

SAMPLING = {
    "temperature": Range(0, 100),
    "top_k": Range(0, 2**31 - 1),
    "top_p": Range(0, 1),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0.01, 100),
    "frequency_penalty": Range(-100, 100),
    "presence_penalty": Range(-100, 100),
    "penalty_last_n": Range(0, 4096),
    "typical_p": Range(0, 1),
    "top_n_sigma": Range(-1, 1000),
    "dynatemp_range": Range(0, 100),
    "dynatemp_exponent": Range(0, 100),
    "xtc_probability": Range(0, 1),
    "xtc_threshold": Range(0, 1),
    "dry_multiplier": Range(0, 1000),
    "dry_base": Range(1, 100),
    "dry_allowed_length": Range(0, 4096),
    "dry_penalty_last_n": Range(0, 4096),
    "mirostat": Range(0, 2),
    "mirostat_tau": Range(0, 100),
    "mirostat_eta": Range(0, 1),
    "min_keep": Range(0, 2**31 - 1),
    "seed": Range(-1, 2**64 - 1),
}
"""The range of each number of `types.SamplingParams`, by name."""

TOKEN = Range(0, 2**31 - 1)
"""The range of token ids, before the vocabulary is known."""

BIAS = Range(-1000, 1000)
MAX_BIASES = 4096
MAX_BREAKERS = 32
MAX_BREAKER_CHARS = 40
"""Limit of one DRY breaker's length: llama.cpp's."""
SAMPLERS = (
    "penalties", "dry", "top_n_sigma", "temperature", "top_k", "typ_p", "top_p", "min_p", "xtc",
)  # fmt: skip
"""Steps of a sampler chain by llama.cpp's names, in the default order."""

MAX_SAMPLERS = 32
"""Limit of a chain's length: each step may occur more than once."""
MAX_TOKENS = Range(0, 2**31 - 1)
MAX_DRAFT = Range(0, 64)
MAX_DRAFTERS = 16
"""Limit of the drafters that a request may list."""

MAX_STOPS = 32
MAX_STOP_BYTES = 1024
"""Limit of one stop string in UTF-8."""


def check_chain(chain: SamplingParams) -> None:
    """Refuse a configured chain with invalid steps, breakers or biases. Raises ConfigError."""

    def refuse(name: str, value: object, fix: str) -> None:
        key = f"sampling.{name}"
        raise ConfigError(f"{key} = {value} is out of range.", fix=fix, param=key)

    if len(chain.logit_bias) > MAX_BIASES:
        refuse("logit_bias", f"{len(chain.logit_bias)} tokens", f"Name at most {MAX_BIASES}.")
    for token, bias in chain.logit_bias.items():
        if token not in TOKEN or bias not in BIAS:
            fix = f"Token ids are {TOKEN}; choose a bias from {BIAS}."
            refuse("logit_bias", {token: bias}, fix)
    if not known_samplers(chain.samplers):
        refuse("samplers", [*chain.samplers], f"Known: {', '.join(SAMPLERS)}.")
    if not short_breakers(chain.dry_sequence_breakers):
        fix = f"Name at most {MAX_BREAKERS} texts of 1 to {MAX_BREAKER_CHARS} characters."
        refuse("dry_sequence_breakers", [*chain.dry_sequence_breakers], fix)


def check_scales(table: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse a configured scale of a LoRA adapter that is out of range. Raises ConfigError."""
    for pattern, files in table.items():
        for file, scale in files.items():
            if scale not in ADAPTER_SCALE:
                key = f"models.adapters.{pattern}"
                raise ConfigError(
                    escaped(f"{key}: the scale of {file} is {scale}."),
                    fix=f"Choose a value from {ADAPTER_SCALE}.",
                    param=key,
                )


def known_samplers(names: Sequence[str]) -> bool:
    """Whether these are names of sampler steps, and not too many."""
    return len(names) <= MAX_SAMPLERS and all(name in SAMPLERS for name in names)


def short_breakers(texts: Sequence[str]) -> bool:
    """Whether these are valid DRY breakers: neither too many, nor empty, nor too long."""
    return len(texts) <= MAX_BREAKERS and all(0 < len(one) <= MAX_BREAKER_CHARS for one in texts)


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


def bias_sum(one: float, other: float) -> float:
    """The sum of two biases of a token, clipped to the range; a forbidden one stays forbidden."""
    total = one + other
    return total if total == -math.inf else min(max(total, BIAS.low), BIAS.high)
