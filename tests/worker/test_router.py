"""How the worker's router learns from answers."""

from __future__ import annotations

from localspec.types import LOOKAHEAD, SourceCount
from localspec.worker.router import chosen


def test_guesses_in_paid_rows_say_nothing_about_drafts() -> None:
    """Of 600 guesses 18 were right: at a hot temperature that must not end speculation."""
    sources = {LOOKAHEAD: SourceCount(600, 18), "lookup": SourceCount(20, 15)}
    assert chosen(sources) == (20, 15)
    assert chosen({LOOKAHEAD: SourceCount(600, 18)}) == (0, 0)
    assert chosen({}) == (0, 0)
