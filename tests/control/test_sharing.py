"""Several sessions in one decode: whose rows are whose, and what they leave to others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from control.known import FLAT, LONG, chain, controller
from control.simulator import ALMOST_FLAT, GPU, Q4_0, Q4_K
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.control.batch_cost import BatchCost
from localspec.control.controller import ADVANTAGE, Controller
from localspec.control.forwards import Layout, forwards
from localspec.control.round import Bet, Drafted, Neural, Round, VerifiedDraft, View
from localspec.types import Draft


def test_sessions_that_draft_together_are_charged_alike() -> None:
    """They share the draft's forwards; who is settled first does not matter."""
    control = controller(Q4_0, step=0.2)
    views = [
        View(
            neural=(Neural("neural", 1),),
            budget=8,
            stats=control.open_session(),
            target_confidence=0.95,
        )
        for _ in range(2)
    ]
    plans = control.plan(views)
    assert [plan.extend for plan in plans] == ["neural", "neural"]
    memories = [view.stats for view in views if view.stats is not None]
    for view in views:
        view.decision.bet = Bet(
            "neural", 1.0, 2.0, 30.0
        )  # the same promise, whichever was planned first
    draft = chain([0.9, 0.9], "neural")
    control.cut(views, [draft, draft])
    drafted = (Drafted("neural", 2, 2, 0.02),)
    judged = (VerifiedDraft(draft, 1), VerifiedDraft(draft, 1))
    control.observe(Round(6, 0.08, 0.0005, drafted, tuple(views), judged, ((1, 7), (1, 7))))
    first, second = memories
    assert first.source("neural").bias.doubt == pytest.approx(second.source("neural").bias.doubt)


def test_nobody_drafts_for_rows_that_others_will_take() -> None:
    """Eight rows are cheap and the ninth is not: behind a sure copy of another session's, no draft.

    By itself it would: what it drafted beside that copy would be cut again.
    """
    control = controller({1: 1, 8: 1.1, 9: 20, 32: 40}, step=0.1)
    copying = View(free=(chain([0.99] * 6),), budget=8, elapsed_seconds=LONG)
    drafting = View(
        neural=(Neural("neural", 1),), budget=8, target_confidence=0.95, elapsed_seconds=LONG
    )
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
    batch_cost = BatchCost(control.costs, len(mine) * multiple, multiple=multiple)
    rate = len(mine) / (control.costs.target(batch_cost.plain_rows) + control.costs.host_seconds)

    def worth(counts: Sequence[int]) -> float:
        gain, rows = 0.0, 0
        for draft, count in zip(mine, counts, strict=True):
            gain += sum(control.acceptance.survival(draft.signals[:count]))
            rows += -(-(1 + count) // multiple) * multiple
        return gain - rate * batch_cost.seconds(rows)

    every = itertools.product(*(range(len(draft) + 1) for draft in mine))
    best = max(map(worth, every))
    chosen = worth(control.cut(views, mine))
    assert chosen >= worth([0] * len(mine)) - 1e-9
    if multiple == 1:
        assert chosen >= best - ADVANTAGE * len(mine) - 1e-9


@pytest.mark.parametrize("layout", ["streams", "apart"])
@given(drafts, st.sampled_from([Q4_K, Q4_0, GPU, ALMOST_FLAT]), st.sampled_from([1, 4]))
def test_what_is_verified_is_worth_the_forwards_that_are_made_of_it(
    layout: Layout, mine: list[Draft], curve: dict[int, float], multiple: int
) -> None:
    """Sessions with memories of their own: several forwards, or as many rows of each in one.

    No round is worth less than a plain one, nor than any in which all draft alike.
    """
    control = _known(curve, multiple, layout)
    views = [View(free=(draft,), budget=8) for draft in mine]
    control.plan(views)
    target, sessions = control.costs.target, len(mine)

    def seconds(rows: Sequence[int]) -> float:
        apart = sum(map(target, forwards(dict(enumerate(rows)), layout)))
        return min(apart, target(sessions * max(rows))) if layout == "streams" else apart

    def worth(counts: Sequence[int]) -> float:
        gains = (
            sum(control.acceptance.survival(draft.signals[:count]))
            for draft, count in zip(mine, counts, strict=True)
        )
        rows = [-(-(1 + count) // multiple) * multiple for count in counts]
        return sum(gains) - rate * seconds(rows)

    rate = sessions / (seconds([multiple] * sessions) + control.costs.host_seconds)
    chosen = worth(control.cut(views, mine))
    assert chosen >= worth([0] * sessions) - 1e-9
    alike = (worth([min(most, len(draft)) for draft in mine]) for most in range(5))
    if sessions > 1:
        assert chosen >= max(alike) - ADVANTAGE * sessions - 1e-9


def test_a_draft_beside_others_is_a_forward_more() -> None:
    """Where each row is dear, two nodes are worth it in one cache, and not where that is split."""
    copying = View(free=(chain([0.97, 0.97]),), budget=8, elapsed_seconds=LONG)
    plain = View(budget=8, elapsed_seconds=LONG)

    def drafted(layout: Layout, curve: dict[int, float], *views: View) -> list[int]:
        control = controller(curve, layout=layout)
        plans = control.plan(views)
        return control.cut(views, [plan.base for plan in plans])

    assert drafted("shared", Q4_K, copying, plain) == [2, 0]
    assert drafted("streams", Q4_K, copying, plain) == [0, 0]
    assert drafted("streams", Q4_K, copying) == drafted("shared", Q4_K, copying) == [2]
    assert drafted("streams", GPU, copying, plain) == [2, 0]  # as six rows in one forward
    assert drafted("streams", GPU, copying, copying) == [2, 2]


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


_KNOWN: dict[tuple[int, int, Layout], Controller] = {}


def _known(curve: dict[int, float], multiple: int, layout: Layout = "shared") -> Controller:
    """Controllers that learn nothing in between, built once."""
    key = id(curve), multiple, layout
    if key not in _KNOWN:
        _KNOWN[key] = controller(curve, multiple=multiple, layout=layout)
    return _KNOWN[key]
