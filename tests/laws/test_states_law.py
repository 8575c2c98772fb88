"""Models whose memory is a state: speculation changes no token, with any drafter or reuse.

A recurrent and a hybrid model, each with rows of one class that was probed, and with any rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recurrent
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth, Foretelling
from laws.test_interference_law import INCIDENT, Incident, Interference, asked
from laws.test_lossless import CHAINS
from laws.test_rejection_law import CASES, answers, assert_fair

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.session import Request
from localspec.errors import ModelError
from localspec.types import Floats, Row, Token
from localspec.worker import train_head

KINDS = {"mamba": recurrent.mamba, "lfm2": recurrent.lfm2}
DEEP = 12


@pytest.fixture(
    scope="module",
    params=[(kind, strict) for kind in KINDS for strict in (True, False)],
    ids=lambda param: f"{param[0]}-{'strict' if param[1] else 'standard'}",
)
def states(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A target with states, and a draft with cells."""
    kind, strict = request.param
    folder = tmp_path_factory.mktemp(kind)
    target, draft = KINDS[kind](folder / "target.gguf"), tiny.build(folder / "draft.gguf")
    alone = Placement(threads=1)
    with opened(target, draft, alone, slots=SLOTS, context=CONTEXT, strict=strict) as found:
        assert (found.shape.rollback, found.shape.bitwise) == ("restore", True)
        yield found


class Erring(Foretelling):
    """Errs at each depth of a draft in turn, or never."""

    name = "erring"
    _drafts = 0

    def spoilt(self, tokens: list[Token], budget: int) -> list[Token]:
        """One of them is wrong."""
        self._drafts += 1
        wrong = self._drafts % (1 + budget)
        tokens[wrong : wrong + 1] = [(token + 1) % 250 for token in tokens[wrong : wrong + 1]]
        return tokens


def alone(harness: Harness, requests: list[Request]) -> list[list[Token]]:
    """The answers of plain decoding, each by an engine that holds nothing else."""
    return [output(finish(harness.engine({}, FixedDepth(0)), [each])[0]) for each in requests]


@pytest.mark.parametrize("chain", CHAINS)
def test_drafts_change_no_token(states: Harness, chain: str) -> None:
    """Alone and beside others, rejected and accepted at every depth: tokens of plain decoding."""
    requests = asked(states, chain)
    plain = alone(states, requests)
    requests = [
        replace(request, prediction=answer) for request, answer in zip(requests, plain, strict=True)
    ]
    drafted = accepted = 0
    for count, depth in ((1, 3), (1, DEEP), (SLOTS, 2), (SLOTS, DEEP)):
        drafters = {"erring": Erring(), **states.drafters("lookup")}
        sessions = finish(states.engine(drafters, FixedDepth(depth)), requests[:count])
        assert [output(session) for session in sessions] == plain[:count]
        drafted += sum(session.meter.drafted for session in sessions)
        accepted += sum(session.meter.accepted for session in sessions)
    assert 0 < accepted < drafted


def test_states_are_shown_of_the_forwards_that_decode(states: Harness) -> None:
    """Showing them changes no bit, and a head may learn from them; elsewhere there are none.

    llama.cpp reads a hybrid otherwise where all rows become outputs, which one edit keeps it from.
    """
    memory = states.memory
    rows = [Row(65 + at, at, 0, wants_logits=True) for at in range(4)]
    memory.truncate(0, 0)
    plain = memory.decode(rows).logits.copy()
    memory.truncate(0, 0)
    assert memory.show() == ours.states
    logits, shown, _ = memory.decode(rows)
    assert np.array_equal(logits, plain)
    assert (shown is not None) == ours.states
    memory.truncate(0, 0)
    texts = train_head.listen(memory, iter([[65, 66]] * 9), 8, states.target.eog, longest=4)
    if not ours.states:
        with pytest.raises(ModelError, match="states"):
            next(texts)
        return
    assert all(text.states for text in texts)
    for slot in range(memory.n_slots):
        memory.truncate(slot, 0)


