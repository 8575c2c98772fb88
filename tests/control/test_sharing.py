"""Several sessions in one decode: whose rows are whose, and what they leave to others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from control.known import FLAT, LONG, chain, controller
from control.simulator import GPU, Q4_0, Q4_K
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.control.controller import (
    ADVANTAGE,
    Controller,
    Drafted,
    Judged,
    Neural,
    Round,
    View,
)
from localspec.control.tariff import Tariff
from localspec.types import Draft


def test_sessions_that_draft_together_are_charged_alike() -> None:
    """They share the draft's forwards; who is settled first does not matter."""
    control = controller(Q4_0, step=0.2)
    views = [
        View(neural=(Neural("neural", 1),), budget=8, memory=control.open_session(), ease=0.95)
        for _ in range(2)
    ]
    plans = control.plan(views)
    assert [plan.extend for plan in plans] == ["neural", "neural"]
    memories = [view.memory for view in views if view.memory is not None]
    for memory in memories:
        memory.bet(1.0, 2.0, 30.0)  # the same promise, whichever was planned first
    draft = chain([0.9, 0.9], "neural")
    control.cut(views, [draft, draft])
    drafted = (Drafted("neural", 2, 2, 0.02),)
    judged = (Judged(draft, 1), Judged(draft, 1))
    control.observe(Round(6, 0.08, 0.0005, drafted, tuple(views), judged, ((1, 7), (1, 7))))
    first, second = memories
    assert first.doubt == pytest.approx(second.doubt)


def test_nobody_drafts_for_rows_that_others_will_take() -> None:
    """Eight rows are cheap and the ninth is not: behind a sure copy of another session's, no draft.

    By itself it would: what it drafted beside that copy would be cut again.
    """
    control = controller({1: 1, 8: 1.1, 9: 20, 32: 40}, step=0.1)
    copying = View(free=(chain([0.99] * 6),), budget=8, elapsed_seconds=LONG)
    drafting = View(neural=(Neural("neural", 1),), budget=8, ease=0.95, elapsed_seconds=LONG)
    assert [plan.extend for plan in control.plan([View(budget=8), drafting])] == [None, "neural"]
    plans = control.plan([copying, drafting])
    assert [(len(plan.base), plan.extend) for plan in plans] == [(6, None), (0, None)]


drafted = st.lists(st.floats(0.05, 0.99), max_size=4).map(chain)
drafts = st.lists(drafted, min_size=1, max_size=3)


@given(drafts, st.sampled_from([Q4_K, Q4_0, GPU]), st.sampled_from([1, 4]))
def test_sessions_share_the_rows_of_one_decode_as_well_as_brute_force(
    mine: list[Draft], curve: dict[int, float], multiple: int
) -> None:
    """No other division of rows promises more, up to the advantage asked of any speculation."""
    control = _known(curve, multiple)
    views = [View(free=(draft,), budget=8) for draft in mine]
    control.plan(views)
    tariff = Tariff(control.costs, len(mine) * multiple, multiple=multiple)
    rate = len(mine) / (control.costs.target(tariff.home) + control.costs.host_seconds)

    def worth(counts: Sequence[int]) -> float:
        gain, rows = 0.0, 0
        for draft, count in zip(mine, counts, strict=True):
            gain += sum(control.acceptance.survival(draft.signals[:count]))
            rows += -(-(1 + count) // multiple) * multiple
        return gain - rate * tariff.seconds(rows)

    every = itertools.product(*(range(len(draft) + 1) for draft in mine))
    best = max(map(worth, every))
    chosen = worth(control.cut(views, mine))
    assert chosen >= worth([0] * len(mine)) - 1e-9
    if multiple == 1:
        assert chosen >= best - (ADVANTAGE - 1) * len(mine) - 1e-9


@settings(max_examples=40)
@given(
    st.lists(st.tuples(drafted, st.integers(0, 30_000)), min_size=2, max_size=3),
    st.sampled_from([Q4_0, GPU, FLAT]),
)
def test_whose_rows_are_whose_does_not_depend_on_their_order(
    asked: list[tuple[Draft, int]], curve: dict[int, float]
) -> None:
    """Each session has its own draft and its own length, wherever it stands among the others."""
    control = _known(curve, 1)
    chances = [alive for draft, _ in asked for alive in control.acceptance.survival(draft.signals)]
    assume(len(set(chances)) == len(chances))

    def counts(asked: Sequence[tuple[Draft, int]]) -> list[int]:
        views = [View(budget=8, cells=cells) for _, cells in asked]
        control.plan(views)
        return control.cut(views, [draft for draft, _ in asked])

    assert counts(asked[::-1]) == counts(asked)[::-1]


_KNOWN: dict[tuple[int, int], Controller] = {}


def _known(curve: dict[int, float], multiple: int) -> Controller:
    """Controllers that learn nothing in between, built once."""
    return _KNOWN.setdefault((id(curve), multiple), controller(curve, multiple=multiple))
