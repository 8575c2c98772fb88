"""The cost of row counts in the round at hand: paddings, changes and the way back."""

from __future__ import annotations

import pytest
from control.simulator import DIP, EVERY_ROW, GPU, H100_1B, H100_7B, Q4_0, Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.batch_cost import BatchCost, ExpectedSaving, with_savings
from localspec.control.costs import POINTS, STEADY, Costs
from localspec.control.round import LEVELS

CURVES = {
    "Q4_K": Q4_K,
    "Q4_0": Q4_0,
    "GPU": GPU,
    "dip": DIP,
    "every row": EVERY_ROW,
    "H100 1.5B": H100_1B,
    "H100 7B": H100_7B,
}
CHANGES = (0.0, 0.5, 1.9)
_KNOWN: dict[tuple[str, float], Costs] = {}


def costs(curve: str, change: float) -> Costs:
    """A machine that is known exactly, at 0.01 s a row; built once."""
    if (curve, change) not in _KNOWN:
        machine, known = Machine(CURVES[curve]), Costs()
        for _ in range(60):
            for rows in POINTS:
                known.measured(rows, 0.01 * machine.target(rows))
        for alike in range(STEADY):
            known.expect_change(alike, change * known.target(1) / STEADY)
        _KNOWN[curve, change] = known
    return _KNOWN[curve, change]


def batch_cost(
    known: Costs,
    plain_rows: int = 1,
    before: int = 0,
    repaid: float | None = None,
    multiple: int = 1,
) -> BatchCost:
    """Prices of a round in which any rows repay that share of a change, or nothing is known."""
    repays = () if repaid is None else (repaid * known.change_seconds,) * len(LEVELS)
    return BatchCost(known, plain_rows, before, repays=repays, multiple=multiple)


machines = st.builds(costs, st.sampled_from(list(CURVES)), st.sampled_from(CHANGES))
few = st.integers(1, 40)
shares = st.none() | st.floats(-1, 1)


@given(machines, few, st.integers(0, 40), shares, st.integers(0, 40))
def test_padding_is_never_dearer_than_no_padding(
    known: Costs, plain_rows: int, before: int, repaid: float | None, more: int
) -> None:
    """The rows decoded include those needed, and cost at most as much."""
    prices, rows = batch_cost(known, plain_rows, before, repaid=repaid), plain_rows + more
    padded = prices.padded(rows)
    assert padded >= rows
    assert prices.seconds(rows) <= known.target(rows) + prices.changing(rows) + 1e-12
    assert prices.seconds(rows) == known.target(padded) + prices.changing(padded)
    assert prices.padded(padded) == padded


@given(machines, few, few, shares, st.integers(2, 8))
def test_what_shares_a_forward_of_a_class_is_never_padded(
    known: Costs, plain_rows: int, before: int, repaid: float | None, multiple: int
) -> None:
    """Strict rows come in multiples, and no other row may join them."""
    prices = batch_cost(known, plain_rows, before, repaid=repaid, multiple=multiple)
    for rows in range(multiple, 60, multiple):
        assert prices.padded(rows) == rows


@pytest.mark.parametrize("curve", CURVES)
@given(few, few, shares, few)
def test_where_changes_are_free_the_forward_before_does_not_matter(
    curve: str, plain_rows: int, before: int, repaid: float | None, rows: int
) -> None:
    """The price is that of steady forwards, up to the little that no measurement tells from 0.

    And up to the padding that is nearly free.
    """
    known = costs(curve, 0.0)
    prices = batch_cost(known, plain_rows, before, repaid=repaid)
    steady = prices.steady.seconds(rows)
    assert abs(prices.seconds(rows) - steady) <= 4 * known.change_seconds + 0.03 * steady


@given(machines, few, few, shares, few)
def test_steady_prices_are_those_of_the_plateau(
    known: Costs, plain_rows: int, before: int, repaid: float | None, rows: int
) -> None:
    """Neither the forward before nor what comes next is in them, and padding is nearly free."""
    steady = batch_cost(known, plain_rows, before, repaid=repaid).steady
    assert steady.changing(rows) == 0
    assert steady.seconds(rows) == batch_cost(known).steady.seconds(rows)
    assert steady.seconds(rows) <= 1.03 * known.target(rows)
    assert all(steady.seconds(rows) <= 1.03**2 * known.target(more) for more in range(rows, 129))


