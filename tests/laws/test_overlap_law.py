"""On a device drafters run before a forward's result only where that may save time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.round import DraftPlan, View
from localspec.engine.simulation import RealHardware
from localspec.engine.speculation.verification import StepOutput
from localspec.engine.step import Engine
from localspec.errors import NoRoom
from localspec.types import Backend, ForwardOutput, Row, SpeculationParams

AUTO = SpeculationParams(mode="auto")


@pytest.fixture
def waiting(harness: Harness) -> Iterator[Harness]:
    """Engine harness whose target behaves as on a device."""
    harness.memory.waits = True
    yield harness
    harness.memory.waits = False


class Noted(FixedDepth):
    """Lookup drafter that counts its plans: those before a forward, and those while one runs."""

    def __init__(self, depth: int) -> None:
        super().__init__(depth)
        self.before = self.during = 0
        self.computing = False

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """As ever."""
        if self.computing:
            self.during += 1
        else:
            self.before += bool(views)
        return super().plan(views, other_rows, before)

    def step(self, engine: Engine) -> list[StepOutput]:
        """One step of an engine, in which the forward is known to run once it says so."""
        self.computing = False
        engine.meanwhile = self._meanwhile
        return engine.step()

    def _meanwhile(self) -> None:
        self.computing = True


@pytest.mark.parametrize("chain", CHAINS)
def test_overlapped_drafting_changes_no_token(waiting: Harness, chain: str) -> None:
    """For 1 to 4 sessions, decided by the real policy; drafts were accepted and rejected."""
    requests = [waiting.request(each, CHAINS[chain], speculation=AUTO) for each in PROMPTS]
    plain = [
        output(finish(waiting.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    drafted = accepted = 0
    for count in range(1, SLOTS + 1):
        policy = Controller(Costs(), Acceptance(), multiple=waiting.shape.multiple)
        for rows in range(1, 17):  # a machine on which rows are cheap
            policy.costs.measured(rows, 0.02 + rows * 1e-4)
        engine = waiting.engine(waiting.drafters("lookup", "grammar", "model"), policy)
        sessions = finish(engine, requests[:count])
        drafted += sum(session.meter.drafted for session in sessions)
        accepted += sum(session.meter.accepted for session in sessions)
        assert [output(session) for session in sessions] == plain[:count]
    assert 0 < accepted < drafted


@pytest.mark.parametrize("depth", [1, 3])
def test_a_copy_that_goes_on_is_drafted_without_asking(waiting: Harness, depth: int) -> None:
    """Lookup is asked before a forward at first, and behind a draft; all else is prepared.

    That is made for the case that all of a draft is accepted, and used in no other.
    """
    policy = Noted(depth)
    request = waiting.request(PROMPTS[0], CHAINS["seeded"], speculation=AUTO, tokens=60)
    plain = output(finish(waiting.engine({}, FixedDepth(0)), [request])[0])
    engine = waiting.engine(waiting.drafters("lookup"), policy)
    session = engine.admit(request)
    drafts, kept, prepared, broken, calm = True, True, 0, 0, 0
    while session.finish is None:
        asked, drafted = policy.before, session.meter.drafted
        accepted = session.meter.accepted
        policy.step(engine)
        drafted = session.meter.drafted - drafted
        decoding = session.n_output > 1
        assert drafts or policy.before == asked or not decoding
        if policy.before == asked and drafted > 0:
            assert kept
            prepared += 1
        kept = session.meter.accepted - accepted == drafted
        broken += not kept
        calm += policy.before == asked and decoding and not drafted
        drafts = drafted > 0 or not decoding
    engine.retire(session)
    assert output(session) == plain
    assert prepared
    assert broken
    assert calm
    assert policy.during


def test_copies_that_are_not_worth_a_draft_are_never_asked_for(waiting: Harness) -> None:
    """However often they foretell the token that comes."""
    policy = Noted(0)
    request = waiting.request(PROMPTS[0], CHAINS["seeded"], speculation=AUTO, tokens=60)
    engine = waiting.engine(waiting.drafters("lookup"), policy)
    session = engine.admit(request)
    while session.finish is None:
        policy.step(engine)
    engine.retire(session)
    assert policy.before <= 1 < policy.during


def test_on_a_cpu_drafters_run_in_every_round(harness: Harness) -> None:
    """Its forwards leave no idle time."""
    policy = Noted(0)
    request = harness.request(PROMPTS[0], CHAINS["seeded"], speculation=AUTO, tokens=20)
    engine = harness.engine(harness.drafters("lookup"), policy)
    session = engine.admit(request)
    rounds = 0
    while session.finish is None:
        rounds += session.n_output > 0
        policy.step(engine)
    engine.retire(session)
    assert (policy.before, policy.during) == (rounds, 0)


class Scarce(RealHardware):
    """Device whose free memory ends on request: it keeps its allocations and takes no more."""

    over = False

    def context(self, backend: Backend, role: Literal["target", "draft"]) -> Backend:
        """The target's memory is this."""
        assert role == "target"
        return _Ending(backend, self)


class _Ending:
    def __init__(self, backend: Backend, place: Scarce) -> None:
        self.n_vocab, self.n_slots = backend.n_vocab, backend.n_slots
        self.max_rows, self.waits = backend.max_rows, True
        self.meanwhile: Callable[[], None] = lambda: None
        self.truncate, self.checkpoint = backend.truncate, backend.checkpoint
        self._backend, self._place = backend, place
        self.context = backend.context

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        if self._place.over and rows[-1].position >= 16:
            self.context = 16
            raise NoRoom("There is no more memory.")
        output = self._backend.decode(rows)
        self.meanwhile()
        return output


def test_a_request_whose_forward_found_no_memory_is_not_observed(harness: Harness) -> None:
    """It ends, and a later prefill of another request does not make drafters observe it."""
    policy, place = Noted(0), Scarce()
    engine = harness.engine(harness.drafters("lookup"), policy, place=place)
    session = engine.admit(
        harness.request(PROMPTS[2], CHAINS["seeded"], speculation=AUTO, tokens=60)
    )
    asked = -1
    while asked < policy.before or not policy.before:
        asked = policy.before
        policy.step(engine)
    place.over = True
    assert engine.step() == []
    (ended,) = engine.step()
    assert (ended.session, ended.finish) == (session, "length")
    engine.retire(session)
    looked = policy.during
    slot, held = engine.take_slot("other", [1, 2, 3, 4])
    engine.read(slot, [1, 2, 3, 4], held, 3)
    assert (policy.before, policy.during) == (asked, looked)
