"""The best time possible, against hand and brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.bound import Habit, Prices, best_ms, fixed_ms, plain_ms

PRICES = Prices([(1, 10.0), (2, 16.0), (4, 20.0), (8, 44.0)], {"model": 3.0}, host_ms=1.0)

STAIRS = st.dictionaries(st.integers(1, 12), st.floats(0.5, 200), min_size=1).map(
    lambda found: sorted(found.items())
)
ANY_PRICES = st.builds(
    Prices,
    STAIRS,
    st.fixed_dictionaries({"model": st.floats(0, 100)}),
    st.floats(0, 10),
    st.integers(1, 4),
)
CHAINS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6)


def brute_ms(
    position: int,
    free: Sequence[int],
    neural: Sequence[int],
    prices: Prices,
    most: int,
) -> float:
    """The least over every sequence of rounds, tried one by one."""
    if position == len(free):
        return 0.0
    return min(
        prices.rounds_ms(copied + drafted)[-1]
        + drafted * prices.draft_ms["model"]
        + brute_ms(position + copied + drafted + 1, free, neural, prices, most)
        for copied, drafted in survivors(position, free, neural, most)
    )


def survivors(
    position: int, free: Sequence[int], neural: Sequence[int], most: int
) -> Iterator[tuple[int, int]]:
    """Every (copied, drafted) that survives whole and leaves a place for the target's own token."""
    room = len(free) - position - 1
    for copied in range(most + 1):
        for drafted in range(most + 1):
            fits = copied + drafted <= min(most, room)
            if fits and copied <= free[position] and drafted <= neural[position + copied]:
                yield copied, drafted


