"""Lines in a window: nothing of a value is lost, a list has a line for each thing."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.cli.columns import advice, columns, cut, folded, hung, wrapped

WORDS = st.lists(st.text("abcäöü漢-", min_size=1, max_size=30), min_size=1).map(" ".join)


@given(WORDS, st.integers(30, 200))
def test_a_value_that_is_folded_has_all_its_words(value: str, width: int) -> None:
    """In their order, each whole, below the beginning of the value as far as the window goes."""
    first, *others = hung("label  ", value, width).split("\n")
    assert first.startswith("label  ")
    assert all(other.startswith(" " * 7) or len(other) >= width for other in others)
    assert all(len(other) <= max(width, len(other.strip())) for other in others)
    assert " ".join([first[7:], *(other.strip() for other in others)]) == value


@given(st.integers(30, 60))
def test_a_number_stays_with_its_unit(width: int) -> None:
    """A line that ends in 1.82 and one that begins with GB are two riddles."""
    value = "20.48 GB of 25.28 GB free, models hold 1.82 GB, 4 sessions in 15 ms " * 3
    for row in hung("label  ", value, width).split("\n"):
        assert not row[7:].startswith(("GB", "sessions", "ms"))


def test_an_interval_stays_together() -> None:
    """[0.46, in one row and 0.64] in another belong to nothing."""
    assert wrapped("0.54 [0.46, 0.64]", 13) == "0.54\n[0.46, 0.64]"
    assert wrapped("lookup, 2 short", 8) == "lookup,\n2 short"


@given(WORDS, st.integers(2, 80))
def test_a_line_that_is_cut_fits_and_says_that_it_was(line: str, width: int) -> None:
    """Also with characters of two columns."""
    shown = cut(line, width)
    assert cell_len(shown) <= width
    assert shown == line or (shown.endswith("…") and line.startswith(shown[:-1]))


@given(WORDS, st.text("abc", max_size=60), st.integers(10, 80))
def test_a_last_value_stands_below_where_it_would_be_cut(value: str, row: str, width: int) -> None:
    """On one line where it fits; a pipe gets one line anyway."""
    lines = folded(f"{row} ", value, width)
    assert lines == [f"{row} {value}"] or lines[0] == row
    assert len(lines) == 1 or lines[1].startswith("  ")
    assert folded(row, value, None) == [row + value]


@given(WORDS, st.integers(60, 100))
def test_advice_is_folded_and_its_commands_stay_whole(words: str, width: int) -> None:
    """A command alone is never folded: it is there to be copied."""
    line = f"  Do it. {words}: localspec models import FILE. {words} localspec models list"
    rows = advice(line, width).split("\n")
    assert " ".join(row[2:] for row in rows) == line[2:]
    assert all(row.startswith("  ") for row in rows)
    shown = "\n".join(rows)
    assert shown.count("localspec models import FILE") == shown.count("models list") == 1
    assert advice("  localspec models pull " + words, 20) == "  localspec models pull " + words
    names = advice("  There are: qwen2.5-coder-1.5b-instruct, qwen2.5-coder-0.5b-instruct.", 60)
    assert names.split("\n")[1:] == ["  qwen2.5-coder-0.5b-instruct."]


@given(
    WORDS,
    st.sampled_from(["a model: ", "`localspec logs`: ", "GET /x ", "2 of ", "localspec "]),
    st.integers(44, 100),
    st.sampled_from(["  ", " " * 20]),
)
def test_advice_is_folded_however_it_begins(
    words: str, begun: str, width: int, indent: str
) -> None:
    """A sentence is what ends as one does; what ends otherwise is a command to be copied."""
    line = f"{indent}{begun}{words}"
    assert advice(line, width) == line
    rows = advice(f"{line}.", width).split("\n")
    assert all(len(row) <= width or " " not in row.strip() for row in rows)
    assert " ".join(" ".join(rows).split()) == " ".join(f"{line}.".split())


def test_a_window_is_that_of_the_stream_which_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`localspec status | less` warns on stderr, whose window is not stdout's."""
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 61, 0, 0))
    with os.fdopen(theirs, "w") as window, open(os.devnull, "w") as pipe:  # noqa: PTH123  its text
        assert columns(window) == 61
        assert columns(pipe) is None
    os.close(ours)


def test_a_pipe_gets_lines_as_they_are() -> None:
    """In a pipe one fact is one line, for grep."""
    assert hung("label ", "word " * 100, None) == "label " + "word " * 100
    assert cut("word " * 100, None) == "word " * 100
