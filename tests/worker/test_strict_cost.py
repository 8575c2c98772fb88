"""The cost of strict exactness alone decides what "auto" is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from localspec.worker.strict_cost import (
    MOST,
    RequestForwards,
    context_too_short,
    strict_cost_of,
    too_few_slots,
)

SAME = RequestForwards(step=0.02, row=0.02, read=0.001, chunk=0.001)
SECONDS = st.floats(1e-4, 10)


def test_what_costs_nothing_is_strict_and_what_costs_much_is_not() -> None:
    """As on a CPU whose rows agree, one where two rows take a tenth more, and a GPU."""
    assert strict_cost_of(SAME).strict
    assert "costs 0.0%" in strict_cost_of(SAME).why
    dear = strict_cost_of(replace(SAME, step=0.022))
    assert not dear.strict
    assert "would cost 10%" in dear.sentence
    assert not strict_cost_of(
        RequestForwards(step=0.0023, row=0.0018, read=0.0006, chunk=0.00001)
    ).strict


@given(SECONDS, SECONDS, st.floats(0, 1), st.floats(0, 1))
def test_the_border_is_where_it_is_said_to_be(
    row: float, chunk: float, step: float, read: float
) -> None:
    """And what is faster in strict use counts as free, never as a credit."""
    forwards = RequestForwards(row * (1 + step), row, chunk * (1 + read), chunk)
    assert strict_cost_of(forwards).strict == (forwards.price < MOST)
    assert min(step, read) - 1e-6 <= forwards.price <= max(step, read) + 1e-6
    assert RequestForwards(row, row * (1 + step), chunk, chunk * (1 + read)).price == 0.0


def test_requests_that_cannot_share_a_forward_are_too_dear() -> None:
    """With one slot there is nothing to share."""
    assert too_few_slots(16, 4) is None
    assert too_few_slots(1, 1) is None
    verdict = too_few_slots(2, 4)
    assert verdict is not None
    assert not verdict.strict


def test_a_context_may_become_shorter_unless_it_was_asked_for_or_is_short() -> None:
    """Each strict slot has its own part of the memory."""
    assert context_too_short(8192, 32768, asked=False) is None
    assert context_too_short(4096, 4096, asked=True) is None
    for strict, asked in ((8191, False), (32767, True)):
        verdict = context_too_short(strict, 32768, asked=asked)
        assert verdict is not None
        assert f"{strict} tokens instead of 32768" in verdict.why
