"""A failure inside one request changes no token, draft or slot of another.

A drafter is optional: where it fails, its sessions go on without it. A sampler or a grammar is not:
where it fails, its session ends with an error. Real llama.cpp, strict, tiny models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Rubbish
from numpy.typing import NDArray

from localspec.engine.session import Request
from localspec.engine.speculation.verification import StepOutput
from localspec.engine.step import Engine
from localspec.types import (
    Draft,
    DraftRequest,
    DraftSession,
    Proposing,
    SamplingParams,
    SpeculationParams,
    Token,
)

SEEDED = SamplingParams(temperature=0.8, seed=1234)
OTHERS = SpeculationParams(mode="always", drafters=["lookup", "model"])


class _Breaks(Exception):
    """Exception outside the tree of errors."""


class Broken(Rubbish):
    """A drafter of nonsense whose sessions raise in one phase of their lives."""

    name = "broken"

    def __init__(self, n_vocab: int, phase: str) -> None:
        super().__init__(n_vocab)
        self.phase = phase
        self.free = phase != "pending"
        self.raised = 0

    def breaks(self, phase: str) -> None:
        """Raise if this is the phase."""
        if phase == self.phase:
            self.raised += 1
            raise _Breaks(phase)

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> DraftSession:
        """A session that breaks."""
        self.breaks("open")
        return _Session(self, super().open(slot, prompt, sampler, prediction))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Tokens that do not exist."""
        self.breaks("propose")
        inner = [
            request.session.inner for request in requests if isinstance(request.session, _Session)
        ]
        return super().propose(
            [replace(request, session=one) for request, one in zip(requests, inner, strict=True)]
        )


class _Session:
    """One request of a broken drafter."""

    def __init__(self, drafter: Broken, inner: DraftSession) -> None:
        self.inner = inner
        self._drafter = drafter

    @property
    def pending(self) -> int:
        self._drafter.breaks("pending")
        return 0

    def commit(self, tokens: Sequence[Token]) -> None:
        self._drafter.breaks("commit")
        self.inner.commit(tokens)

    def close(self) -> None:
        self._drafter.breaks("close")
        self.inner.close()


