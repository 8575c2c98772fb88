"""Tables of reports in any window: whole words, no row wider than it, nothing left out."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import answer, results
from rich.cells import cell_len
from rich.console import Console

from localspec.bench import report
from localspec.bench.report import Table
from localspec.bench.summary import summarize
from localspec.cli import tables

NAMES = st.text("abcäöü漢/-", min_size=1, max_size=14)
CELLS = st.one_of(
    st.sampled_from(["-", "1.17 [1.02, 1.31]", "356 ms", "6.55 s", "98% to 100%", "15 of 16"]),
    st.lists(NAMES, min_size=1, max_size=4).map(" ".join),
)


@st.composite
def any_table(draw: st.DrawFn) -> Table:
    """A few labels and many figures."""
    columns = draw(st.integers(2, 14))
    row = st.lists(CELLS, min_size=columns, max_size=columns)
    labels = draw(st.integers(1, min(2, columns - 1)))
    return Table(draw(CELLS), draw(row), draw(st.lists(row, max_size=4)), labels=labels)


def shown(table: Table, width: int) -> list[str]:
    """Its lines in a window of so many columns, without its title."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    tables.show(table, console)
    return str(console.file.getvalue()).split("\n")[2:]  # type: ignore[attr-defined]


@given(any_table(), st.sampled_from([60, 100, 160]))
def test_every_word_of_a_table_is_whole_in_any_window(table: Table, width: int) -> None:
    """And no line is longer than the window, which would fold it anywhere."""
    lines = shown(table, width)
    assert max(map(cell_len, lines)) <= width
    words = set(" ".join(lines).split())
    assert {
        word for row in (table.head, *table.rows) for cell in row for word in cell.split()
    } <= words


def test_a_table_that_is_too_wide_comes_in_parts_which_repeat_the_names_of_rows() -> None:
    """Without them a part's figures would have no names."""
    head = ["slice", "arm", *(f"figure{number}" for number in range(12))]
    lines = shown(Table("wide", head, [["qa", "auto", *"123456789abc"]], labels=2), 60)
    heads = [line.split() for line in lines if "figure" in line]
    assert [words[:2] for words in heads] == [["slice", "arm"]] * len(heads)
    assert [word for words in heads for word in words[2:]] == head[2:]
    assert sum(line.split()[:2] == ["qa", "auto"] for line in lines) == len(heads) > 1


def test_a_table_that_fits_is_not_parted() -> None:
    """In a pipe there is room for what 60 columns show in three parts."""
    lines = shown(Table("narrow", ["slice", "one", "two"], [["qa", "1", "2"]]), 60)
    assert [line.split() for line in lines if "─" not in line and line] == [
        ["slice", "one", "two"],
        ["qa", "1", "2"],
    ]


@pytest.mark.parametrize("width", [60, 100])
def test_a_bench_can_be_read_in_a_narrow_window(width: int) -> None:
    """All tables of a report: no number is parted from its unit, no row from its name."""
    measured = results(answer("qa/1", "plain", 2.0), answer("qa/1", "auto", 2.5))
    for table in report.tables(measured, summarize(measured)):
        lines = shown(table, width)
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if re.fullmatch(r"\s*(s|ms|%)\s*", line)], lines
        assert sum(line.startswith(table.rows[0][0]) for line in lines) >= 1
