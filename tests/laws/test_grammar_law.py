"""Under a grammar speculation goes on: no token changes, and what is forced is drafted free."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from laws.engine_harness import PROMPTS, Harness, finish, output
from laws.policies import FixedDepth
from llguidance import LLMatcher
from numpy.typing import NDArray

from localspec.engine.session import Request
from localspec.engine.simulation import RealHardware
from localspec.engine.speculation.masks import STEP_SECONDS
from localspec.text.constraint import Vocabulary
from localspec.text.thought_limit import Marks, ThoughtLimit
from localspec.types import Constraint, Drafter, SamplingParams, Token

SCHEMA = {
    "type": "object",
    "properties": {"the_answer": {"enum": ["heathen", "thinner"]}, "certain": {"type": "boolean"}},
    "required": ["the_answer", "certain"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


class Slow(RealHardware):
    """Clock that advances only by the cost given to masks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = lambda: self.seconds


@dataclass
class Dear:
    """A grammar whose masks take long."""

    inner: Constraint
    machine: Slow
    seconds: float

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """The grammar's, after a while."""
        self.machine.seconds += self.seconds
        return self.inner.mask(path)

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """The grammar's."""
        return self.inner.forced(path)

    def commit(self, tokens: Sequence[Token]) -> None:
        """The grammar's."""
        self.inner.commit(tokens)


@pytest.fixture(scope="module")
def words(harness: Harness) -> Vocabulary:
    """The tiny target's vocabulary."""
    target = harness.target
    return Vocabulary(target.pieces(), target.eog, target.plain_tokens)


def asked(harness: Harness, words: Vocabulary, prompt: str, sampling: SamplingParams) -> Request:
    """A request for an answer of the schema; a constraint serves one request."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA))
    request = harness.request(prompt, sampling, tokens=80, ignore_eos=False)
    return replace(request, constraint=words.constraint(grammar))


@pytest.mark.parametrize(
    "names", [["grammar"], ["lookup", "grammar", "feature_head"], ["grammar", "model"]]
)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_mask_and_drafts_give_the_tokens_of_plain_decoding(
    harness: Harness, words: Vocabulary, names: list[str], temperature: float
) -> None:
    """At each depth the same JSON; most of the forced text was drafted and kept."""
    sampling = SamplingParams(temperature=temperature, seed=3)
    for prompt in PROMPTS[:2]:
        (plain,) = finish(
            harness.engine({}, FixedDepth(0)), [asked(harness, words, prompt, sampling)]
        )
        text = b"".join(map(harness.target.piece, output(plain)))
        assert set(json.loads(text)) == {"the_answer", "certain"}
        for depth in (1, 4, 15):
            drafters: dict[str, Drafter] = harness.drafters(*names)
            policy = FixedDepth(depth, "model" if "model" in names else None)
            (session,) = finish(
                harness.engine(drafters, policy), [asked(harness, words, prompt, sampling)]
            )
            assert output(session) == output(plain)
            assert session.meter.rounds < plain.meter.rounds
            assert session.meter.sources["grammar"].accepted > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("names", [["grammar"], ["lookup", "feature_head"], ["grammar", "model"]])
def test_a_limit_of_thoughts_and_drafts_give_the_tokens_of_plain_decoding(
    harness: Harness, names: list[str], temperature: float
) -> None:
    """The mark that ends them stands where plain decoding has it, and is drafted free."""
    target, closing = harness.target, "</thinner>"
    marks = Marks(b"<thinner>", closing.encode(), tuple(target.plain_tokens(closing)))

    def thinking(prompt: str) -> Request:
        limit = ThoughtLimit(7, marks, True, target.piece, target.n_vocab)
        sampling = SamplingParams(temperature=temperature, seed=3)
        return replace(harness.request(prompt, sampling, tokens=40), constraint=limit)

    for prompt in PROMPTS[:2]:
        (plain,) = finish(harness.engine({}, FixedDepth(0)), [thinking(prompt)])
        text = b"".join(map(target.piece, output(plain)))
        assert closing.encode() in text[: 7 * 8 + len(closing)]
        for depth in (1, 4, 15):
            policy = FixedDepth(depth, "model" if "model" in names else None)
            engine = harness.engine(harness.drafters(*names), policy)
            (session,) = finish(engine, [thinking(prompt)])
            assert output(session) == output(plain)
            if names == ["grammar"]:
                assert session.meter.sources["grammar"].accepted > 0


@pytest.mark.parametrize("seconds", [0.001, 0.012, 0.2])
def test_slow_grammar_masks_limit_a_draft(
    harness: Harness, words: Vocabulary, seconds: float
) -> None:
    """A step computes only as many masks as other sessions can wait for; the answer is the same."""
    greedy, machine = SamplingParams(temperature=0), Slow()
    request = asked(harness, words, PROMPTS[0], greedy)
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
    again = asked(harness, words, PROMPTS[0], greedy)
    assert again.constraint is not None
    dear = replace(again, constraint=Dear(again.constraint, machine, seconds))
    engine = harness.engine(harness.drafters("grammar"), FixedDepth(15), place=machine)
    session, longest = engine.admit(dear), 0.0
    while session.finish is None:
        began = machine.seconds
        engine.step()
        longest = max(longest, machine.seconds - began)
    engine.retire(session)
    assert output(session) == output(plain)
    assert longest <= STEP_SECONDS + seconds + 1e-9
    assert (session.meter.drafted > 0) == (seconds < STEP_SECONDS)
