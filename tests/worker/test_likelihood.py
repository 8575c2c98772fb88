"""Log probabilities of tokens, and prompts that are only scored, over a real process's socket."""

from __future__ import annotations

import math

import pytest
from worker_peer import Heard, Worker

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Message
from localspec.wire.values import TokenLogprob

PROMPT = "hello world, hello world, hello"
MODES = {mode: SpeculationParams(mode=mode) for mode in ("off", "always")}


def logprobs_of(heard: Heard) -> list[TokenLogprob]:
    """Log probabilities of all tokens, from the deltas."""
    for delta in heard.deltas:
        assert [one.chosen.token for one in delta.logprobs] == delta.tokens
    return [one for delta in heard.deltas for one in delta.logprobs]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_drafting_changes_no_log_probability(worker: Worker, temperature: float) -> None:
    """Of accepted nodes, corrections and bonus tokens, and of their alternatives."""
    sampling = SamplingParams(temperature=temperature, seed=5)
    plain, fast = (
        worker.one(PROMPT, max_tokens=40, sampling=sampling, speculation=mode, logprobs=3)
        for mode in MODES.values()
    )
    assert fast.finished.speculation.accepted > 0
    assert fast.tokens == plain.tokens
    for one, other in zip(logprobs_of(fast), logprobs_of(plain), strict=True):
        assert one.chosen.logprob == pytest.approx(other.chosen.logprob, abs=0.05)
        assert [each.logprob for each in one.top] == pytest.approx(
            [each.logprob for each in other.top], abs=0.05
        )


def test_log_probabilities_are_the_models_own(worker: Worker) -> None:
    """Greedy takes the first alternative; a bias moves the choice and not the numbers."""
    greedy = logprobs_of(worker.one(PROMPT, max_tokens=12, logprobs=4))
    assert greedy
    for one in greedy:
        assert one.top[0] == one.chosen
        logs = [each.logprob for each in one.top]
        assert logs == sorted(logs, reverse=True)
        assert sum(map(math.exp, logs)) <= 1 + 1e-6
    biased = SamplingParams(temperature=0, logit_bias={ord("z"): 200.0})
    moved = logprobs_of(worker.one(PROMPT, max_tokens=1, sampling=biased, logprobs=4))[0]
    assert (moved.chosen.piece, moved.top) == (b"z", greedy[0].top)
    assert moved.chosen.logprob < moved.top[0].logprob
    assert logprobs_of(worker.one(PROMPT, max_tokens=3, logprobs=0))[0].top == []
    assert not any(delta.logprobs for delta in worker.one(PROMPT, max_tokens=3).deltas)


def test_a_prompt_that_is_only_read_is_there_for_the_next_request(worker: Worker) -> None:
    """No text and no token; the echo comes all the same, and what follows finds the prompt."""
    read = worker.one(PROMPT * 3, max_tokens=0, echo=True, client="reader")
    assert (read.text, read.tokens, read.finished.reason) == (PROMPT * 3, [], "length")
    assert read.finished.usage.completion_tokens == 0
    following = worker.one(PROMPT * 3 + " and", max_tokens=2, client="reader")
    assert following.finished.usage.cached_tokens >= read.finished.usage.prompt_tokens - 1


def test_an_answer_goes_on_behind_its_prefill(worker: Worker) -> None:
    """As if the template had ended with it."""
    asked = [Message("user", "hi")]
    plain = worker.one(None, messages=asked, max_tokens=1)
    begun = worker.one(None, messages=asked, prefill="Well, ", max_tokens=8)
    count = begun.finished.usage.prompt_tokens
    assert count == plain.finished.usage.prompt_tokens + len("Well, ")
    again = worker.one(None, messages=asked, prefill="Well, " + begun.text, max_tokens=1)
    assert again.finished.usage.cached_tokens >= count
