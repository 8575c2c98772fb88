"""When a draft model reads the end of a text instead of all of it. Values and event lists."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control.known import LONG, controller
from control.simulator import Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.controller import Controller
from localspec.control.round import DraftPlan, Neural, View
from localspec.control.weighing import WINDOW, gap

CURVE = {1: 1, 2: 1.1, 4: 1.26, 8: 1.64, 12: 2.1, 16: 2.7, 32: 5}
"""Few rows are cheap, and a row that a draft model reads is not."""
PROMPT = Neural("neural", 70, skipped=0)
SURE = View(neural=(PROMPT,), budget=16, remaining=50.0, target_confidence=0.97)


def rounds(view: View, count: int = 12, control: Controller | None = None) -> list[DraftPlan]:
    """Plans for an answer that goes on and finds nothing to copy."""
    control = control or controller(CURVE, step=0.25, read=0.055)
    stats = control.open_session()
    plans = []
    for token in range(count):
        seconds = view.elapsed_seconds + 0.03 * token
        neural = tuple(replace(each, pending=each.pending + token) for each in view.neural)
        now = replace(view, stats=stats, neural=neural, elapsed_seconds=seconds)
        plans += control.plan([now])
        if plans[-1].extend is not None:
            break
    return plans


def test_the_end_is_read_where_the_whole_may_not_be_risked() -> None:
    """As soon as enough may be lost for it, and what the text promises repays it three times."""
    *before, last = rounds(SURE)
    assert all(plan.extend is None for plan in before)
    assert before, "a promise is not believed at once"
    assert (last.extend, last.budget > 0) == ("neural", True)
    assert PROMPT.pending + len(before) - last.skip == WINDOW


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(replace(SURE, neural=(replace(PROMPT, skipped=None),)), id="cannot"),
        pytest.param(replace(SURE, neural=(replace(PROMPT, pending=90),)), id="holds too little"),
        pytest.param(replace(SURE, neural=(replace(PROMPT, skipped=20),)), id="had a gap before"),
        pytest.param(replace(SURE, remaining=12.0), id="ends soon"),
        pytest.param(replace(SURE, target_confidence=0.45), id="not sure"),
    ],
)
def test_it_is_not_read_where_it_would_not_pay(view: View) -> None:
    """Nobody drafts then, as long as the whole may not be risked."""
    assert all(plan.extend is None for plan in rounds(view))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(replace(SURE, elapsed_seconds=LONG), id="may be risked"),
        pytest.param(replace(SURE, always=True), id="whatever it costs"),
    ],
)
def test_the_whole_is_read_where_that_may_be(view: View) -> None:
    """A gap is for want of time only."""
    last = rounds(view)[-1]
    assert (last.extend, last.skip) == ("neural", 0)


def test_who_can_read_on_in_parts_does() -> None:
    """Where a row is less than may be lost for each new token, the whole is reached in time."""
    cheap = controller(CURVE, step=0.25, read=0.02)
    last = rounds(SURE, 40, cheap)[-1]
    assert (last.extend, last.skip) == ("neural", 0)


def test_what_would_be_read_too_late_is_not_read_at_all() -> None:
    """Where nearly all that may be lost for a token goes into reading that token."""
    late = controller(CURVE, step=0.25, read=0.048)
    view = replace(SURE, neural=(replace(PROMPT, pending=110),))
    assert all(plan.extend is None for plan in rounds(view, 40, late))


def test_rows_that_pay_little_repay_nothing() -> None:
    """Where verifying is dear, what drafts save is less than reading takes."""
    machine = Machine(Q4_K)
    assert machine.target(4) > 2 * CURVE[4]
    dear = controller(Q4_K, step=0.25, read=0.055)
    assert all(
        plan.extend is None for plan in rounds(replace(SURE, target_confidence=0.9), control=dear)
    )


@given(pending=st.integers(0, 10_000), skipped=st.none() | st.integers(0, 10_000))
def test_a_gap_leaves_the_window_and_that_is_enough_of_the_text(
    pending: int, skipped: int | None
) -> None:
    """Or there is no gap."""
    left_out = gap(Neural("neural", pending, skipped=skipped))
    if left_out:
        assert pending - left_out == WINDOW
        assert skipped is not None
        assert 3 * (pending + skipped) <= 8 * WINDOW
    else:
        assert skipped is None or pending <= WINDOW or 3 * (pending + skipped) > 8 * WINDOW