class Torn:
    """A grammar that allows everything until a text of so many tokens, and then raises."""

    def __init__(self, n_vocab: int, phase: str, tokens: int) -> None:
        self._all = np.ones(n_vocab, dtype=np.bool_)
        self._phase = phase
        self._left = tokens

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """Everything, as long as it holds."""
        if self._phase == "mask" and len(path) >= self._left:
            raise _Breaks("mask")
        return self._all

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """Nothing."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """One token nearer to the end."""
        self._left -= len(tokens)
        if self._phase == "commit" and self._left <= 0:
            raise _Breaks("commit")


@pytest.fixture(scope="module")
def texts(harness: Harness) -> list[list[Token]]:
    """Answer to each prompt when it is alone."""
    engine = harness.engine({}, FixedDepth(0))
    requests = [harness.request(prompt, SEEDED) for prompt in PROMPTS]
    return [output(finish(engine, [request])[0]) for request in requests]


def bystanders(harness: Harness) -> list[Request]:
    """All prompts but the first, drafted for by both sources."""
    return [harness.request(prompt, SEEDED, speculation=OTHERS) for prompt in PROMPTS[1:]]


def assert_untouched(
    harness: Harness, texts: list[list[Token]], engine: Engine, first: Request
) -> list[StepOutput]:
    """Other sessions, and the next one, have their usual tokens and drafts.

    Returns what the engine reported of the first request.
    """
    outputs: list[StepOutput] = []
    mine, *others = finish(engine, [first, *bystanders(harness)], outputs.append)
    assert [output(session) for session in others] == texts[1:]
    for session in others:
        assert set(session.drafters) == {"lookup", "model"}
        assert session.meter.sources["model"].accepted > 0
    assert engine.free_slots == SLOTS
    again = [harness.request(prompt, SEEDED, speculation=OTHERS) for prompt in PROMPTS]
    assert [output(session) for session in finish(engine, again)] == texts
    return [advance for advance in outputs if advance.session is mine]


@pytest.mark.parametrize("phase", ["open", "pending", "propose", "commit", "close"])
def test_a_drafter_that_fails_is_left_out_wherever_it_fails(
    harness: Harness, texts: list[list[Token]], phase: str
) -> None:
    """Its own session goes on without it, to the same tokens."""
    broken = Broken(harness.target.n_vocab, phase)
    drafters = harness.drafters("lookup", "model") | {"broken": broken}
    engine = harness.engine(drafters, FixedDepth(4, "model"))
    first = harness.request(PROMPTS[0], SEEDED, speculation=SpeculationParams(mode="always"))

    advances = assert_untouched(harness, texts, engine, first)

    assert broken.raised == 1
    assert [token for advance in advances for token in advance.tokens] == texts[0]
    assert not any(advance.failure for advance in advances)
    assert set(advances[0].session.drafters) == {"lookup", "model"} | (
        {"broken"} if phase == "close" else set()
    )


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("phase", ["mask", "commit"])
def test_a_grammar_that_fails_ends_its_own_request(
    harness: Harness, texts: list[list[Token]], phase: str, tokens: int
) -> None:
    """At the first token, at the next, and inside a draft that both sources wrote with others."""
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(4, "model"))
    torn = Torn(harness.target.n_vocab, phase, tokens)
    first = replace(harness.request(PROMPTS[0], SEEDED, speculation=OTHERS), constraint=torn)

    *said, last = assert_untouched(harness, texts, engine, first)

    assert last.failure is not None
    assert "_Breaks" in last.failure.message
    assert last.failure.fix
    assert not any(advance.failure for advance in said)
    kept = [token for advance in said for token in advance.tokens]
    assert kept == texts[0][: len(kept)]
    assert len(kept) <= tokens


def test_a_sampler_that_fails_ends_its_own_request(
    harness: Harness, texts: list[list[Token]]
) -> None:
    """A sampler that raises ends its session alone, as with a bias of no token."""
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(4, "model"))
    impossible = SamplingParams(temperature=0.8, logit_bias={-1 - harness.target.n_vocab: 1.0})

    (last,) = assert_untouched(harness, texts, engine, harness.request(PROMPTS[0], impossible))

    assert last.failure is not None
    assert "IndexError" in last.failure.message


def test_a_failed_round_is_not_an_observation(harness: Harness) -> None:
    """A round in which a session failed is not given to the controller: its tokens are missing."""
    policy = FixedDepth(4, "model")
    engine = harness.engine(harness.drafters("lookup", "model"), policy)
    torn = Torn(harness.target.n_vocab, "commit", 7)
    first, *others = [  # so short that all are read in one forward, before anybody fails
        harness.request(prompt[:5], SEEDED, speculation=OTHERS) for prompt in PROMPTS
    ]
    rounds: list[int] = []

    def on_output(advance: StepOutput) -> None:
        if advance.failure is not None:
            rounds.append(len(policy.rounds))

    finish(engine, [replace(first, constraint=torn), *others], on_output)

    (failed,) = rounds
    together, alone = policy.rounds[failed - 1 : failed + 1]
    assert (len(together.views), len(alone.views)) == (SLOTS, SLOTS - 1)
    assert all(tokens for round_ in policy.rounds for tokens in round_.committed)


def test_a_request_that_cannot_begin_gives_its_slot_back(
    harness: Harness, texts: list[list[Token]]
) -> None:
    """The next requests have all slots."""
    engine = harness.engine({}, FixedDepth(0))
    hollow = replace(harness.request(PROMPTS[0], SEEDED), sampling=None)  # type: ignore[arg-type]
    for _ in range(SLOTS + 1):
        with pytest.raises(AttributeError):
            engine.admit(hollow)
    assert engine.free_slots == SLOTS
    assert [output(one) for one in finish(engine, bystanders(harness))] == texts[1:]
