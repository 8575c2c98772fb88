"""Rows that are as good as paid: which these are, and that filling them loses next to nothing."""

from __future__ import annotations

import pytest
from control.simulator import Q4_K, Machine
from control.test_batch_cost import CURVES, batch_cost, costs, few, machines
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, STEADY, Costs
from localspec.control.cutting import spare
from localspec.control.round import Round, SessionStats, VerifiedDraft, View
from localspec.types import LOOKAHEAD, Draft, Signal

FLAT = {rows: 1.0 + 0.0005 * rows for rows in POINTS}
SIGNAL = Signal(LOOKAHEAD, 0, 0.1)


def known(curve: dict[int, float]) -> Costs:
    """A machine that has been measured, 20 ms a row, on which changes of rows are free."""
    found = Costs()
    for _ in range(60):
        for rows in POINTS:
            found.measured(rows, 0.02 * curve[rows])
    for alike in range(STEADY):
        found.expect_change(alike, 0.0)
    return found


@given(machines, few, st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 8))
def test_rows_to_spare_cost_next_to_nothing(
    machine: Costs, plain_rows: int, nodes: list[int], multiple: int
) -> None:
    """On any curve, in rounds of one and of several sessions, with and without classes."""
    prices = batch_cost(machine, plain_rows, multiple=multiple)
    more = spare(prices, nodes)
    rows = sum(multiple + prices.extra_rows(count) for count in nodes)
    filled = sum(
        multiple + prices.extra_rows(count + added)
        for count, added in zip(nodes, more, strict=True)
    )
    assert all(count >= 0 for count in more)
    assert machine.target(filled) <= 1.03 * max(
        machine.target(rows), machine.target(prices.padded(rows))
    )


@pytest.mark.parametrize("multiple", [2, 4, 8])
def test_padding_of_a_class_is_filled(multiple: int) -> None:
    """Strict rows come in multiples: those behind the draft are there anyway."""
    prices = batch_cost(costs("Q4_K", 0.0), multiple, multiple=multiple)
    for nodes in range(20):
        (more,) = spare(prices, [nodes])
        assert (1 + nodes + more) % multiple == 0
        assert more < multiple


def view(stats: SessionStats) -> View:
    """A session with nothing to draft."""
    return View(budget=31, stats=stats)


def rounds(controller: Controller, count: int, accepted: int = 0) -> list[int]:
    """Plays rounds in which so many of the filled nodes are accepted; how many rows were filled."""
    stats, found = SessionStats(), []
    for _ in range(count):
        controller.plan([view(stats)])
        controller.cut([view(stats)], [Draft()])
        (more,) = controller.paid([view(stats)], [0])
        found.append(more)
        kept = min(accepted, more)
        draft = Draft.chain(range(1, more + 1), [SIGNAL] * more)
        controller.observe(
            Round(
                rows=1 + more,
                target_seconds=controller.costs.target(1 + more),
                host_seconds=0.0005,
                drafted=(),
                views=(view(stats),),
                judged=(VerifiedDraft(draft, kept),),
                committed=((*range(1, kept + 1), 0),),
            )
        )
    return found


def test_where_rows_are_flat_they_are_filled() -> None:
    """In nearly all rounds; the others measure plain decoding."""
    found = rounds(Controller(known(FLAT), Acceptance()), 100, accepted=1)
    assert sum(1 for more in found if more) > 80


def test_where_each_row_costs_none_is_filled() -> None:
    """On a CPU whose forwards get dearer with every row."""
    machine = Machine(Q4_K)
    curve = {rows: machine.target(rows) for rows in POINTS}
    assert not any(rounds(Controller(known(curve), Acceptance()), 60))


def test_guesses_that_bring_nothing_end_even_where_rows_seem_free() -> None:
    """Beliefs about neighbouring row counts may be noise."""
    free = dict.fromkeys(POINTS, 1.0)
    found = rounds(Controller(known(free), Acceptance()), 60)
    assert any(found)
    assert sum(found) < 100
    assert not any(found[30:])


def test_guesses_that_bring_nothing_end() -> None:
    """They cost next to nothing each, and half a token in all: then the answer is left alone."""
    flat = {rows: 1.0 + 0.001 * rows for rows in POINTS}
    controller = Controller(known(flat), Acceptance())
    found = rounds(controller, 400)
    assert any(found)
    assert not any(found[300:])
    lost = sum(controller.costs.target(1 + more) - controller.costs.target(1) for more in found)
    assert lost < 2 * controller.costs.target(1)


def test_curves_with_stairs_have_rows_to_spare_behind_a_stair_alone() -> None:
    """The machines of the worlds, by name: an H100 is flat behind nine rows, not before."""
    found = {
        name: [spare(batch_cost(costs(name, 0.0), 1).steady, [n])[0] for n in range(16)]
        for name in CURVES
    }
    assert found["H100 7B"][8] > 0
    assert not any(found["H100 7B"][:4])
    assert not any(found["Q4_K"][:4])