@given(machines, few, shares, few)
def test_who_stays_where_the_forward_before_was_changes_nothing_now(
    known: Costs, before: int, repaid: float | None, rows: int
) -> None:
    """Going anywhere else costs a change more than from there, home exactly one."""
    here, there = (
        batch_cost(known, 1, before, repaid=repaid),
        batch_cost(known, 1, rows, repaid=repaid),
    )
    changes = (here.changing(rows) - there.changing(rows)) / known.change_seconds
    if rows == before:
        assert changes == 0
    elif rows == 1:
        assert changes == pytest.approx(1)
    else:
        assert 1 - 1e-9 <= changes <= 2


@given(machines, st.integers(2, 40))
def test_the_way_back_is_dear_only_where_drafting_will_not_go_on(known: Costs, rows: int) -> None:
    """From plain decoding a single draft pays both ways; whose rows repay themselves pays once."""
    alone, on = (batch_cost(known, 1, 1, repaid=repaid) for repaid in (None, 0.0))
    assert alone.changing(1) == on.changing(1) == 0
    way, change = on.changing(rows), known.change_seconds
    assert change * (1 - 1e-9) <= way <= 2 * change
    carried = 16 * max(0.0, known.target(rows) - known.target(1))
    assert way + min(change, carried) <= alone.changing(rows) + 1e-12 <= 2 * way + 1e-9


def test_a_dip_is_stepped_into() -> None:
    """Three rows where four are cheaper: four are decoded; two stay two, five stay five."""
    prices = batch_cost(costs("dip", 0.0))
    assert [prices.padded(rows) for rows in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 5]
    cards = batch_cost(costs("H100 7B", 0.0))
    assert cards.padded(8) == 9
    assert cards.seconds(8) < costs("H100 7B", 0.0).target(8)


def test_rows_are_padded_to_those_of_the_forward_before_where_changes_are_dear() -> None:
    """Five rows are decoded as the eight before; where changes are free, as five."""
    assert batch_cost(costs("H100 1.5B", 1.9), 1, 8, repaid=0.0).padded(5) == 8
    assert batch_cost(costs("H100 1.5B", 0.0), 1, 8, repaid=0.0).padded(5) == 5


@given(machines, few, few, st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_the_more_rows_repay_the_cheaper_they_are_and_never_by_more_than_a_change(
    known: Costs, before: int, rows: int, repaid: list[float]
) -> None:
    """Their later gain is counted now; a return to plain rows stays possible."""
    change = known.change_seconds
    less, more = (batch_cost(known, 1, before, share).changing(rows) for share in sorted(repaid))
    assert more <= less
    plain_rows = batch_cost(known, 1, rows).changing(1)
    assert rows == 1 or more >= (before != rows) * change - 1.6 * plain_rows - 1e-12


@pytest.mark.parametrize(("nodes", "stays"), [(1, False), (17, True)])
def test_many_rows_are_kept_for_large_drafts_and_not_for_small_ones(
    nodes: int, stays: bool
) -> None:
    """However often a small one comes: a head's guess of one token needs one row more."""
    known = costs("H100 1.5B", 1.9)
    brings = [0.005 * min(level, nodes) for level in LEVELS]
    savings = [ExpectedSaving(brings, rounds=16)]
    assert (with_savings(known, 1, 18, savings, 1).padded(1) == 18) == stays
    assert with_savings(known, 1, 18, [], 1).padded(1) == 1


@given(machines, few, shares)
def test_a_draft_of_nothing_is_free(known: Costs, before: int, repaid: float | None) -> None:
    """After any forward before it."""
    assert batch_cost(known, 1, before, repaid=repaid).rise(1, 0, 500.0) == 0


def test_each_row_looks_back_on_the_whole_text() -> None:
    """Behind a long text a draft's nodes cost more, every one of them by the same."""
    costs = Costs()
    batch_cost = BatchCost(costs, 1, multiple=1, free=True)
    near, far = (batch_cost.rises(1, 8, cells) for cells in (0.0, 3000.0))
    more = [there - here for here, there in zip(near, far, strict=True)]
    assert more == pytest.approx([nodes * 3000 * costs.attended_seconds for nodes in range(9)])
