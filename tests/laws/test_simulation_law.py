"""A simulated machine gives the same tokens and takes exactly the time of its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from laws.engine_harness import PROMPTS, Harness, finish, output

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.drafters import load
from localspec.engine.session import Session
from localspec.engine.simulation import SimulatedHardware
from localspec.engine.speculation.states import FeatureHead, Prediction
from localspec.engine.step import Engine, Limits
from localspec.machine import Forwards, Head, History, Host, Machine
from localspec.types import (
    Backend,
    Floats,
    ForwardOutput,
    Row,
    SamplingParams,
    SpeculationParams,
    Token,
)

GREEDY = SamplingParams(temperature=0.0)
MACHINE = Machine(
    "m",
    "made up",
    Forwards({1: 5.0, 16: 9.0}, change_ms=2.0, settle_ms=0.5, look_ms=0.01),
    Forwards({1: 0.5, 16: 1.0}, change_ms=0.25),
    Host(0.3, 0.02, 0.1),
    Head(0.125),
)


@dataclass
class Watched:
    """The real backend; remembers what each forward had to be charged by."""

    inner: Backend
    seen: list[tuple[int, float]] = field(default_factory=list)
    shown: int = 0

    def __post_init__(self) -> None:
        self.n_vocab, self.n_slots = self.inner.n_vocab, self.inner.n_slots
        self.context, self.max_rows = self.inner.context, self.inner.max_rows

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """As the backend does."""
        self.shown += any(row.wants_logits for row in rows)
        self.seen.append((len(rows), sum(row.position for row in rows) / len(rows)))
        return self.inner.decode(rows)

    def truncate(self, slot: int, length: int) -> int:
        """As the backend does."""
        return self.inner.truncate(slot, length)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """As the backend does."""
        self.inner.checkpoint(slot, lasting=lasting)

    def charged_ms(self, forwards: Forwards) -> float:
        """Time of all forwards by the table, in ms."""
        history = History(forwards)
        return sum(history.charge_ms(rows, behind) for rows, behind in self.seen)


@dataclass
class Counted:
    """Real feature head that counts its calls."""

    inner: FeatureHead
    asked: int = 0

    def __post_init__(self) -> None:
        self.depth, self.sentence = self.inner.depth, self.inner.sentence

    def predict(self, state: Floats, token: Token) -> Prediction:
        """As the head does."""
        self.asked += 1
        return self.inner.predict(state, token)

    def close(self) -> None:
        """As the head does."""
        self.inner.close()


@dataclass
class Run:
    """One engine on a simulated machine, from the moment at which nothing has happened."""

    harness: Harness
    place: SimulatedHardware = field(default_factory=lambda: SimulatedHardware(MACHINE))
    sessions: list[Session] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.head = Counted(self.harness.head())
        self.target, self.draft = Watched(self.harness.memory), Watched(self.harness.draft_memory)
        model = self.harness.target
        offered = {"context": self.place.context(self.draft, "draft"), "piece": model.piece}
        names = ("lookup", "model", "feature_head")
        self.engine = Engine(
            self.place.context(self.target, "target"),
            {
                name: load(
                    name,
                    n_vocab=model.n_vocab,
                    ends=model.eog,
                    head=self.place.head(self.head),
                    **offered,
                )
                for name in names
            },
            self.place.policy(
                Controller(Costs(), Acceptance(), multiple=self.harness.shape.multiple)
            ),
            ends=model.eog,
            shape=self.harness.shape,
            limits=Limits(32, 16),
            clock=self.place.clock,
        )

    def answer(self, mode: SpeculationParams) -> list[list[int]]:
        """Tokens of every prompt, one request after the other."""
        requests = [
            self.harness.request(prompt, GREEDY, speculation=mode, client=str(number))
            for number, prompt in enumerate(PROMPTS)
        ]
        found = [finish(self.engine, [request])[0] for request in requests]
        self.sessions += found
        return [output(session) for session in found]


def test_the_clock_is_the_sum_of_the_tables_times(harness: Harness) -> None:
    """Every forward of both models by its history, the head, and the host behind each forward."""
    run = Run(harness)
    run.answer(SpeculationParams(mode="always"))
    forwards_ms = run.target.charged_ms(MACHINE.target) + run.draft.charged_ms(MACHINE.draft)
    rounds = sum(session.meter.rounds for session in run.sessions)
    drafted = sum(session.meter.drafted for session in run.sessions)
    host = MACHINE.host
    host_ms = run.target.shown * host.round_ms + rounds * host.asked_ms + drafted * host.row_ms
    assert drafted > 0
    assert run.draft.seen
    assert run.head.asked > 0
    head_ms = run.head.asked * 0.125
    assert 1000 * run.place.clock() == pytest.approx(forwards_ms + host_ms + head_ms)


def test_meters_share_that_time_out_and_nothing_is_left_over(harness: Harness) -> None:
    """Drafting, verifying and the host make the whole of an answer; no real time leaks in."""
    run = Run(harness)
    run.answer(SpeculationParams(mode="always"))
    for session in run.sessions:
        meter = session.meter
        whole = meter.last_token_at - meter.first_token_at
        parts = meter.draft_seconds + meter.verify_seconds + meter.host_seconds
        assert whole == pytest.approx(parts)
        assert 1000 * meter.host_seconds == pytest.approx(
            meter.rounds * (MACHINE.host.round_ms + MACHINE.host.asked_ms)
            + meter.drafted * MACHINE.host.row_ms
        )


def test_a_simulation_is_deterministic(harness: Harness) -> None:
    """A new machine has the same tokens and clock readings; tokens are plain decoding's."""
    first, again = Run(harness), Run(harness)
    texts = first.answer(SpeculationParams())
    assert again.answer(SpeculationParams()) == texts
    assert [one.meter for one in again.sessions] == [one.meter for one in first.sessions]
    assert again.place.clock() == first.place.clock()
    assert Run(harness).answer(SpeculationParams(mode="off")) == texts


def test_the_clock_stands_still_without_work() -> None:
    """In any number of readings."""
    clock = SimulatedHardware(MACHINE).clock
    assert {clock() for _ in range(100)} == {0.0}
