"""Simulated, drafting while the target verifies pays on two devices, and costs nothing on one."""

from __future__ import annotations

import pytest
from control.simulator import CODE, NOISE, PROSE, Regime
from engine.spoken import PROMPT, VOCABULARY, Speaking, written

from localspec.bench import tables
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, STEADY, Costs
from localspec.control.overlap import Overlap
from localspec.drafters.model import ModelDrafter
from localspec.engine.exactness.classes import Shape
from localspec.engine.session import Request, Session
from localspec.engine.simulation import SimulatedHardware
from localspec.engine.step import Engine, Limits
from localspec.types import SamplingParams, SpeculationParams

TOKENS = 1200
REGIMES = {"prose": PROSE, "code": CODE, "noise": NOISE}


def answered(name: str, regime: Regime, *, continues: bool, seed: int = 0) -> Session:
    """A long answer by the real policy on that machine, which is measured before."""
    _, machine = tables.find(name)
    place = SimulatedHardware(machine)
    text = written(regime, TOKENS, seed)
    costs, acceptance = Costs(), Acceptance()
    for _ in range(8):
        for rows in POINTS:
            costs.measured(rows, machine.target.forward_ms(rows, STEADY) / 1000)
    costs.expect_draft("model", machine.draft.forward_ms(1, STEADY) / 1000 / costs.target(1))
    shared = not machine.draft_is_apart
    draft = place.context(Speaking(text, "draft"), "draft")
    engine = Engine(
        place.context(Speaking(text, "target"), "target"),
        {"model": ModelDrafter(draft, VOCABULARY, frozenset())},
        place.policy(Controller(costs, acceptance)),
        ends=frozenset(),
        shape=Shape(),
        limits=Limits(),
        clock=place.clock,
        overlap=Overlap(costs, acceptance, shared=shared) if continues else None,
    )
    greedy = SamplingParams(temperature=0.0)
    session = engine.admit(Request("r", "c", PROMPT, greedy, SpeculationParams(), TOKENS))
    while session.finish is None:
        engine.step()
    engine.retire(session)
    return session


def seconds(session: Session) -> float:
    """Of its decoding."""
    return session.meter.last_token_at - session.meter.first_token_at


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(
    "name", ["two-h100-32b", "two-h100-32b-7b", "remote-h100-32b", "h100-32b", "h100-7b"]
)
def test_it_pays_where_drafting_takes_long_and_costs_nothing_elsewhere(
    name: str, regime: str
) -> None:
    """1.05 and more where the draft took a fifth of the time on its own device; 0.98 nowhere."""
    apart = answered(name, REGIMES[regime], continues=False)
    overlapped = answered(name, REGIMES[regime], continues=True)
    assert overlapped.tokens == apart.tokens
    ratio = seconds(apart) / seconds(overlapped)
    share = apart.meter.draft_seconds / seconds(apart)
    assert ratio > 0.98
    if name not in {"h100-32b", "h100-7b"}:
        assert share > 0.2 or regime != "code"
        assert ratio > 1.05 or share < 0.2


def test_all_of_the_time_is_somebodys() -> None:
    """A forward that waits for a draft which still goes on is drafting."""
    session = answered("two-h100-32b-7b", CODE, continues=True)
    meter = session.meter
    parts = meter.draft_seconds + meter.verify_seconds + meter.host_seconds
    assert seconds(session) == pytest.approx(parts)
