"""Measured costs weigh bets: pace, account and regret_budget, by events; no clock."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.regret import (
    ALLOWANCE,
    Outliers,
    PlainBaseline,
    PolicyRegret,
    RegretBudget,
)

seconds = st.floats(1e-4, 1e2)


def settled(row_seconds: float, rounds: int = 40) -> PlainBaseline:
    """Plain rounds of this length."""
    pace = PlainBaseline()
    for _ in range(rounds):
        pace.measured(row_seconds, 1.0)
    return pace


def until_due(pace: PlainBaseline) -> int:
    """Rounds that are not plain until one has to be."""
    rounds = 0
    while not pace.due:
        pace.passed()
        rounds += 1
    return rounds


@given(seconds)
def test_until_a_plain_round_was_seen_the_pace_is_what_is_believed(believed: float) -> None:
    """Then it is that round's."""
    pace = PlainBaseline()
    assert pace.seconds(believed) == believed
    pace.measured(0.03, 1.5)
    assert pace.seconds(believed) == pytest.approx(0.02)


@given(seconds, st.floats(1.05, 30), st.booleans())
def test_the_pace_follows_a_throttled_machine_and_no_outlier(
    row_seconds: float, factor: float, slower: bool
) -> None:
    """One round that was suspended moves it by 2 %; twenty-five that agree move it all the way."""
    ratio = factor if slower else 1 / factor
    pace = settled(row_seconds)
    pace.measured(ratio * row_seconds, 1.0)
    assert abs(math.log(pace.seconds(0) / row_seconds)) <= 0.02 + 1e-9
    for _ in range(25):
        pace.measured(ratio * row_seconds, 1.0)
    assert pace.seconds(0) == pytest.approx(ratio * row_seconds, rel=0.02)


@given(st.lists(seconds, min_size=1, max_size=40))
def test_the_pace_lies_between_what_was_measured(spans: list[float]) -> None:
    """For any measurements in any order."""
    pace = PlainBaseline()
    for span in spans:
        pace.measured(span, 1.0)
    assert min(spans) * (1 - 1e-9) <= pace.seconds(0) <= max(spans) * (1 + 1e-9)


def test_plain_rounds_are_made_seldom_where_they_tell_nothing_new() -> None:
    """24 rounds after the first, then less and less often, and soon again after a surprise."""
    pace = settled(0.02, 1)
    periods = []
    for _ in range(6):
        periods.append(until_due(pace))
        pace.measured(0.02, 1.0)
    assert periods == [24, 48, 96, 192, 192, 192]
    until_due(pace)
    pace.measured(0.04, 1.0)
    assert until_due(pace) == 24


def test_who_decodes_plainly_need_not_do_it_to_know() -> None:
    """Then it is known already: nothing changes how soon one is due again."""
    pace = settled(0.02, 1)
    for _ in range(100):
        pace.measured(0.02, 1.0)
        assert not pace.due
    assert until_due(pace) == 24


rounds = st.lists(st.tuples(st.integers(1, 20), st.floats(0, 40)), max_size=60)


@given(rounds)
def test_an_account_never_has_more_than_its_credit(events: list[tuple[int, float]]) -> None:
    """However much was gained: it is no licence to lose it all again."""
    account = PolicyRegret()
    for tokens, spent in events:
        before = account.balance
        account.book(tokens, spent)
        assert account.balance <= 6.0
        assert account.balance <= before + tokens - spent + 1e-9
        account.earn(tokens)
        assert account.balance <= 6.0


@given(rounds)
def test_whoever_stops_betting_at_nothing_loses_two_percent_of_a_thousand_tokens(
    events: list[tuple[int, float]],
) -> None:
    """Bets limited by what is left, of which none gives anything, for a thousand tokens."""
    account, tokens, lost = PolicyRegret(), 0, 0.0
    while tokens < 1000:
        for _, wish in [*events, (1, 1.0)]:
            regret_budget = min(wish, account.balance + ALLOWANCE)
            if regret_budget > 0:
                account.book(1, 1 + regret_budget)
                lost += regret_budget
            account.earn(1)
            tokens += 1
            if tokens == 1000:
                assert lost <= 20
    assert lost <= 12 + 0.006 * tokens + 1e-6


