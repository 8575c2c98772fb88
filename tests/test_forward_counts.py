"""Counts of a model's forwards by their rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.forward_counts import ForwardCounts


@given(st.lists(st.integers(1, 600)))
def test_counts_agree_with_the_rows_of_all_forwards(rows: list[int]) -> None:
    """More than 32 rows are all of one kind: those graphs are not kept one by one."""
    counts, kinds = ForwardCounts(), [min(each, 33) for each in rows]
    for place, each in enumerate(rows):
        counts.ran(each)
        assert counts.first == (kinds[place] not in kinds[:place])
        assert counts.rows == each
        alike = 0
        while alike < place and rows[place - 1 - alike] == each:
            alike += 1
        assert counts.alike == alike
    assert counts.count == len(rows)
    assert counts.firsts == len(set(kinds))
    assert counts.changes == sum(a != b for a, b in zip([0, *rows], rows, strict=False))
