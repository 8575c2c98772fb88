"""The controller observes only rounds of decoding. Real llama.cpp."""

from __future__ import annotations

import pytest
from laws.engine_harness import Harness
from laws.policies import FixedDepth

from localspec.types import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@pytest.mark.parametrize("length", [2, 9, 15, 40])
def test_a_round_that_read_a_prompt_teaches_nothing(harness: Harness, length: int) -> None:
    """However short the prompt is: its rows are not those of the drafts beside it."""
    policy = FixedDepth(2)
    engine = harness.engine(harness.drafters("lookup"), policy)
    engine.admit(harness.request("hello hello hello", GREEDY, tokens=400))
    while not engine.sessions[0].decoding:
        engine.step()
    engine.step()
    assert len(policy.rounds) == 1

    engine.admit(harness.request([70] * length, GREEDY, tokens=400, client="other"))
    while not engine.sessions[1].decoding:
        engine.step()
        assert len(policy.rounds) == 1
    engine.step()

    assert len(policy.rounds) == 2
    for session in list(engine.sessions):
        engine.retire(session)
