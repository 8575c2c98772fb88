"""How many rows a forward has, and in what steps a draft model reads, changes no token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pytest
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Padding

from localspec.drafters.model import ModelDrafter
from localspec.engine.sampling import Sampler
from localspec.types import Draft, DraftRequest, SamplingParams, Signal, SpeculationParams, Token

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
}
DEPTH = 6


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _drafter(harness: Harness) -> ModelDrafter:
    drafter = harness.drafters("model")["model"]
    assert isinstance(drafter, ModelDrafter)
    return drafter


def _rounds(
    harness: Harness, text: list[Token], chain: str, read: int
) -> Iterator[tuple[Draft, int]]:
    """Each draft, and what is pending after it, until one is complete."""
    drafter = _drafter(harness)
    session = drafter.open(0, text, Sampler(CHAINS[chain]))
    pending = session.pending + 1
    while session.pending < pending:
        pending = session.pending
        (draft,) = drafter.propose([DraftRequest(session, Draft(), DEPTH, _always, read=read)])
        yield draft, session.pending
        if draft:
            break
    session.close()


@pytest.mark.parametrize("read", [1, 5, 16])
def test_no_more_is_read_in_a_round_than_the_plan_says(harness: Harness, read: int) -> None:
    """Nothing is drafted before all of it is read, and then what would have been at once."""
    text = harness.request(PROMPTS[3], CHAINS["greedy"]).prompt
    ((at_once, _),) = _rounds(harness, text, "greedy", 256)
    rounds = list(_rounds(harness, text, "greedy", read))
    assert len(rounds) == -(-len(text) // read)
    left = len(text)
    for draft, pending in rounds[:-1]:
        assert not draft
        assert left - pending == read
        left = pending
    assert rounds[-1][0].tokens == at_once.tokens


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("read", [256, 20, 3, 1])
def test_however_the_draft_reads_the_answer_is_plains(
    harness: Harness, chain: str, read: int
) -> None:
    """One session and several, which read in the same forwards."""
    requests = [harness.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [output(session) for session in finish(harness.engine({}, FixedDepth(0)), requests)]
    for count in (1, SLOTS):
        policy = FixedDepth(DEPTH, "model", read=read)
        sessions = finish(harness.engine(harness.drafters("model"), policy), requests[:count])
        assert [output(session) for session in sessions] == plain[:count]
        assert read == 1 or sum(session.meter.accepted for session in sessions) > 0
        for round_ in policy.rounds:
            for drafted in round_.drafted:
                assert drafted.pending <= count * read


VERIFY: tuple[Literal["coupled", "rejection"], ...] = ("coupled", "rejection")


@pytest.mark.parametrize("verify", VERIFY)
@pytest.mark.parametrize("chain", CHAINS)
def test_rows_that_only_fill_a_forward_change_no_token(
    harness: Harness, chain: str, verify: Literal["coupled", "rejection"]
) -> None:
    """As many as chance has it, for one session and several; what they wrote is forgotten."""
    wish = SpeculationParams(mode="always", verify=verify)
    step = harness.shape.multiple  # rows of another class could have other bits
    requests = [harness.request(prompt, CHAINS[chain], speculation=wish) for prompt in PROMPTS]
    for count in (1, SLOTS):
        for depth in (0, 5):
            runs = []
            padding = Padding(depth, "model", step=step)
            for policy in (FixedDepth(depth, "model"), padding):
                drafters = harness.drafters("lookup", "model") if depth else {}
                engine = harness.engine(drafters, policy)
                sessions = finish(engine, requests[:count])
                runs.append([(output(session), session.meter.drafted) for session in sessions])
                for slot, tokens in engine.held():
                    assert harness.memory.length(slot) == len(tokens)
            assert runs[0] == runs[1]
            assert padding.added > 0
            assert any(round_.rows > count * (1 + depth) for round_ in padding.rounds)


@pytest.mark.parametrize("chain", CHAINS)
def test_padding_rows_cost_no_token_at_the_end_of_the_context(harness: Harness, chain: str) -> None:
    """Answers reach the last cell as without padding, in any order of the batch.

    No remembered text is forgotten for padding.
    """
    room = harness.engine({}, FixedDepth(0)).context
    prompt = (harness.request(PROMPTS[0], CHAINS[chain]).prompt * 100)[: room - 30]
    requests = [
        harness.request(prompt, CHAINS[chain], tokens=100),
        harness.request(PROMPTS[1], CHAINS[chain], tokens=100),
    ]
    for asked in (requests[:1], requests, requests[::-1]):
        plain = finish(harness.engine({}, FixedDepth(0)), asked)
        policy = Padding(4, "model", step=harness.shape.multiple, most=2 * CONTEXT)
        engine = harness.engine(harness.drafters("lookup", "model"), policy)
        (earlier,) = finish(engine, [harness.request(PROMPTS[2], CHAINS[chain], client="other")])
        padded = finish(engine, asked)
        assert [output(session) for session in padded] == [output(session) for session in plain]
        assert "length" in {session.finish for session in padded}
        assert max(len(session.tokens) for session in padded) == room
        assert all(round_.rows <= harness.memory.max_rows for round_ in policy.rounds)
        assert earlier.tokens[: earlier.cached] in [tokens for _, tokens in engine.held()]
