"""Reads the sampler chain of a request body, in the field names of all dialects. Pure, no HTTP."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from msgspec import Meta

from localspec import ranges
from localspec.chain import RANDOM_SEED, SamplingParams
from localspec.errors import RequestError
from localspec.ranges import SAMPLERS, SAMPLING

SEED_BITS = 53
"""A seed drawn here is reported, and JavaScript's numbers are exact up to 2^53 only."""

RANDOM_SEEDS = {RANDOM_SEED, 2**32 - 1}
"""llama.cpp's LLAMA_DEFAULT_SEED, signed and unsigned."""

MAX_BIASED_TEXTS = 256

TokenId: TypeAlias = Annotated[int, ranges.TOKEN.meta]
Repetition: TypeAlias = Annotated[float, Meta(ge=0, le=SAMPLING["repetition_penalty"].high)]
"""Some clients write 0 for "off"."""
Unbounded: TypeAlias = float | None
BiasOf: TypeAlias = float | bool
"""A number is added to the logit; False forbids the token."""
Biases: TypeAlias = dict[str, BiasOf] | list[tuple[int | str, BiasOf]]
"""Keys are token ids, or texts, each of whose tokens is biased."""


def whole(low: float, high: float) -> Any:
    """Returns the type of a whole number in a range; some clients write 1 as 1.0."""
    return (
        Annotated[int, Meta(ge=low, le=high)]
        | Annotated[float, Meta(ge=low, le=high, multiple_of=1)]
    )


TopK: TypeAlias = whole(-1, SAMPLING["top_k"].high)  # type: ignore[valid-type]
LastTokens: TypeAlias = Annotated[int, Meta(ge=-1, le=SAMPLING["penalty_last_n"].high)]
"""-1 is llama.cpp's "the whole context"; here it is the largest window allowed."""
Seed: TypeAlias = int | Annotated[float, Meta(ge=-(2**53), le=2**53, multiple_of=1)]


def in_range(name: str, kind: type) -> Any:
    """Returns the type of a number with the range called `name`."""
    return Annotated[kind, SAMPLING[name].meta]


class Chain(msgspec.Struct):
    """The sampler chain as a body may set it, under the names that most dialects share.

    `samplers` is the order of its steps, as names or as llama.cpp's letters. Adaptive sampling is
    refused, except for a negative `adaptive_target`, which turns it off. With `clamps` a number out
    of range becomes the nearest in it, where llama-server does the same.
    """

    clamps: ClassVar[bool] = False

    temperature: in_range("temperature", float) | None = None  # type: ignore[valid-type]
    top_k: TopK | None = None
    top_p: in_range("top_p", float) | None = None  # type: ignore[valid-type]
    min_p: in_range("min_p", float) | None = None  # type: ignore[valid-type]
    repetition_penalty: Repetition | None = None
    repeat_penalty: Repetition | None = None
    frequency_penalty: in_range("frequency_penalty", float) | None = None  # type: ignore[valid-type]
    presence_penalty: in_range("presence_penalty", float) | None = None  # type: ignore[valid-type]
    penalty_last_n: in_range("penalty_last_n", int) | None = None  # type: ignore[valid-type]
    repeat_last_n: LastTokens | None = None
    typical_p: in_range("typical_p", float) | None = None  # type: ignore[valid-type]
    top_n_sigma: in_range("top_n_sigma", float) | None = None  # type: ignore[valid-type]
    dynatemp_range: in_range("dynatemp_range", float) | None = None  # type: ignore[valid-type]
    dynatemp_exponent: in_range("dynatemp_exponent", float) | None = None  # type: ignore[valid-type]
    xtc_probability: in_range("xtc_probability", float) | None = None  # type: ignore[valid-type]
    xtc_threshold: in_range("xtc_threshold", float) | None = None  # type: ignore[valid-type]
    dry_multiplier: in_range("dry_multiplier", float) | None = None  # type: ignore[valid-type]
    dry_base: in_range("dry_base", float) | None = None  # type: ignore[valid-type]
    dry_allowed_length: in_range("dry_allowed_length", int) | None = None  # type: ignore[valid-type]
    dry_penalty_last_n: LastTokens | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: in_range("mirostat", int) | None = None  # type: ignore[valid-type]
    mirostat_tau: in_range("mirostat_tau", float) | None = None  # type: ignore[valid-type]
    mirostat_eta: in_range("mirostat_eta", float) | None = None  # type: ignore[valid-type]
    min_keep: in_range("min_keep", int) | None = None  # type: ignore[valid-type]
    samplers: list[str] | str | None = None
    adaptive_target: float | None = None
    logit_bias: Biases | None = None
    seed: Seed | None = None


