"""The index of earlier occurrences against a search by brute force."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters._occurrences import (
    LEVELS,
    MAX_CANDIDATES,
    MAX_MATCH,
    REPEAT_TOKENS,
    Match,
    Occurrences,
)

texts = st.integers(2, 5).flatmap(
    lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=120)
)


def brute_force(text: list[int], ahead: list[int]) -> list[Match]:
    """Every earlier occurrence of the end of text + ahead, longest first, then latest first."""
    whole = text + ahead
    last = len(text) if ahead else len(text) - 1
    found = []
    for position in range(last, 0, -1):
        length = 0
        while (
            length < min(position, MAX_MATCH)
            and text[position - 1 - length] == whole[len(whole) - 1 - length]
        ):
            length += 1
        if length:
            found.append(Match(position, length))
    return sorted(found, key=lambda match: -match.length)


def same_class(matches: list[Match]) -> list[Match]:
    """Matches that share the longest power of two up to the largest block."""
    if not matches:
        return []
    block = 1 << min(LEVELS - 1, matches[0].length.bit_length() - 1)
    return [match for match in matches if match.length >= block]


@given(texts, st.lists(st.integers(0, 4), max_size=6))
def test_search_equals_brute_force(text: list[int], ahead: list[int]) -> None:
    """All occurrences in the same order; of too many, the latest."""
    expected = same_class(brute_force(text, ahead))
    found = Occurrences(text).search(ahead)
    if len(expected) <= MAX_CANDIDATES:
        assert found == expected
    else:
        latest = sorted(expected, key=lambda match: -match.position)[:MAX_CANDIDATES]
        assert found == sorted(latest, key=lambda match: -match.length)


@given(texts, st.lists(st.integers(1, 9), max_size=40))
def test_an_index_grown_in_pieces_equals_one_built_at_once(
    text: list[int], pieces: list[int]
) -> None:
    """`extend` may cut the text anywhere."""
    grown = Occurrences()
    rest = list(text)
    for size in pieces:
        grown.extend(rest[:size])
        rest = rest[size:]
    grown.extend(rest)
    assert grown.text == text
    assert grown.search() == Occurrences(text).search()
    assert grown.search([0, 1]) == Occurrences(text).search([0, 1])


@given(texts, st.integers(0, 130), st.integers(1, 60))
def test_near_finds_the_best_occurrence_inside_its_window(
    text: list[int], place: int, window: int
) -> None:
    """The longest agreement that ends in the window; the first of several."""
    inside = [
        match
        for match in brute_force(text, [])
        if place < match.position <= min(place + window, len(text) - 1)
    ]
    best = min(inside, key=lambda match: (-match.length, match.position), default=None)
    assert Occurrences(text).near(place, window) == best


@given(st.lists(st.integers(0, 1), max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_of_equal_continuations_the_longest_agreement_wins(
    text: list[int], position: int, stop: int
) -> None:
    """The tokens before the places decide between occurrences that go on alike."""
    equal = [
        start
        for start in range(position)
        if position + REPEAT_TOKENS <= len(text)
        and text[start : start + REPEAT_TOKENS] == text[position : position + REPEAT_TOKENS]
    ]
    prefix_sharing = [start for start in equal if start < stop]
    found = Occurrences(text).repeat(position, stop)
    assert (
        found in prefix_sharing
        if found is not None
        else not prefix_sharing or len(equal) > MAX_CANDIDATES
    )

    def common(at: int) -> int:
        pairs = zip(reversed(text[:at]), reversed(text[:position]), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    if prefix_sharing and len(equal) <= MAX_CANDIDATES:
        assert found is not None
        assert common(found) == max(map(common, prefix_sharing))


def calls(work: Callable[[], object]) -> int:
    """Number of calls that `work` makes, C functions included: independent of a busy machine."""
    count = 0

    def tally(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_token_costs_the_same_in_a_periodic_text_as_in_any_other() -> None:
    """Building is linear and a search does not grow with the text, where everything matches."""
    small, large = Occurrences([7] * 4000), Occurrences([7] * 8000)
    assert calls(large.search) == calls(small.search)
    assert calls(lambda: large.extend([7])) == calls(lambda: small.extend([7]))
    assert calls(lambda: Occurrences([7] * 8000)) < 2.01 * calls(lambda: Occurrences([7] * 4000))
