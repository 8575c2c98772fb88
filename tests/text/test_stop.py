"""Laws of stop strings."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.text.stop import StopMatcher

SMALL = st.text("ab\n", max_size=30)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=5), max_size=4)


def naive(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text up to the stop string completed first, the longest of those, and if there is one."""
    for end in range(len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(st.lists(SMALL, max_size=12), STOPS)
@example(["ab", "ab"], ["abab", "ba"])
def test_streaming_equals_a_naive_search_of_the_whole_text(
    pieces: list[str], stops: list[str]
) -> None:
    """However the text is cut, what goes out in the end is what a search of the whole leaves."""
    matcher = StopMatcher(stops)
    out = "".join(matcher.push(piece) for piece in pieces) + matcher.flush()
    assert (out, matcher.stopped) == naive("".join(pieces), stops)


@given(SMALL, STOPS)
def test_nothing_is_let_out_too_early_and_nothing_is_held_too_long(
    text: str, stops: list[str]
) -> None:
    """After each character, exactly the suffix that may yet become a stop string is held back."""
    matcher = StopMatcher(stops)
    out = ""
    for end in range(1, len(text) + 1):
        out += matcher.push(text[end - 1])
        if matcher.stopped:
            return
        held = text[len(out) : end]
        beginnings = [text[start:end] for start in range(end)]
        possible = [b for b in beginnings if any(s.startswith(b) for s in stops)]
        assert held == (possible[0] if possible else "")


@given(st.lists(SMALL, max_size=8), STOPS)
def test_the_piece_that_completes_a_stop_string_is_the_one_that_stops(
    pieces: list[str], stops: list[str]
) -> None:
    """`stopped` turns true with the very piece in which the search first finds a stop string."""
    matcher = StopMatcher(stops)
    for count, piece in enumerate(pieces, 1):
        matcher.push(piece)
        assert matcher.stopped == naive("".join(pieces[:count]), stops)[1]


@pytest.mark.timeout(60)
def test_a_long_text_that_nearly_stops_all_the_time_takes_no_longer() -> None:
    """A token is as cheap behind a thousand characters of a stop string as behind none."""
    matcher = StopMatcher([f"{'a' * 1020}b{number}" for number in range(16)])
    out = "".join(matcher.push("a") for _ in range(30_000))
    assert len(out) == 30_000 - 1020
    assert matcher.push("b7") == ""
    assert matcher.found == f"{'a' * 1020}b7"


def test_nothing_comes_after_the_stop() -> None:
    """Text that follows a completed stop string is never let out, not even at the end."""
    matcher = StopMatcher(["\n\n"])
    assert matcher.push("one\n") == "one"
    assert matcher.push("\ntwo") == ""
    assert matcher.push("three") + matcher.flush() == ""


def test_an_empty_stop_string_is_a_bug_of_the_caller() -> None:
    """An empty stop string matches everywhere, so it may not reach the matcher."""
    with pytest.raises(ValueError, match="empty stop string"):
        StopMatcher(["a", ""])
