"""Under a grammar speculation goes on: no token changes, and what is forced is drafted free."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from laws.house import PROMPTS, House, finish, output
from laws.policies import FixedDepth
from llguidance import LLMatcher

from localspec.engine.session import Request
from localspec.text.constraint import Vocabulary
from localspec.types import Drafter, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {"the_answer": {"enum": ["heathen", "thinner"]}, "certain": {"type": "boolean"}},
    "required": ["the_answer", "certain"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


@pytest.fixture(scope="module")
def words(house: House) -> Vocabulary:
    """The tiny target's vocabulary."""
    target = house.target
    return Vocabulary(target.n_vocab, target.piece, target.eog, target.plain_tokens)


def asked(house: House, words: Vocabulary, prompt: str, sampling: SamplingParams) -> Request:
    """A request for an answer of the schema; a constraint serves one request."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA))
    request = house.request(prompt, sampling, tokens=80, ignore_eos=False)
    return replace(request, constraint=words.constraint(grammar))


@pytest.mark.parametrize("names", [["grammar"], ["lookup", "grammar"], ["grammar", "model"]])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_mask_and_drafts_give_the_tokens_of_plain_decoding(
    house: House, words: Vocabulary, names: list[str], temperature: float
) -> None:
    """At each depth the same JSON; most of the forced text was drafted and kept."""
    sampling = SamplingParams(temperature=temperature, seed=3)
    for prompt in PROMPTS[:2]:
        (plain,) = finish(house.engine({}, FixedDepth(0)), [asked(house, words, prompt, sampling)])
        text = b"".join(map(house.target.piece, output(plain)))
        assert set(json.loads(text)) == {"the_answer", "certain"}
        for depth in (1, 4, 15):
            drafters: dict[str, Drafter] = house.drafters(*names)
            policy = FixedDepth(depth, "model" if "model" in names else None)
            (session,) = finish(
                house.engine(drafters, policy), [asked(house, words, prompt, sampling)]
            )
            assert output(session) == output(plain)
            assert session.meter.rounds < plain.meter.rounds
            assert session.meter.sources["grammar"].accepted > 0
