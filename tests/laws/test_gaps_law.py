"""A draft model that does without a part of the text drafts worse, and changes no token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Gappy
from laws.test_lossless import CHAINS

from localspec.drafters.model import SINKS, ModelDrafter, ModelSession
from localspec.engine.block_max import Logits
from localspec.engine.sampling import Sampler
from localspec.types import Draft, DraftRequest, Probs, SamplingParams, Signal, Skipping, Token

GREEDY = SamplingParams(temperature=0.0)
DEPTH = 4


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _opened(harness: Harness, text: Sequence[Token]) -> tuple[ModelDrafter, ModelSession]:
    """A drafter that remembers nothing, and its session of a text."""
    drafter = ModelDrafter(
        harness.draft_memory, harness.target.n_vocab, frozenset(harness.target.eog)
    )
    return drafter, drafter.open(0, text, Sampler(GREEDY))


def _draft(drafter: ModelDrafter, session: ModelSession, skip: int = 0) -> tuple[Token, ...]:
    (draft,) = drafter.propose([DraftRequest(session, Draft(), DEPTH, _always, skip=skip)])
    return draft.tokens


@pytest.mark.parametrize("chain", CHAINS)
def test_gaps_change_no_token(harness: Harness, chain: str) -> None:
    """For 1 to 4 sessions that skip as chance has it: the tokens of plain decoding."""
    requests = [harness.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    for count in range(1, SLOTS + 1):
        policy = Gappy(DEPTH, "model")
        engine = harness.engine(harness.drafters("lookup", "model"), policy)

        sessions = finish(engine, requests[:count])

        assert [output(session) for session in sessions] == plain[:count]
        assert policy.skipped > 20
        assert all(isinstance(session.drafters["model"], Skipping) for session in sessions)
        assert any(session.meter.sources["model"].accepted for session in sessions)


def test_only_tokens_that_a_source_read_are_counted(harness: Harness) -> None:
    """Its cost is learned by them: the tokens that it was behind, less those left out."""
    policy = Gappy(DEPTH, "model")
    engine = harness.engine(harness.drafters("model"), policy)
    (session,) = finish(engine, [harness.request(PROMPTS[3], GREEDY)])
    gaps = 0
    for one, two in pairwise(policy.rounds):
        before, after = (round_.views[0].neural[0] for round_ in (one, two))
        gap = (after.skipped or 0) - (before.skipped or 0)
        assert [drafted.pending for drafted in one.drafted] in ([], [before.pending - gap])
        gaps += gap
    assert 0 < gaps <= policy.skipped
    assert session.n_output == 40


@pytest.mark.parametrize("skip", [1, 7, 30, 10**6])
def test_drafts_behind_a_gap_equal_those_of_the_text_without_it(
    harness: Harness, skip: int
) -> None:
    """The tokens that are left follow one another: the first ones and the latest, the last always.

    Holds for later tokens and further gaps too.
    """
    text = harness.request(PROMPTS[3], GREEDY).prompt
    drafter, session = _opened(harness, text)
    drafted = _draft(drafter, session, skip)
    seen = [*text[:SINKS], *text[min(SINKS + skip, len(text) - 1) :]]
    assert session.seen == seen
    assert session.skipped == len(text) - len(seen)
    session.commit([*drafted, 72, 73, 74])
    seen += [*drafted, 72, 73, 74]
    again = _draft(drafter, session)
    session.commit([75, 76, 77, 78, 79])
    third = _draft(drafter, session, skip=3)
    for said, end in ((drafted, -len(drafted) - 3), (again, len(seen))):
        assert said == _draft(*_opened(harness, seen[:end]))
    assert third == _draft(*_opened(harness, [*seen, *[75, 76, 77, 78, 79][3:]]))


def test_the_next_request_of_the_slot_reads_what_was_skipped(harness: Harness) -> None:
    """Only the text before the gap counts as read; after a failed forward nothing does."""
    text = harness.request(PROMPTS[3], GREEDY).prompt
    drafter, session = _opened(harness, text)
    _draft(drafter, session, skip=30)
    later = drafter.open(0, [*text[:40], 66, *text[40:]], Sampler(GREEDY))
    assert SINKS <= later.agreed < SINKS + 30
    assert _draft(drafter, later) == _draft(*_opened(harness, later.tokens))
    session.forget()
    assert (session.skipped, session.pending) == (0, len(text))


class _Recorded(Sampler):
    """Sampler chain that records its calls."""

    def __init__(self) -> None:
        super().__init__(SamplingParams(temperature=0.7, seed=3, repetition_penalty=1.3))
        self.calls: list[tuple[list[Token], int]] = []

    def propose(
        self, logits: Logits, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> tuple[Token, Probs | None]:
        """As any chain."""
        self.calls.append((list(recent), position - len(path)))
        return super().propose(logits, recent, path, position)


@given(skip=st.integers(0, 50))
def test_noise_and_penalties_are_those_of_the_whole_text(harness: Harness, skip: int) -> None:
    """Draft and target draw alike only with the same position and the same tokens before it."""
    text = harness.request(PROMPTS[3], GREEDY).prompt
    drafter, _ = _opened(harness, text)
    sampler = _Recorded()
    _draft(drafter, drafter.open(0, text, sampler), skip)
    assert sampler.calls
    assert all(call == (text[-sampler.looks_back :], len(text)) for call in sampler.calls)