def test_nobody_is_silent_for_ever() -> None:
    """Plain tokens make up for what was lost."""
    account = PolicyRegret()
    account.book(0, ALLOWANCE)
    assert account.balance + ALLOWANCE <= 0
    for _ in range(100):
        account.earn(1)
    assert account.balance + ALLOWANCE > 0.5


@given(st.lists(st.tuples(seconds, seconds), max_size=30), st.floats(0, 10))
def test_what_is_left_to_lose_keeps_an_answer_within_its_bound(
    events: list[tuple[float, float]], waited: float
) -> None:
    """Rounds that take at most what is left leave it at most 50 ms and 5 % of its time behind."""
    regret_budget, elapsed, behind = RegretBudget(), waited, 0.0
    for wish, plain in events:
        span = min(plain + max(0.0, regret_budget.left(elapsed)), wish)
        regret_budget.advance(span, plain)
        elapsed += span
        behind += span - plain
        assert regret_budget.behind_seconds == pytest.approx(behind)
        assert behind <= 0.05 + 0.05 * elapsed + 1e-9


def test_a_slower_machine_makes_no_past_token_dearer() -> None:
    """A debt stays as it is, whatever plain rounds take from now on."""
    regret_budget = RegretBudget()
    for _ in range(100):
        regret_budget.advance(0.02, 0.02)
    left = regret_budget.left(0.0)
    regret_budget.advance(0.04, 0.04)
    assert regret_budget.left(0.0) == pytest.approx(left + 0.05 * 0.04)


events_of_rounds = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.floats(0.2, 60.0)), max_size=60
)
BELIEVED, MOST = 2.0, 40.0
"""Tokens of plain decoding that every round is believed to take, and the most that it may."""


def charged(outliers: Outliers, spent: float, kind: str = "", *, first: bool = False) -> float:
    """The charge for one round with drafts."""
    return outliers.charged(kind, spent, BELIEVED, MOST, first=first)


@given(events_of_rounds)
def test_long_rounds_are_forgiven_once(rounds: list[tuple[str, float]]) -> None:
    """As far as no fast one denies it that stays within the allowance and one round beyond it.

    However many kinds there are; a round is charged what is usual at least, and what it took at
    most.
    """
    outliers, known, forgiven = Outliers(), set[str](), 0.0
    for kind, rows in rounds:
        spent = max(rows, 1.5 * BELIEVED + 0.1)
        found = charged(outliers, spent, kind, first=kind not in known)
        known.add(kind)
        assert 1.5 * BELIEVED - 1e-9 <= found <= spent + 1e-9
        forgiven += min(spent, MOST) - min(found, MOST)
    assert forgiven <= ALLOWANCE + MOST


def test_first_forwards_are_forgiven_anew_where_later_ones_are_fast() -> None:
    """A card that captures each of thirty graphs in ten tokens' time loses nothing by it."""
    outliers = Outliers()
    for kind in map(str, range(30)):
        assert charged(outliers, 10.0, kind, first=True) == pytest.approx(1.5 * BELIEVED)
        assert charged(outliers, 2.0, kind) == 2.0


@given(st.integers(1, 10), st.floats(6.0, 40.0))
def test_rounds_that_are_long_again_and_again_are_charged(every: int, rows: float) -> None:
    """Of those that drafts make long now and then all but two are charged nearly in full."""
    outliers, missing = Outliers(), 0.0
    for number in range(20 * every):
        spent = rows if number % every == 0 else BELIEVED
        missing += spent - charged(outliers, spent)
    assert missing <= ALLOWANCE + 2 * rows


def test_a_long_round_is_forgiven_where_plain_ones_are_as_long() -> None:
    """Whether it was plain or had a draft: a busy machine holds up both."""
    outliers = Outliers()
    for _ in range(50):
        outliers.plain(20.0)
        assert charged(outliers, 20.0) == pytest.approx(1.5 * BELIEVED)