def sampling(chain: Chain, defaults: SamplingParams) -> SamplingParams:
    """Returns the configured chain, changed by the fields that the request sets.

    Biases of texts are left out: see `biased_texts`. Raises RequestError.
    """
    if chain.adaptive_target is not None and chain.adaptive_target >= 0:
        raise RequestError(
            "adaptive_target is not served.",
            fix="Leave adaptive_target out.",
            param="adaptive_target",
        )
    chosen = given(chain, SamplingParams)
    if chain.clamps:
        chosen |= {name: _nearest(name, value) for name, value in chosen.items()}
    chosen |= _repetition(chain, chosen)
    if chain.top_k is not None:
        chosen["top_k"] = max(int(chain.top_k), 0)  # -1 is how others write "no limit"
    if chain.dry_base is not None and chain.dry_base < 1:
        chosen["dry_base"] = defaults.dry_base  # as llama-server has it
    if chain.dry_sequence_breakers is not None:
        chosen["dry_sequence_breakers"] = _breakers(chain.dry_sequence_breakers)
    if chain.samplers is not None:
        chosen["samplers"] = ordered(chain.samplers)
    if chain.logit_bias is not None:
        chosen["logit_bias"] = _of_tokens(chain.logit_bias)
    chosen["seed"] = _seed(defaults.seed if chain.seed is None else chain.seed)
    return msgspec.structs.replace(defaults, **chosen)


