"""Prompts that come back with what the target thought of them, from a real process."""

from __future__ import annotations

import math

import pytest
from worker_peer import Heard, Worker

from localspec.types import SamplingParams
from localspec.wire.messages import Cancel, Started
from localspec.wire.values import TokenLogprob

PROMPT = [*b"hello world", 261, *b" hello"]
"""With a control token in it."""


def echoed(heard: Heard) -> list[TokenLogprob]:
    """Log probabilities of the prompt: all in the first delta, with its text."""
    return heard.deltas[0].logprobs


def forced(worker: Worker, before: list[int], token: int) -> TokenLogprob:
    """Log probability of a token behind others, by a plain forward that is forced to choose it."""
    sampling = SamplingParams(temperature=0, logit_bias={token: 1000.0})
    heard = worker.one(before, max_tokens=1, sampling=sampling, logprobs=3, ignore_eos=True)
    return heard.deltas[0].logprobs[0]


@pytest.mark.parametrize("max_tokens", [0, 3])
def test_prompt_logprobs_equal_those_of_plain_forwards(worker: Worker, max_tokens: int) -> None:
    """Each token by a forward over those before it; the first has none."""
    heard = worker.one(PROMPT, max_tokens=max_tokens, echo=True, logprobs=3)
    first, *rest = echoed(heard)
    assert [first.chosen.token, *(one.chosen.token for one in rest)] == PROMPT
    assert math.isnan(first.chosen.logprob)
    assert first.top == []
    for place, one in enumerate(rest, 1):
        alone = forced(worker, PROMPT[:place], PROMPT[place])
        assert one.chosen.logprob == pytest.approx(alone.chosen.logprob, abs=0.05)
        assert [each.logprob for each in one.top] == pytest.approx(
            [each.logprob for each in alone.top], abs=0.05
        )
    assert b"".join(one.chosen.piece for one in echoed(heard)) == b"hello world<|im_end|> hello"
    answer = [one for delta in heard.deltas[1:] for one in delta.logprobs]
    assert [one.chosen.token for one in answer] == heard.tokens
    assert len(answer) == max_tokens


def test_an_echo_reports_no_cached_tokens(worker: Worker) -> None:
    """Although the next request finds its prompt in the cache."""
    asked = worker.one("a text of its own", max_tokens=1, echo=True, logprobs=0, client="echo")
    again = worker.one("a text of its own", max_tokens=1, client="echo")
    assert asked.finished.usage.cached_tokens == 0
    assert asked.finished.timings.prompt_ms > again.finished.timings.prompt_ms
    assert again.finished.usage.cached_tokens == again.finished.usage.prompt_tokens - 1
    assert (asked.tokens, asked.text.startswith("a text of its own")) == (again.tokens, True)


def test_an_echo_waits_for_a_slot_and_shares_steps(worker: Worker) -> None:
    """Beside other requests it gives the same, and they answer as if alone."""
    requests = [worker.request(f"{each} and on", max_tokens=24) for each in "abcdef"]
    alone = [worker.answer(one)[0] for one in requests]
    before = worker.one(PROMPT, max_tokens=0, echo=True, logprobs=1)
    echo = worker.request(PROMPT, max_tokens=0, echo=True, logprobs=1)
    *together, last = worker.answer(
        *(worker.request(one.prompt, max_tokens=24) for one in requests), echo
    )
    assert [len(one.tokens) for one in together] == [len(one.tokens) for one in alone]
    assert [one.chosen.logprob for one in echoed(last)][1:] == pytest.approx(
        [one.chosen.logprob for one in echoed(before)][1:], abs=0.05
    )


def test_an_echo_can_be_cancelled_before_and_after_its_prompt_was_read(worker: Worker) -> None:
    """Its last event comes, and its slot is free for the next one."""
    for wait in (False, True):
        echo = worker.request(PROMPT * 8, max_tokens=300, echo=True, logprobs=2, ignore_eos=True)
        worker.send(echo)
        if wait:
            worker.until(lambda event: isinstance(event, Started))
        worker.send(Cancel(echo.id))
        (heard,) = worker.collect(echo.id)
        assert heard.finished.reason == "cancelled"
    assert worker.idle().active == 0