def consistent(chains: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Chains that end with the text."""
    left = range(len(chains), 0, -1)
    free, neural = zip(*chains, strict=True)
    return [min(pair) for pair in zip(free, left, strict=True)], [
        min(pair) for pair in zip(neural, left, strict=True)
    ]


@given(CHAINS, ANY_PRICES, st.integers(0, 6))
def test_it_is_the_least_of_all_sequences_of_rounds(
    chains: Sequence[tuple[int, int]], prices: Prices, most: int
) -> None:
    """On texts short enough to try them all."""
    free, neural = consistent(chains)
    assert best_ms(free, {"model": neural}, prices, most) == pytest.approx(
        brute_ms(0, free, neural, prices, most)
    )


@given(CHAINS, ANY_PRICES, st.integers(0, 24))
def test_it_is_never_slower_than_plain(
    chains: Sequence[tuple[int, int]], prices: Prices, most: int
) -> None:
    """Drafting nothing is always one of the choices."""
    free, neural = consistent(chains)
    best = best_ms(free, {"model": neural}, prices, most)
    assert best <= plain_ms(len(free), prices) * (1 + 1e-9)


@given(CHAINS, st.lists(st.integers(0, 3), min_size=12, max_size=12), ANY_PRICES)
def test_more_that_survives_never_takes_longer(
    chains: Sequence[tuple[int, int]], more: Sequence[int], prices: Prices
) -> None:
    """A better drafter cannot hurt whoever decides perfectly; nor can one drafter more."""
    free, neural = consistent(chains)
    raised = [
        (one + more[place], other + more[-1 - place])
        for place, (one, other) in enumerate(zip(free, neural, strict=True))
    ]
    better_free, better_neural = consistent(raised)
    best = best_ms(free, {"model": neural}, prices, 8)
    slack = 1 + 1e-9
    assert best_ms(better_free, {"model": better_neural}, prices, 8) <= best * slack
    assert best <= best_ms(free, {}, prices, 8) * slack
    assert best <= best_ms([0] * len(free), {"model": neural}, prices, 8) * slack


@given(STAIRS, st.integers(1, 4))
def test_rounds_never_get_cheaper_with_rows(
    stairs: Sequence[tuple[int, float]], multiple: int
) -> None:
    """Between what was measured, beyond it, and where a stair was measured in a bad moment."""
    rounds = Prices(stairs, {}, 0.5, multiple).rounds_ms(24)
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(rounds))


def test_rounds_between_and_beyond_what_was_measured() -> None:
    """Straight lines between stairs; beyond the last one a row costs what its rows cost each."""
    assert PRICES.rounds_ms(3) == [11.0, 17.0, 19.0, 21.0]
    assert PRICES.rounds_ms(15)[15] == 1 + 88.0
    assert Prices([(1, 9.0), (2, 4.0)], {}).rounds_ms(1) == [4.0, 4.0]
    assert Prices(PRICES.stairs, {}, row_multiple=4).rounds_ms(4) == [20.0] * 4 + [44.0]


CASES: Mapping[str, tuple[list[int], list[int], float]] = {
    "nothing survives": ([0, 0, 0, 0], [0, 0, 0, 0], 4 * 11.0),
    "a copy of three and the bonus": ([3, 2, 1, 1], [0] * 4, 21.0),
    "the last token needs no draft": ([9], [9], 11.0),
    "a drafted token is cheaper than another round": ([0, 0], [1, 1], 17.0 + 3.0),
    "a copy continued by a draft": ([1, 0, 0, 0], [0, 2, 1, 0], 21.0 + 2 * 3.0),
}


@pytest.mark.parametrize("name", CASES)
def test_small_texts_computed_by_hand(name: str) -> None:
    """Rounds of 1, 2 and 4 rows take 11, 17 and 21 ms; a drafted token 3 ms."""
    free, neural, expected = CASES[name]
    assert best_ms(free, {"model": neural}, PRICES, 24) == pytest.approx(expected)


@given(CHAINS, ANY_PRICES, st.integers(0, 6), st.integers(0, 6))
def test_no_fixed_setting_beats_the_best_decisions(
    chains: Sequence[tuple[int, int]], prices: Prices, copied: int, drafted: int
) -> None:
    """Whatever depths are set; without any it is plain decoding."""
    free, neural = consistent(chains)
    habits = [Habit(free, copied), Habit(neural, drafted, prices.draft_ms["model"])]
    slack = 1 + 1e-9
    for taken in ([], habits, habits[:1], habits[1:]):
        ms = fixed_ms(taken, len(free), prices.rounds_ms(6))
        assert best_ms(free, {"model": neural}, prices, 6) <= ms * slack
    assert fixed_ms([], len(free), prices.rounds_ms(0)) == pytest.approx(
        plain_ms(len(free), prices)
    )


def test_a_habit_pays_for_what_does_not_survive() -> None:
    """Rounds of 1, 2 and 4 rows take 11, 17 and 21 ms; the second habit's tokens 3 ms each.

    The first always drafts three, of which one at most survives; where it has nothing to draft,
    the second does.
    """
    rounds = PRICES.rounds_ms(3)
    first = Habit([1, None, 0, 0], 3)
    second = Habit([0, 0, 5, 0], 1, 3.0)
    assert fixed_ms([first], 4, rounds) == pytest.approx(21.0 + 17.0 + 11.0)
    assert fixed_ms([second], 4, rounds) == pytest.approx(17.0 + 3 + 17 + 3 + 17 + 3)
    behind = Habit([None, None, 0, 0], 3)
    assert fixed_ms([behind, second], 4, rounds) == pytest.approx(17 + 3 + 17 + 3 + 17 + 11)


def test_a_source_without_a_price_is_left_out() -> None:
    """What a drafted token costs is never guessed."""
    assert best_ms([0, 0], {"stranger": [1, 1]}, PRICES, 24) == pytest.approx(22.0)


def test_prices_come_from_a_status() -> None:
    """As JSON has it; without a staircase there are none."""
    status = {
        "cost_ms_by_rows": {"2": 16.0, "1": 10.0},
        "draft_ms": {"model": 3.0},
        "host_ms": 1.0,
        "row_multiple": 2,
    }
    assert Prices.of(status) == Prices([(1, 10.0), (2, 16.0)], {"model": 3.0}, 1.0, 2)
    far = {"far_tokens": 1000, "far_ms_by_rows": {"1": 14.0, "2": 24.0}}
    behind = Prices.of(status | far | {"far_draft_ms": {"model": 5.0}}, 500)
    assert behind == Prices([(1, 12.0), (2, 20.0)], {"model": 4.0}, 1.0, 2)
    assert Prices.of({"cost_ms_by_rows": {}}) is None
    assert Prices.of({}) is None