def given(source: msgspec.Struct, target: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of `target` that `source` sets."""
    values = ((name, getattr(source, name, None)) for name in target.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def biased_texts(chain: Chain) -> list[tuple[str, float]]:
    """Returns the biases of texts; only a loaded model can split these into tokens.

    Raises RequestError if there are more than MAX_BIASED_TEXTS.
    """
    found = [(key, bias) for key, bias in _pairs(chain.logit_bias or {}) if isinstance(key, str)]
    if len(found) > MAX_BIASED_TEXTS:
        raise RequestError(
            f"logit_bias names {len(found)} texts; {MAX_BIASED_TEXTS} are the most.",
            param="logit_bias",
        )
    return found


def ordered(samplers: list[str] | str) -> tuple[str, ...]:
    """Returns the sampler steps of names or of letters. Raises RequestError for an unknown one."""
    if len(samplers) > ranges.MAX_SAMPLERS:
        raise RequestError(
            f"samplers has {len(samplers)} steps; {ranges.MAX_SAMPLERS} are the most.",
            param="samplers",
        )
    known = _LETTERS if isinstance(samplers, str) else _NAMES
    for name in samplers:
        if name not in known:
            raise RequestError(
                f"samplers has {name[:40]!r}, which is not served.",
                fix=f"Served: {', '.join(SAMPLERS)}.",
                param="samplers",
            )
    return tuple(known[name] for name in samplers)


_LETTERS = dict(zip("edstkypmx", SAMPLERS, strict=True))
_NAMES = {name: name for name in SAMPLERS} | {
    "top-k": "top_k", "top-p": "top_p", "nucleus": "top_p", "min-p": "min_p", "temp": "temperature",
    "typ": "typ_p", "typ-p": "typ_p", "typical": "typ_p", "typical_p": "typ_p",
    "typical-p": "typ_p", "top-n-sigma": "top_n_sigma",
}  # fmt: skip
"""The served steps, with llama.cpp's other names for them."""


def all_known(samplers: list[str] | str | None) -> bool:
    """Whether all these steps are served; some clients always name further ones."""
    known = _LETTERS if isinstance(samplers, str) else _NAMES
    return all(name in known for name in samplers or ())


def _nearest(name: str, value: Any) -> Any:
    if name not in SAMPLING or name == "seed":
        return value
    range_ = SAMPLING[name]
    if value != value:  # noqa: PLR0124 - no number
        raise RequestError(f"{name} is no number.", param=name)
    return type(value)(min(max(value, range_.low), range_.high))


def _repetition(chain: Chain, chosen: dict[str, Any]) -> dict[str, Any]:
    """Reads the penalties and windows that have more than one name. Raises RequestError."""
    found: dict[str, Any] = {}
    if chain.repeat_penalty is not None:
        found["repetition_penalty"] = chosen.get("repetition_penalty", chain.repeat_penalty)
    elif chain.repetition_penalty is not None:
        found["repetition_penalty"] = chain.repetition_penalty
    penalty = found.get("repetition_penalty", 1.0) or 1.0  # 0 is how some clients write "off"
    if penalty not in SAMPLING["repetition_penalty"]:
        name = "repeat_penalty" if chain.repetition_penalty is None else "repetition_penalty"
        raise RequestError(f"{name} = {penalty} is out of range.", param=name)
    if found:
        found["repetition_penalty"] = penalty
    windows = {
        "penalty_last_n": (
            chain.repeat_last_n if chain.penalty_last_n is None else chain.penalty_last_n
        ),
        "dry_penalty_last_n": chain.dry_penalty_last_n,
    }
    for name, window in windows.items():
        if window is not None:
            found[name] = int(SAMPLING[name].high) if window < 0 else window
    return found


def _breakers(texts: list[str]) -> tuple[str, ...]:
    most, longest = ranges.MAX_BREAKERS, ranges.MAX_BREAKER_CHARS
    if not texts or not ranges.short_breakers(texts):
        raise RequestError(
            f"dry_sequence_breakers must be 1 to {most} texts of 1 to {longest} characters.",
            fix="Leave it out for llama.cpp's own.",
            param="dry_sequence_breakers",
        )
    return tuple(texts)


def _pairs(biases: Biases) -> list[tuple[int | str, float]]:
    """Returns pairs of a token id or a text, and the number to add to its logits."""
    pairs = biases.items() if isinstance(biases, dict) else biases
    return [(_key(key), _bias(key, bias)) for key, bias in pairs]


def _key(key: int | str) -> int | str:
    """Reads a token id, which JSON objects write as text; "-1" raises RequestError."""
    shown = str(key)[:40]
    if isinstance(key, str) and re.fullmatch("-?[0-9]+", key):
        key = int(key) if key == shown else -1  # int() refuses thousands of digits
    if isinstance(key, int) and key not in ranges.TOKEN:
        raise RequestError(f"logit_bias names {shown}, which is no token.", param="logit_bias")
    return key


def _bias(key: int | str, bias: BiasOf) -> float:
    if isinstance(bias, bool):
        if bias:
            raise RequestError(f"logit_bias of {str(key)[:40]!r} is true.", param="logit_bias")
        return -float("inf")
    if bias not in ranges.BIAS:
        raise RequestError(
            f"logit_bias of {str(key)[:40]!r} is {bias}, which is out of range.",
            fix=f"Choose a value from {ranges.BIAS}, or false to forbid it.",
            param="logit_bias",
        )
    return float(bias)


def _of_tokens(biases: Biases) -> dict[int, float]:
    """Returns the bias of each token id; repeated ones are added up, within the range."""
    found: dict[int, float] = {}
    for key, bias in _pairs(biases):
        if isinstance(key, int):
            found[key] = ranges.bias_sum(found.get(key, 0.0), bias)
    return found


def _seed(seed: float) -> int:
    if seed in RANDOM_SEEDS:
        return secrets.randbits(SEED_BITS)
    if not -(2**63) <= seed < 2**64:
        raise RequestError(f"seed = {seed} does not fit 64 bits.", param="seed")
    return int(seed) % 2**64


def refuse_unless(neutral: Mapping[str, tuple[Any, ...]], request: msgspec.Struct) -> None:
    """Raises RequestError for a field that would change the answer and is not served."""
    for name, values in neutral.items():
        if getattr(request, name) not in values:
            raise RequestError(f"{name} is not served.", fix=f"Leave {name} out.", param=name)
