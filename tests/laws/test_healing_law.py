"""A half-typed word constrains the first tokens of an answer, with any drafter, and none later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from laws.engine_harness import PROMPTS, Harness, finish, output
from laws.policies import FixedDepth

from localspec.engine.session import Request
from localspec.text.healing import SortedVocabulary, TokenHealing
from localspec.types import SamplingParams, SpeculationParams, VerificationRule

TYPED = "t"
"""With which "t" and "th" begin."""
PLAIN = FixedDepth(0)


@pytest.fixture(scope="module")
def words(harness: Harness) -> SortedVocabulary:
    """The tiny target's vocabulary."""
    return SortedVocabulary(
        [harness.target.piece(token) for token in range(harness.target.n_vocab)]
    )


def asked(
    harness: Harness, words: SortedVocabulary, prompt: str, sampling: SamplingParams
) -> Request:
    """A request for an answer that begins as typed; a constraint serves one request."""
    return replace(harness.request(prompt, sampling), constraint=TokenHealing(TYPED, words))


@pytest.mark.parametrize(
    "names", [["lookup"], ["model"], ["lookup", "grammar", "feature_head", "model"]]
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_of_a_held_beginning_give_the_tokens_of_none(
    harness: Harness, words: SortedVocabulary, names: list[str], temperature: float
) -> None:
    """At each depth; the bytes that were typed come first."""
    sampling = SamplingParams(temperature=temperature, seed=3)
    for prompt in (PROMPTS[0], f"{PROMPTS[1]} {TYPED} {TYPED}"):
        (plain,) = finish(harness.engine({}, PLAIN), [asked(harness, words, prompt, sampling)])
        text = b"".join(map(harness.target.piece, output(plain)))
        assert text.startswith(TYPED.encode())
        for depth in (1, 4, 15):
            policy = FixedDepth(depth, "model" if "model" in names else None)
            engine = harness.engine(harness.drafters(*names), policy)
            (session,) = finish(engine, [asked(harness, words, prompt, sampling)])
            assert output(session) == output(plain)
            assert session.meter.drafted > 0


@pytest.mark.parametrize("verify", ["coupled", "rejection"])
def test_a_draft_that_is_judged_may_write_nothing_else(
    harness: Harness, words: SortedVocabulary, verify: VerificationRule
) -> None:
    """By either rule, whatever the noise."""
    for seed in range(8):
        sampling = SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        request = asked(harness, words, PROMPTS[0], sampling)
        request = replace(request, speculation=SpeculationParams(mode="always", verify=verify))
        engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(4, "model"))
        (session,) = finish(engine, [request])
        text = b"".join(map(harness.target.piece, output(session)))
        assert text.startswith(TYPED.encode())


def test_an_answer_behind_the_typed_text_equals_that_after_reading_it(
    harness: Harness, words: SortedVocabulary
) -> None:
    """Greedy or sampled: the same probabilities, positions and preceding tokens."""
    for temperature in (0.0, 0.8):
        sampling = SamplingParams(temperature=temperature, seed=5)
        request = asked(harness, words, PROMPTS[0], sampling)
        (held,) = finish(harness.engine({}, PLAIN), [request])
        said, count = output(held), 0
        while not b"".join(map(harness.target.piece, said[:count])).startswith(TYPED.encode()):
            count += 1
        read = harness.request([*request.prompt, *said[:count]], sampling, tokens=40 - count)
        (free,) = finish(harness.engine({}, PLAIN), [read])
        assert output(free) == said[count:]
