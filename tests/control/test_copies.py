"""The cost of drafts where only a copy of the state takes them back."""

from __future__ import annotations

import itertools

import pytest
from control.known import LONG, chain, controller, decide
from control.simulator import Q4_K
from control.test_batch_cost import batch_cost, few, machines
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.costs import Costs
from localspec.control.round import View

survivals = st.lists(st.floats(0, 1), max_size=16).map(lambda each: sorted(each, reverse=True))


@given(machines, few, survivals)
def test_where_cells_can_be_forgotten_a_rejection_costs_nothing_more(
    known: Costs, plain_rows: int, survival: list[float]
) -> None:
    """For every number of nodes."""
    assert batch_cost(known, plain_rows).rollback_costs(survival) == [(0.0, 0.0)] * (
        1 + len(survival)
    )


@given(machines, few, survivals, st.floats(0, 1))
def test_going_back_to_a_copy_is_priced(
    known: Costs, plain_rows: int, survival: list[float], copy: float
) -> None:
    """A copy at least, two and all rows again at most; no draft costs none, a sure one a copy."""
    states = Costs.from_dict(known.to_dict() | {"copy_seconds": copy})
    prices = batch_cost(states, plain_rows)
    nothing, *found = prices.rollback_costs(survival)
    assert nothing == (0.0, 0.0)
    for nodes, each in enumerate(found, start=1):
        again = 2 * max(map(states.target, range(1, nodes + 1)))
        falling = max(
            0.0, states.target(plain_rows) - states.target(plain_rows + nodes)
        )  # more may be cheaper
        assert copy - 1e-9 <= each.seconds
        assert each.most >= 2 * copy - 1e-9
        assert each.seconds <= 2 * copy + again + falling + 1e-9
    sure = prices.rollback_costs([1.0] * len(survival))
    for nodes, each in enumerate(sure[1:], start=1):
        apart = max(
            0.0,
            states.target(nodes) - states.target(plain_rows + nodes) + states.target(plain_rows),
        )
        assert each.seconds == pytest.approx(copy + (apart if plain_rows > 1 else 0.0))


@given(machines, few, survivals, st.floats(0, 1), st.integers(1, 8))
def test_where_snapshots_reach_a_draft_needs_no_copy(
    known: Costs, plain_rows: int, survival: list[float], copy: float, reach: int
) -> None:
    """A longer one needs it, and is read again as far only as snapshots do not reach."""
    states = Costs.from_dict(known.to_dict() | {"copy_seconds": copy})
    copied = batch_cost(states, plain_rows).rollback_costs(survival)
    sure = batch_cost(states, plain_rows).rollback_costs([1.0] * len(survival))
    apart = [0.0, *(each.seconds - copy for each in sure[1:])]
    states.snapshots = reach
    found = batch_cost(states, plain_rows).rollback_costs(survival)
    assert len(found) == len(copied)
    for nodes, each in enumerate(found):
        if nodes <= reach:
            assert each == pytest.approx((apart[nodes], apart[nodes]), abs=1e-9)
        else:
            assert each.seconds >= copy + apart[nodes] - 1e-9
            short = copied[nodes - reach]
            again = short.seconds - copy - apart[nodes - reach]
            assert each.seconds == pytest.approx(copy + apart[nodes] + again, abs=1e-9)


@pytest.mark.parametrize("elapsed", [0.0, LONG])
@pytest.mark.parametrize("prior", [0.5, 0.8, 0.99])
def test_the_dearer_a_copy_the_less_is_drafted(prior: float, elapsed: float) -> None:
    """The cost of a state's copies counts against a draft, and against what may be lost."""
    view = View(free=(chain([prior] * 15),), budget=24, elapsed_seconds=elapsed)
    counts = []
    for copies in (None, 0.0, 0.2, 1.0, 8.0, 100.0):
        control = controller(Q4_K)
        if copies is not None:
            control.costs.measured_copy(copies * 0.03)
        counts.append(decide(control, view)[1])
    assert counts[-1] == 0
    assert all((after == 0) >= (before == 0) for before, after in itertools.pairwise(counts))
    assert (counts[2] > 0) == (prior == 0.99 and elapsed > 0)