def test_a_rejection_reads_no_more_again_than_was_accepted(states: Harness) -> None:
    """And what was accepted as a whole is not read again at all."""
    request = states.request(PROMPTS[0], CHAINS["greedy"])
    policy, (answer,) = FixedDepth(4), alone(states, [request])
    engine = states.engine({"erring": Erring()}, policy)
    session = engine.admit(replace(request, prediction=answer))
    again = 0
    while session.finish is None:
        engine.step()
        if (judged := policy.rounds[-1:]) and judged[0].judged and session.n_output > 1:
            verified = judged[0].judged[0]
            rejected = verified.accepted < len(verified.draft)
            assert session.tail == 1 + (1 + verified.accepted) * rejected
            again += rejected
    engine.retire(session)
    assert again


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chain=st.sampled_from(sorted(CHAINS)), incidents=st.lists(INCIDENT, max_size=5))
def test_no_interference_changes_a_token(
    states: Harness, chain: str, incidents: list[Incident]
) -> None:
    """Cancels, crashes, settings and new memory between steps; also with model drafts."""
    plain = alone(states, asked(states, chain))
    with ExitStack() as stack:
        interference = Interference(states, stack, ("lookup",), 4)
        interference.run(asked(states, chain), incidents)
        interference.assert_answered(plain)


@pytest.mark.parametrize("chain", ["greedy", "penalties"])
def test_a_prompt_that_leaves_an_earlier_one_goes_on_from_its_copy(
    states: Harness, chain: str
) -> None:
    """The copy was made before the last rows of that prompt: what stands before is not read."""
    first, last = [*range(40, 110)], [*range(40, 70), *range(150, 170)]
    turns = [
        (0, first),
        (64, [*first[:66], *range(60, 80)]),
        (64, [*first[:65], *range(150, 160)]),
        (0, last),
        (32, last[:-2]),
    ]
    requests = [states.request(prompt, CHAINS[chain], tokens=20) for _, prompt in turns]
    plain = alone(states, requests)
    engine = states.engine(states.drafters("lookup"), FixedDepth(5), prefill_rows=32)
    for request, (held, _), answer in zip(requests, turns, plain, strict=True):
        (session,) = finish(engine, [request])
        assert (session.cached_tokens, output(session)) == (held, answer)


def test_rejection_draws_from_the_targets_law(states: Harness) -> None:
    """Token by token, with drafts by lookup."""
    if states.memory.streams:  # forwards of other rows have the same law
        assert_fair(states, answers(states, CASES["lookup"]))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_comes_back_bit_by_bit(kind: str, streams: bool, tmp_path: Path) -> None:
    """To the latest copy that is not too late, also in a larger context; else to nothing."""
    model = Model.load(KINDS[kind](tmp_path / "model.gguf"))
    memory = Context.open(
        model, Placement(threads=1), slots=2, context=512, rows=64,
        streams=streams, cells=512, most_cells=1024,
    )  # fmt: skip
    tokens = np.random.default_rng(1).integers(0, 250, 400).tolist()

    def read(start: int, end: int, slot: int = 0) -> Floats:
        rows = [Row(tokens[at], at, slot, wants_logits=True) for at in range(start, end)]
        return memory.decode(rows).logits.copy()

    assert memory.find_rollback() == "restore"
    early = read(0, 40)
    memory.checkpoint(0, lasting=True)
    middle = read(40, 50)
    memory.checkpoint(0)
    late = read(50, 55)
    for start in range(0, 300, 50):  # a cache of 512 cells becomes too small
        read(start, start + 50, slot=1)
    assert memory.truncate(0, 55) == 55
    assert memory.truncate(0, 53) == memory.length(0) == 50
    assert (read(50, 55) == late).all()
    memory.checkpoint(0)
    assert memory.truncate(0, 49) == memory.length(0) == 40
    assert (read(40, 50) == middle).all()
    assert memory.truncate(0, 39) == memory.length(0) == 0
    assert (read(0, 40) == early).all()
    assert memory.truncate(0, 39) == 0
    assert memory.held == [0, 300]
    for each in (memory, model):
        each.close()
