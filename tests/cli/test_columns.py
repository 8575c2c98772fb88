"""Lines in a window: nothing of a value is lost, a list has a line for each thing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.cli.columns import cut, hung

WORDS = st.lists(st.text("abcäöü漢-", min_size=1, max_size=30), min_size=1).map(" ".join)


@given(WORDS, st.integers(30, 200))
def test_a_value_that_is_folded_has_all_its_words(value: str, width: int) -> None:
    """In their order, each whole, below the beginning of the value."""
    first, *others = hung("label  ", value, width).split("\n")
    assert first.startswith("label  ")
    assert all(other.startswith(" " * 7) for other in others)
    assert " ".join([first[7:], *(other[7:] for other in others)]) == value


@given(WORDS, st.integers(2, 80))
def test_a_line_that_is_cut_fits_and_says_that_it_was(line: str, width: int) -> None:
    """Also with characters of two columns."""
    shown = cut(line, width)
    assert cell_len(shown) <= width
    assert shown == line or (shown.endswith("…") and line.startswith(shown[:-1]))


def test_a_pipe_gets_lines_as_they_are() -> None:
    """Whoever greps wants one line for one thing."""
    assert hung("label ", "word " * 100, None) == "label " + "word " * 100
    assert cut("word " * 100, None) == "word " * 100
