"""The daemon's log: repeated records are written a few times, then counted."""

from __future__ import annotations

import io
import logging

from hypothesis import given
from hypothesis import strategies as st

from localspec_daemon.log import ALIKE, SAME, WINDOW_SECONDS, CountingHandler, Repeats

EVENTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "b"]), st.floats(0, 1.0)), min_size=1, max_size=200
)


@given(EVENTS)
def test_every_event_is_written_or_counted(events: list[tuple[str, float]]) -> None:
    """No record is lost, and at most `SAME` of a kind are written in a window."""
    repeats = Repeats()
    now, written, counted = 0.0, 0, 0
    for text, later in events:
        now += later
        counted += sum(int(said.split()[0]) for _, _, said in repeats.over(now))
        written += repeats.writes("x", logging.WARNING, text, text, now)
    counted += sum(int(said.split()[0]) for _, _, said in repeats.over(float("inf")))
    assert written + counted == len(events)
    windows = now // WINDOW_SECONDS + 1
    assert written <= 2 * SAME * windows


def test_events_that_differ_in_numbers_are_one_kind_and_information_is_not() -> None:
    """A memory address makes no warning new; informational records are always written."""
    repeats = Repeats()
    warned = [
        repeats.writes("x", logging.WARNING, "%s", f"at 0x{at:x} {at}", 0.0) for at in range(100)
    ]
    told = [repeats.writes("x", logging.INFO, "request %s", f"id={at}", 0.0) for at in range(100)]
    assert (sum(warned), sum(told)) == (SAME, 100)
    flood = [repeats.writes("x", logging.INFO, "line %s", f"id={at}", 0.0) for at in range(9999)]
    assert sum(flood) == ALIKE


def test_a_flood_of_one_error_is_a_few_lines() -> None:
    """Its count comes at the end, whatever its text and traceback."""
    now = 0.0
    handler = CountingHandler(lambda: now)
    handler.stream = io.StringIO()
    error = OSError(24, "Too many open files")

    def event(text: str, *values: int) -> None:
        info = (OSError, error, None) if values else None
        handler.handle(logging.LogRecord("x", logging.ERROR, "", 0, text, values, info))

    for number in range(10_000):
        event("socket.accept() out of system resource at %d", number)
    now = WINDOW_SECONDS
    event("something else")
    handler.close()
    said = handler.stream.getvalue()
    assert len(said) < 10_000
    assert f"{10_000 - SAME} more times in 10 s: socket.accept() out of" in said
    assert said.endswith("something else\n")
