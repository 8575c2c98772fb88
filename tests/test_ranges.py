"""Laws of the one table of ranges: every door has it, and what it lets through can be sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localspec import config, ranges
from localspec.config import Config
from localspec.engine.sampling import Purpose, Sampler
from localspec.errors import LocalSpecError
from localspec.ranges import SAMPLING
from localspec.types import Floats, SamplingParams, SpeculationParams
from localspec.wire.messages import Generate
from localspec.worker import limits
from localspec_daemon.api import openai
from localspec_daemon.api.dialect import Caller

WHOLE = {field.name for field in msgspec.structs.fields(SamplingParams) if field.type is int}
FOLDED = {("api", "top_k"), ("api", "seed"), ("api", "dry_penalty_last_n")}
"""Where -1 is what other servers' clients write for "no limit" and "any"."""


def by_config(name: str, value: float) -> None:
    """A default in config.toml."""
    config.parse(f"[sampling]\n{name} = {value!r}")


def by_api(name: str, value: float) -> None:
    """A field of a body."""
    openai.completion(msgspec.json.encode({"prompt": "x", name: value}), Config(), Caller("uid:1"))


def by_worker(name: str, value: float) -> None:
    """A request as it crosses to the worker."""
    sampling = msgspec.convert({name: value}, SamplingParams)
    request = Generate("1", "completion", "c", sampling, SpeculationParams(), prompt="x")
    limits.check(request, n_vocab=262, drafters=[])


DOORS: dict[str, Callable[[str, float], None]] = {
    "config": by_config, "api": by_api, "worker": by_worker,
}  # fmt: skip


def beyond(name: str) -> Iterator[float]:
    """The nearest numbers that are out of a range."""
    range_ = SAMPLING[name]
    if name in WHOLE:
        yield from (int(range_.low) - 1, int(range_.high) + 1)
    else:
        yield from (math.nextafter(range_.low, -math.inf), math.nextafter(range_.high, math.inf))


def test_every_number_of_the_sampler_is_in_the_table() -> None:
    """Those added later included; a bias has rows of its own."""
    names = {field.name for field in msgspec.structs.fields(SamplingParams)}
    assert set(SAMPLING) == names - {"logit_bias", "samplers", "dry_sequence_breakers"}
    assert all(getattr(SamplingParams(), name) in range_ for name, range_ in SAMPLING.items())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", SAMPLING)
def test_each_door_lets_through_what_is_in_range_and_nothing_else(door: str, name: str) -> None:
    """Config, API and worker agree to the last bit, and name what they refuse."""
    enter = DOORS[door]
    for value in (SAMPLING[name].low, SAMPLING[name].high):
        enter(name, value)
    for value in beyond(name):
        if (door, name) in FOLDED and value < 0:
            enter(name, value)
            continue
        with pytest.raises(LocalSpecError) as caught:
            enter(name, value)
        assert caught.value.param in {name, f"sampling.{name}"}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_has_the_same_biases(door: str) -> None:
    """The borders pass; beyond them nothing does, nor a token that no model can have."""
    lines = [{0: ranges.BIAS.low}, {0: ranges.BIAS.high}]
    for bias in lines:
        _enter_biases(door, bias)
    beyond_ = math.nextafter(ranges.BIAS.high, math.inf)
    for bias in ({0: beyond_}, {0: -beyond_}, {-1: 0.0}, {2**31: 0.0}):
        with pytest.raises(LocalSpecError) as caught:
            _enter_biases(door, bias)
        assert "logit_bias" in str(caught.value.param)


def _enter_biases(door: str, biases: dict[int, float]) -> None:
    if door == "config":
        table = ", ".join(f"{token} = {bias!r}" for token, bias in biases.items())
        config.parse(f"[sampling]\nlogit_bias = {{{table}}}")
        return
    named: Any = {str(key): bias for key, bias in biases.items()} if door == "api" else biases
    DOORS[door]("logit_bias", named)


@pytest.mark.parametrize("door", ["api", "worker"])
@pytest.mark.parametrize(
    ("stops", "pass_"),
    [
        (["é" * (ranges.MAX_STOP_BYTES // 2)] * ranges.MAX_STOPS, True),
        (["x" * (ranges.MAX_STOP_BYTES + 1)], False),
        (["é" * (ranges.MAX_STOP_BYTES // 2 + 1)], False),
        (["x"] * (ranges.MAX_STOPS + 1), False),
    ],
)
def test_stop_strings_are_counted_in_bytes_at_each_door(
    door: str, stops: list[str], *, pass_: bool
) -> None:
    """A character may have four of them; what the API takes the worker takes."""

    def enter() -> None:
        if door == "api":
            openai.completion(
                msgspec.json.encode({"prompt": "x", "stop": stops}), Config(), Caller("uid:1")
            )
        else:
            ranges.check_stops(stops)

    if pass_:
        enter()
        return
    with pytest.raises(LocalSpecError) as caught:
        enter()
    assert caught.value.param == "stop"


def _numbers(name: str) -> st.SearchStrategy[float]:
    low, high = SAMPLING[name].low, SAMPLING[name].high
    if name in WHOLE:
        return st.integers(int(low), int(high))
    return st.floats(low, high)


LOGITS = arrays(np.float32, st.sampled_from([1, 3, 200]), elements=st.floats(-1e6, 1e6, width=32))


@given(
    LOGITS,
    st.fixed_dictionaries({name: _numbers(name) for name in SAMPLING}),
    st.dictionaries(st.just(0), st.floats(ranges.BIAS.low, ranges.BIAS.high)),
    st.integers(0, 2**22),
)
@example(
    np.array([30, 20, 10], dtype=np.float32),
    {"temperature": 5e-324, "top_k": 0, "min_p": 0.0},
    {},
    0,
)
@example(
    np.array([-30, -20, -10], dtype=np.float32),
    {"temperature": 1e-310, "top_k": 2, "min_p": 0.0},
    {},
    0,
)
@example(
    np.array([1e6, 1e6], dtype=np.float32),
    {"temperature": 1e-310, "top_p": 0.0, "min_p": 1.0},
    {},
    0,
)
@example(
    np.array([1, 0], dtype=np.float32),
    {"temperature": 5e-324, "top_k": 0, "min_p": 0.0, "top_p": 1.0, "min_keep": 2},
    {},
    0,
)
def test_whatever_is_in_range_has_a_law(
    logits: Floats, numbers: dict[str, Any], biases: dict[int, float], position: int
) -> None:
    """A normalised one over tokens that exist, for any finite logits; drawing gives one of them."""
    sampler = Sampler(SamplingParams(**numbers, logit_bias=biases))
    recent = [0, logits.size - 1] * 3

    law = sampler.law(logits, recent, [0], 1)

    assert np.isclose(np.exp(law.logp).sum(), 1)
    assert len({*law.tokens.tolist()}) == law.tokens.size
    assert set(law.tokens.tolist()) <= set(range(logits.size))
    assert sampler.draw(law, position, Purpose.TOKEN) in law.tokens
    assert sampler.pick(logits, recent, [0], position) in law.tokens
    warmest = sampler.params.temperature + sampler.params.dynatemp_range
    if warmest < 1e-300 and not (sampler.looks_back or biases):
        # no two tokens that differ are near each other; min_keep may keep one of no probability
        drawn = logits[law.tokens[np.exp(law.logp) > 0]]
        assert (drawn == drawn[0]).all()
