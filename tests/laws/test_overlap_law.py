"""On a device drafters run before a forward's result only where that may save time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.round import Plan, View
from localspec.engine.simulation import RealHardware
from localspec.errors import NoRoom
from localspec.types import Backend, Floats, Row, SpeculationParams

AUTO = SpeculationParams(mode="auto")


@pytest.fixture
def waiting(harness: Harness) -> Iterator[Harness]:
    """Engine harness whose target behaves as on a device."""
    harness.memory.waits = True
    yield harness
    harness.memory.waits = False


class Noted(FixedDepth):
    """Lookup drafter that records its proposals and its observations."""

    def __init__(self, depth: int) -> None:
        super().__init__(depth)
        self.asked: list[bool] = []
        self.shown: list[tuple[int, ...]] = []

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[Plan]:
        """As ever."""
        if views:
            self.asked.append(True)
            self.shown.append(tuple(chain.tokens[0] for view in views for chain in view.free))
        return super().plan(views, other_rows, before)

    def wants(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> bool:
        """Never by itself: a copy has to prove itself."""
        super().plan(views, other_rows, before)
        self.asked.append(False)
        self.shown.append(tuple(chain.tokens[0] for view in views for chain in view.free))
        return False


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


def test_lookup_drafts_after_its_first_correct_token(waiting: Harness) -> None:
    """After a round without a draft drafters only observe, until one of them was right."""
    policy = Noted(0)  # whatever is asked for, nothing is drafted
    request = waiting.request(PROMPTS[0], CHAINS["seeded"], speculation=AUTO, tokens=60)
    tokens = output(finish(waiting.engine(waiting.drafters("lookup"), policy), [request])[0])
    assert len(policy.asked) == len(tokens) - 1
    right = [tokens[n + 1] in shown for n, shown in enumerate(policy.shown)]
    assert policy.asked[0]
    assert policy.asked[1:] == right[:-1]
    assert {True, False} == set(policy.asked[1:])
    assert any(after for before, after in pairwise(policy.asked) if not before)


def test_on_a_cpu_drafters_run_in_every_round(harness: Harness) -> None:
    """Its forwards leave no idle time."""
    policy = Noted(0)
    request = harness.request(PROMPTS[0], CHAINS["seeded"], speculation=AUTO, tokens=20)
    finish(harness.engine(harness.drafters("lookup"), policy), [request])
    assert all(policy.asked)


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

    def decode(self, rows: Sequence[Row]) -> Floats:
        if self._place.over and rows[-1].position >= 16:
            self.context = 16
            raise NoRoom("There is no more memory.")
        logits = self._backend.decode(rows)
        self.meanwhile()
        return logits


def test_a_request_whose_forward_found_no_memory_is_not_observed(harness: Harness) -> None:
    """It ends, and a later prefill of another request does not make drafters observe it."""
    policy, place = Noted(0), Scarce()
    engine = harness.engine(harness.drafters("lookup"), policy, place=place)
    session = engine.admit(
        harness.request(PROMPTS[2], CHAINS["seeded"], speculation=AUTO, tokens=60)
    )
    while not policy.asked or policy.asked[-1]:
        engine.step()
    place.over = True
    assert engine.step() == []
    (ended,) = engine.step()
    assert (ended.session, ended.finish) == (session, "length")
    engine.retire(session)
    asked = list(policy.asked)
    slot, held = engine.take_slot("other", [1, 2, 3, 4])
    engine.read(slot, [1, 2, 3, 4], held, 3)
    assert policy.asked == asked
