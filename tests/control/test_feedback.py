"""A round teaches the policy about costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.control.acceptance import Acceptance
from localspec.control.batch_cost import BatchCost
from localspec.control.costs import Costs
from localspec.control.feedback import PolicyFeedback
from localspec.control.round import Round, SessionStats, VerifiedDraft, View
from localspec.types import Draft, Signal

CELLS, NODES, SECONDS = 2000, 7, 0.2


DRAFT = Draft.chain([1] * NODES, [Signal("lookup", 0, 0.5)] * NODES)
ROUND = Round(
    rows=1 + NODES,
    target_seconds=SECONDS,
    host_seconds=0.001,
    drafted=(),
    views=(View(budget=NODES, cells=CELLS),),
    judged=(VerifiedDraft(DRAFT, 3),),
    committed=((1, 1, 1, 2),),
    alike=2,
)
PLAIN = replace(
    ROUND,
    rows=1,
    judged=(VerifiedDraft(Draft(), 0),),
    committed=((1,),),
    views=(View(cells=CELLS),),
)


def test_each_row_of_a_round_looks_back() -> None:
    """A draft of seven nodes behind a long text is eight rows that each see all of it."""
    told, expected = Costs(), Costs()

    for _ in range(20):
        PolicyFeedback(told, Acceptance(), 1).observe(
            ROUND, BatchCost(told, 1, multiple=1, free=True)
        )
        expected.measured(1 + NODES, SECONDS, (1 + NODES) * CELLS, 2)

    assert told.target(1 + NODES) == pytest.approx(expected.target(1 + NODES))
    assert told.attended_seconds == pytest.approx(expected.attended_seconds)
    assert told.attended_seconds != pytest.approx(Costs().attended_seconds)


def test_a_decode_that_was_several_forwards_teaches_no_stair_and_is_booked() -> None:
    """As are the copies around it, which teach what a copy takes."""
    told, before = Costs(), Costs()
    told.measured_copy(0.004)
    ledgers = []
    for copy_seconds in (0.0, 0.02):
        round_ = replace(ROUND, regular=False, copies=2, copy_seconds=copy_seconds)
        ledgers.append(PolicyFeedback(told, Acceptance(), 1))
        ledgers[-1].observe(round_, BatchCost(told, 1, multiple=1, free=True))
    assert told.target(1 + NODES) == before.target(1 + NODES)
    assert ledgers[1].left < ledgers[0].left
    assert 0.0036 < (told.copy_seconds or 0) < 0.01


@pytest.mark.parametrize("held_up", ["target_seconds", "host_seconds", "asked_seconds"])
def test_a_round_that_was_held_up_forbids_nothing(held_up: str) -> None:
    """A process that was stopped for an hour, in a round with a draft: the next one may have one.

    Where each round takes so long it is no accident, and what is lost is soon too much.
    """
    told = Costs()
    feedback, batch_cost = (
        PolicyFeedback(told, Acceptance(), 1),
        BatchCost(told, 1, multiple=1, free=True),
    )
    for round_ in range(200):
        feedback.observe(replace(PLAIN, target_seconds=0.03), batch_cost)
        if round_ == 100:
            feedback.observe(replace(ROUND, **{held_up: 3600.0}), batch_cost)  # type: ignore[arg-type]
            assert feedback.left > 0
    rounds = 0
    while feedback.left > 0:
        feedback.observe(replace(ROUND, target_seconds=0.5), batch_cost)
        rounds += 1
    assert rounds <= 5


def test_the_host_is_dearer_with_each_drafted_row() -> None:
    """Which is told apart from what it takes anyway, and is part of a draft's price."""
    costs = Costs()
    feedback = PolicyFeedback(costs, Acceptance(), 1)
    plain = replace(ROUND, rows=1, judged=(VerifiedDraft(Draft(), 0),), committed=((1,),))
    for nodes in (1, 15) * 100:
        chain = Draft.chain([1] * nodes, [Signal("lookup", 0, 0.5)] * nodes)
        drafted = replace(
            ROUND,
            rows=1 + nodes,
            judged=(VerifiedDraft(chain, 0),),
            committed=((1,),),
            host_seconds=0.0015 + nodes * 0.0004,
        )
        for round_ in (plain, drafted):
            feedback.observe(round_, BatchCost(costs, 1, multiple=1, free=True))
    row_seconds = costs.host_row_seconds
    assert costs.host_seconds == pytest.approx(0.001, rel=0.01)
    assert row_seconds == pytest.approx(0.0004, rel=0.05)
    batch_cost = BatchCost(costs, 1, multiple=1, free=True)
    forward = batch_cost.seconds(1 + NODES) - batch_cost.seconds(1)
    assert batch_cost.rise(1, NODES, 0) == pytest.approx(forward + NODES * row_seconds)
    judged = batch_cost.seconds_with_host(1 + NODES, 0) - batch_cost.seconds_with_host(1, 0)
    assert judged == pytest.approx(batch_cost.rise(1, NODES, 0))


def test_asking_in_vain_is_a_loss_and_no_part_of_plain_decoding() -> None:
    """As much as it took: plain decoding is as fast as before, the answer is behind."""
    behind, speeds, left = [], [], []
    for asked in (0.0, 0.05):
        costs, stats = Costs(), SessionStats()
        feedback = PolicyFeedback(costs, Acceptance(), 1)
        view = View(budget=NODES, cells=CELLS, stats=stats)
        plain = replace(ROUND, rows=1, views=(view,), judged=(VerifiedDraft(Draft(), 0),))
        plain = replace(plain, committed=((1,),), asked_seconds=asked)
        feedback.observe(plain, BatchCost(costs, 1, multiple=1, free=True))
        behind.append(stats.regret_budget.behind_seconds)
        speeds.append(feedback.baseline.seconds(0.0))
        left.append(feedback.left)
    assert behind == pytest.approx([0.0, 0.05])
    assert speeds[0] == pytest.approx(speeds[1])
    assert left[1] < left[0]
