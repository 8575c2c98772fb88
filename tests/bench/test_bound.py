"""The best time possible, against hand and brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_ms

from localspec.bench.bound import FixedDepth, Prices, best_ms, fixed_ms, plain_ms
from localspec.machine import Curve, Forwards, Host, Machine

PRICES = Prices(
    Forwards({1: 10.0, 2: 16.0, 4: 20.0, 8: 44.0}, read_row_ms=5.5), {"model": 3.0}, Host(1.0)
)

STAIRS = st.dictionaries(st.integers(1, 12), st.floats(0.5, 200), min_size=1).map(
    lambda found: dict(sorted(found.items()))
)
EXTRA = st.one_of(st.just(0.0), st.floats(0, 50), STAIRS)
ANY_PRICES = st.builds(
    Prices,
    st.builds(Forwards, STAIRS, EXTRA, EXTRA, st.floats(0, 0.1)),
    st.fixed_dictionaries({"model": st.floats(0, 100)}),
    st.builds(Host, st.floats(0, 10), st.floats(0, 2)),
    st.integers(1, 4),
    st.floats(0, 1000),
)
CHAINS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6)
SHORT = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3)


def brute_ms(
    position: int,
    chains: tuple[Sequence[int], Sequence[int]],
    prices: Prices,
    most: int,
    before: tuple[int, int] = (0, 0),
) -> float:
    """The least over every sequence of rounds and row counts, tried one by one.

    `before` are the rows of the last forward and how many in a row had them.
    """
    free, neural = chains
    if position == len(free):
        return 0.0
    wanted = range(1, most + 2)
    larger = [rows for rows in prices.forwards.steady_ms if prices.padded(rows) > max(wanted)]
    counts = {prices.padded(rows) for rows in (*wanted, *larger)}
    return min(
        prices.forward_ms(rows, alike)
        + prices.host.work_ms(1 + copied + drafted)
        + drafted * prices.draft_ms["model"]
        + brute_ms(position + copied + drafted + 1, chains, prices, most, (rows, alike + 1))
        for copied, drafted in survivors(position, free, neural, most)
        for rows in counts
        if rows > copied + drafted
        for alike in [before[1] if rows == before[0] else 0]
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


@given(SHORT, ANY_PRICES, st.integers(0, 3))
@settings(max_examples=50)
def test_it_is_the_least_of_all_sequences_of_rounds(
    chains: Sequence[tuple[int, int]], prices: Prices, most: int
) -> None:
    """On texts short enough to try them all, with every forward's history."""
    free, neural = consistent(chains)
    assert best_ms(free, {"model": neural}, prices, most) == pytest.approx(
        brute_ms(0, (free, neural), prices, most)
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
    """Perfect decisions lose nothing by a better drafter, nor by one drafter more."""
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


@given(CHAINS, ANY_PRICES, EXTRA, st.integers(0, 24))
def test_changes_that_cost_more_never_help(
    chains: Sequence[tuple[int, int]], prices: Prices, extra: Curve, most: int
) -> None:
    """Free changes are the best that a machine can have."""
    free, neural = consistent(chains)
    dearer = replace(prices, forwards=replace_ms(prices.forwards, change_ms=extra))
    without = replace(prices, forwards=replace_ms(prices.forwards, change_ms=0.0, settle_ms=0.0))
    slack = 1 + 1e-9
    best = best_ms(free, {"model": neural}, without, most)
    assert best <= best_ms(free, {"model": neural}, dearer, most) * slack


def test_a_cheaper_larger_count_is_taken_and_kept() -> None:
    """Nine rows at 5 ms are cheaper than eight at 20; staying with them saves the change."""
    stairs = Forwards({1: 4.0, 2: 20.0, 8: 20.0, 9: 5.0}, change_ms=7.0)
    copies = [7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert best_ms(copies, {}, Prices(stairs, {}), 31) == pytest.approx(7 + 5 + 5)
    assert plain_ms(3, Prices(stairs, {})) == pytest.approx(7 + 3 * 4)


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
    """This holds for any depths; without any it is plain decoding."""
    free, neural = consistent(chains)
    habits = [FixedDepth(free, copied), FixedDepth(neural, drafted, prices.draft_ms["model"])]
    slack = 1 + 1e-9
    for taken in ([], habits, habits[:1], habits[1:]):
        ms = fixed_ms(taken, len(free), prices)
        assert best_ms(free, {"model": neural}, prices, 6) <= ms * slack


def test_a_habit_pays_for_what_does_not_survive() -> None:
    """Rounds of 1, 2 and 4 rows take 11, 17 and 21 ms; the second habit's tokens 3 ms each.

    The first always drafts three, of which one at most survives; where it has nothing to draft,
    the second does.
    """
    first = FixedDepth([1, None, 0, 0], 3)
    second = FixedDepth([0, 0, 5, 0], 1, 3.0)
    assert fixed_ms([first], 4, PRICES) == pytest.approx(21.0 + 17.0 + 11.0)
    assert fixed_ms([second], 4, PRICES) == pytest.approx(17.0 + 3 + 17 + 3 + 17 + 3)
    behind = FixedDepth([None, None, 0, 0], 3)
    assert fixed_ms([behind, second], 4, PRICES) == pytest.approx(17 + 3 + 17 + 3 + 17 + 11)


def test_a_source_without_a_price_is_left_out() -> None:
    """The cost of a drafted token is never guessed."""
    assert best_ms([0, 0], {"stranger": [1, 1]}, PRICES, 24) == pytest.approx(22.0)


def test_prices_come_from_a_status() -> None:
    """As JSON has it; without a staircase there are none."""
    status = {
        "cost_ms_by_rows": {"2": 16.0, "1": 10.0},
        "draft_ms": {"model": 3.0},
        "host_ms": 1.0,
        "host_row_ms": 0.25,
        "row_multiple": 2,
    }
    stairs = Forwards({1: 10.0, 2: 16.0}, read_row_ms=8.0)
    assert Prices.of(status) == Prices(stairs, {"model": 3.0}, Host(1.0, 0.25), 2)
    far = {"far_tokens": 1000, "far_ms_by_rows": {"1": 14.0, "2": 24.0}}
    behind = Prices.of(status | far | {"far_draft_ms": {"model": 5.0}}, 500)
    stairs = Forwards({1: 12.0, 2: 20.0}, read_row_ms=10.0)
    assert behind == Prices(stairs, {"model": 4.0}, Host(1.0, 0.25), 2)
    assert Prices.of({"cost_ms_by_rows": {}}) is None
    assert Prices.of({}) is None


def test_a_stair_that_leads_down_was_measured_in_a_bad_moment() -> None:
    """So says the daemon of its own measurements; between and beyond them rows are interpolated."""
    prices = Prices.of({"cost_ms_by_rows": {"1": 9.0, "2": 4.0, "4": 8.0}})
    assert prices is not None
    assert [prices.forward_ms(rows, 2) for rows in (1, 2, 3, 4, 8)] == [4.0, 4.0, 6.0, 8.0, 16.0]


def test_prices_come_from_a_table() -> None:
    """Rows look back as far as the text goes; a drafted token is a steady row of the draft."""
    target = Forwards({1: 2.0}, change_ms=1.0, look_ms=0.001)
    machine = Machine("m", "s", target, Forwards({1: 1.0}, 5.0, 3.0, 0.002), Host(0.5, 0.1))
    prices = Prices.on(machine, ["model"], 100)
    assert prices.draft_ms == {"model": pytest.approx(1.2)}
    assert plain_ms(2, prices) == pytest.approx(1.0 + 2 * (2.1 + 0.5))
