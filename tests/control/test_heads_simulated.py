"""Prediction layers on simulated machines: whatever is accepted of them, no answer is slower.

Their tables are computed, not measured (`localspec/bench/machines`); a head is a source that reads
what was accepted and drafts a token a forward.
"""

from __future__ import annotations

import pytest
from control.controlled import Controlled
from control.simulator import CONFIDENCES, Machine, Regime, Text, plain, play

from localspec.bench import tables
from localspec.control.controller import Controller

TABLES = ("h100-27b-mtp", "h100-35b-a3b-mtp")
ACCEPTED = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
SEEDS = (1, 2, 3)


def simulated(name: str, dearer: float = 1.0) -> Machine:
    """The machine of a table, whose head costs so many times as much."""
    _, table = tables.find(name)
    one = table.target.steady_ms[1]
    assert table.head is not None
    head = dearer * table.head.token_ms / one
    return Machine(
        {rows: ms / one for rows, ms in table.target.steady_ms.items()},
        step=head,
        read=0.1 * head,  # rows of one layer share what it reads
        host=table.host.round_ms / one,
        noise=0.03,
        row_seconds=one / 1000,
    )


def accepted(rate: float, told: float = 1.0) -> Regime:
    """A text in which so many tokens are accepted; the head believes `told` times as many."""
    believed = min(max(CONFIDENCES[-1], told * rate), CONFIDENCES[0])
    above = next(place for place, each in enumerate(CONFIDENCES) if each <= believed)
    shares = [0.0] * len(CONFIDENCES)
    shares[above] = 1.0
    honesty = rate / CONFIDENCES[above]
    return Regime(1500, shares, honesty, copy_begins=0.0, accident=0.0, seen_before=0.0)


def speed(machine: Machine, regime: Regime) -> float:
    """By plain decoding, over several answers of one loaded model, which learns by the first."""
    controller: Controller | None = None
    mine = plainly = 0.0
    for seed in SEEDS:
        text = Text([regime], seed)
        plainly += play(machine, text, plain).time
        session = Controlled(machine, text, seed, controller=controller)
        controller = session.controller
        mine += session.play().time
    return plainly / mine


@pytest.mark.parametrize("rate", ACCEPTED)
@pytest.mark.parametrize("name", TABLES)
def test_a_head_is_never_a_loss_and_a_gain_where_it_is_right(name: str, rate: float) -> None:
    """Honest about itself or not; where four of five tokens are accepted it pays well."""
    machine = simulated(name)
    for told in (1.0, 1.5):
        found = speed(machine, accepted(rate, told))
        assert found >= 0.98
        if rate >= 0.8:
            assert found > 1.3


@pytest.mark.parametrize("rate", ACCEPTED)
@pytest.mark.parametrize("name", TABLES)
def test_a_head_that_costs_as_much_as_the_target_is_left_alone(name: str, rate: float) -> None:
    """Plain decoding is faster there, and no answer is two percent slower than that."""
    _, table = tables.find(name)
    assert table.head is not None
    dear = 1.2 * table.target.steady_ms[1] / table.head.token_ms
    assert speed(simulated(name, dear), accepted(rate)) >= 0.98
