"""Fields of llama-server in a real worker: chains, prompts, caches, reports."""

from __future__ import annotations

import math
from typing import Any

import pytest
from worker_peer import Worker

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Finished, Reading

PROMPT = "hello world, hello world, hello"
PLAIN = SpeculationParams(mode="off")
ALWAYS = SpeculationParams(mode="always")

CHAINS: list[dict[str, Any]] = [
    {"mirostat": 1}, {"mirostat": 2, "mirostat_tau": 2.0}, {"typical_p": 0.5},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05}, {"dynatemp_range": 0.6},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1}, {"top_n_sigma": 1.0},
    {"samplers": ("top_k", "xtc", "temperature"), "xtc_probability": 0.7}, {"min_keep": 3},
]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS, ids=[next(iter(chain)) for chain in CHAINS])
def test_drafts_change_nothing_under_any_chain(worker: Worker, chain: dict[str, Any]) -> None:
    """The same seed gives the same text with and without them, and drafts were used."""
    asked: dict[str, Any] = {"sampling": SamplingParams(seed=5, **chain), "max_tokens": 48}
    plain = worker.one(PROMPT, speculation=PLAIN, **asked)
    fast = worker.one(PROMPT, speculation=ALWAYS, **asked)
    assert fast.tokens == plain.tokens
    assert fast.finished.speculation.drafted > 0


def test_dry_keeps_a_text_from_repeating_itself(worker: Worker) -> None:
    """Greedy, so that nothing else does."""
    greedy = SamplingParams(temperature=0.0, logit_bias=dict.fromkeys(range(97, 100), 60.0))
    plain = worker.one("abcabcabc", sampling=greedy, max_tokens=40)
    dry = SamplingParams(
        temperature=0.0, logit_bias=greedy.logit_bias, dry_multiplier=50.0, dry_penalty_last_n=64
    )
    changed = worker.one("abcabcabc", sampling=dry, max_tokens=40)

    def longest(tokens: list[int]) -> int:
        pairs = ((i, j) for j in range(len(tokens)) for i in range(j))
        return max(_shared(tokens, i, j) for i, j in pairs)

    assert longest(changed.tokens) < longest(plain.tokens)


def _shared(tokens: list[int], one: int, other: int) -> int:
    count = 0
    while other + count < len(tokens) and tokens[one + count] == tokens[other + count]:
        count += 1
    return count


def test_texts_and_tokens_in_a_row_are_one_prompt(worker: Worker) -> None:
    """The same as all of it in tokens."""
    pieces = worker.one(prompt_pieces=[97, "bc", 100], tells_prompt=True, max_tokens=4)
    tokens = worker.one([97, 98, 99, 100], max_tokens=4)
    assert pieces.started is not None
    assert pieces.started.text == "abcd"
    assert pieces.started.prompt == [97, 98, 99, 100]
    assert pieces.tokens == tokens.tokens


def test_a_prompt_is_read_anew_where_that_is_wanted(worker: Worker) -> None:
    """The answer is the same."""
    first = worker.one("x" * 60, max_tokens=4)
    again = worker.one("x" * 60, max_tokens=4)
    anew = worker.one("x" * 60, max_tokens=4, reuse=False)
    assert (first.tokens, again.tokens) == (anew.tokens, anew.tokens)
    assert again.finished.usage.cached_tokens == 59
    assert anew.finished.usage.cached_tokens == 0


def test_prompt_progress_is_reported_on_request(worker: Worker) -> None:
    """From the cached tokens to all of them, never backwards."""
    request = worker.request("y" * 300, max_tokens=2, tells_reading=True)
    worker.send(request)
    events = worker.until(lambda event: isinstance(event, Finished))
    readings = [event for event in events if isinstance(event, Reading)]
    counts = [one.tokens for one in readings]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1]) == (0, 300)
    quiet = worker.request("z" * 300, max_tokens=2)
    worker.send(quiet)
    events = worker.until(lambda event: isinstance(event, Finished))
    assert not any(isinstance(event, Reading) for event in events)


def test_post_sampling_probabilities_are_those_of_the_chain(worker: Worker) -> None:
    """They sum to 1 over all candidates, without the tokens that were cut."""
    sampling = SamplingParams(seed=3, top_k=4, min_p=0.0, top_p=1.0)
    heard = worker.one(PROMPT, sampling=sampling, logprobs=9, after_sampling=True, max_tokens=8)
    entries = [one for delta in heard.deltas for one in delta.logprobs]
    assert len(entries) == 8
    for one in entries:
        assert len(one.top) == 4
        assert math.isclose(sum(math.exp(each.logprob) for each in one.top), 1.0, rel_tol=1e-6)
        assert one.chosen.token in {each.token for each in one.top}


def test_a_bias_of_a_text_is_one_of_its_tokens(worker: Worker) -> None:
    """Forbidden ones never come."""
    wanted = worker.one(PROMPT, biased_texts=[("ab", 900.0)], max_tokens=12)
    assert set(wanted.tokens) <= {97, 98}
    without = worker.one(PROMPT, biased_texts=[("ab", 900.0), ("a", -math.inf)], max_tokens=12)
    assert set(without.tokens) == {98}
    often = worker.one(PROMPT, biased_texts=[("ab", 900.0)] * 9 + [("a", -900.0)], max_tokens=12)
    assert set(often.tokens) == {98}


@pytest.mark.parametrize(("asked", "full"), [(None, True), (8, False), (5000, True)])
def test_an_answer_that_fills_the_context_is_marked(
    worker: Worker, asked: int | None, full: bool
) -> None:
    """Unlike one that its own limit ended."""
    context = worker.ready.context
    sampling = SamplingParams(temperature=0.0, logit_bias={97: 60.0})
    heard = worker.one("a" * (context - 20), sampling=sampling, max_tokens=asked)
    assert heard.finished.reason == "length"
    assert heard.finished.full is full
