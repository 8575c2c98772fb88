"""Laws of the last check before native code: every number has a range, every error a field."""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
import pytest

from localspec import ranges
from localspec.errors import RequestError, TooLarge
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Generate, Message
from localspec.worker import limits

VOCABULARY = 262


def request(**changes: Any) -> Generate:
    """A request that is fine but for `changes`."""
    fine: dict[str, Any] = {
        "id": "1",
        "endpoint": "completion",
        "client": "c",
        "sampling": SamplingParams(),
        "speculation": SpeculationParams(),
        "prompt": "hello",
    }
    return Generate(**{**fine, **changes})


def check(**changes: Any) -> None:
    """Check such a request."""
    limits.check(request(**changes), n_vocab=VOCABULARY, drafters=["lookup", "model"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt": None, "messages": [Message("user", "")]},
        {"prompt": None, "prompt_tokens": [0, VOCABULARY - 1]},
        {"max_tokens": 1, "stop": ["x" * ranges.MAX_STOP_BYTES] * ranges.MAX_STOPS},
        {"speculation": SpeculationParams(drafters=["model"], max_draft=0)},
        {"response_format": {"type": "json_object"}},
        {"ignore_eos": True, "response_format": {"type": "text"}},
        {
            "sampling": SamplingParams(
                0, 0, 0, 0, 0.01, -2, 2, 0, logit_bias={0: -1000}, seed=(1 << 64) - 1
            )
        },
    ],
)
def test_values_at_the_limits_are_accepted(changes: dict[str, Any]) -> None:
    """The smallest and the largest value of every field."""
    check(**changes)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": None}, None),
        ({"prompt_tokens": [1]}, None),
        ({"prompt": None, "messages": []}, "messages"),
        ({"prompt": None, "prompt_tokens": [1, VOCABULARY]}, "prompt"),
        ({"prompt": None, "prompt_tokens": [-1]}, "prompt"),
        ({"prompt": None, "prompt_tokens": [(1 << 31) - 1]}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["é" * (ranges.MAX_STOP_BYTES // 2 + 1)]}, "stop"),
        ({"stop": ["x"] * (ranges.MAX_STOPS + 1)}, "stop"),
        ({"speculation": SpeculationParams(drafters=["oracle"])}, "speculation.drafters"),
        ({"speculation": SpeculationParams(max_draft=65)}, "speculation.max_draft"),
        ({"speculation": SpeculationParams(max_draft=-1)}, "speculation.max_draft"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "ignore_eos"),
    ],
)
def test_a_request_out_of_bounds_is_refused_with_its_field(
    changes: dict[str, Any], param: str | None
) -> None:
    """Every value out of range is refused, and the error names the field."""
    with pytest.raises(RequestError) as caught:
        check(**changes)
    assert caught.value.param == param


@pytest.mark.parametrize("gap", [" ", "x"])
def test_the_longest_word_is_found_in_one_walk(gap: str) -> None:
    """Four megabytes of words that are nearly too long, of letters or of blanks."""
    letter = "x" if gap == " " else " "
    fine = (letter * limits.MAX_WORD_CHARS + gap) * 20
    began = time.process_time()
    limits.check_text(fine)
    with pytest.raises(TooLarge):
        limits.check_text(fine + letter * (limits.MAX_WORD_CHARS + 1))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (field.name, value)
            for field in msgspec.structs.fields(SamplingParams)
            if field.name in ranges.SAMPLING
            for value in (-300, 1 << 70, math.nan, math.inf)
        ),
        ("samplers", ("top_k", "infill")),
        ("samplers", ("top_k",) * (ranges.MAX_SAMPLERS + 1)),
        ("dry_sequence_breakers", ("",)),
        ("dry_sequence_breakers", ("x" * (ranges.MAX_BREAKER_CHARS + 1),)),
        ("dry_sequence_breakers", ("x",) * (ranges.MAX_BREAKERS + 1)),
        ("logit_bias", {VOCABULARY: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {0: math.nan}),
        ("logit_bias", {0: 1e6}),
        ("logit_bias", dict.fromkeys(range(ranges.MAX_BIASES + 1), 1.0)),
    ],
)
def test_every_number_of_the_sampler_has_a_range(name: str, value: Any) -> None:
    """Each field of the sampler, those added later included, refuses absurd numbers and NaN."""
    with pytest.raises(RequestError) as caught:
        check(sampling=SamplingParams(**{name: value}))
    assert caught.value.param == name


def test_an_echo_may_not_fill_a_frame() -> None:
    """Tokens and their alternatives together are bounded; without an echo there are none."""
    few, many = 1000, 50_000
    for count, tokens in ((0, many), (20, few)):
        limits.check_scores(request(echo=True, logprobs=count), tokens)
    limits.check_scores(request(logprobs=20), many)
    with pytest.raises(RequestError, match="alternatives"):
        limits.check_scores(request(echo=True, logprobs=20), many)
