"""When a source that takes a while is asked: as often as that has paid, and seldom otherwise."""

from __future__ import annotations

import pytest
from control.known import chain, controller, decide
from control.simulator import Q4_K
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.controller import Controller
from localspec.control.round import SessionStats, SlowSource, View
from localspec.control.weighing import Option, lead
from localspec.types import Draft

TAKES = 0.001
seconds = st.floats(0, 0.1)


@given(st.lists(seconds, max_size=200))
def test_what_brings_nothing_is_asked_every_eighth_time(before: list[float]) -> None:
    """After any history; and each time again once it brings more than it takes."""
    asking = SlowSource(2 * TAKES)
    for brought in before:
        asking.brought(brought)
    for _ in range(200):
        if asking.due(TAKES):
            asking.brought(0.0)

    asked = [asking.due(TAKES) for _ in range(80)]

    assert sum(asked) == 10
    for _ in range(100):
        if asking.due(TAKES):
            asking.brought(5 * TAKES)
    assert all(asking.due(TAKES) for _ in range(80))


@given(seconds, seconds)
def test_what_pays_for_itself_is_always_asked(takes: float, more: float) -> None:
    """However much that is; what takes no time pays."""
    asking = SlowSource(takes + more)
    assert all(asking.due(takes) for _ in range(20))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 0.0),
        ([("head", 0.5)], 0.5),
        ([("head", -0.5)], 0.0),
        ([("head", 0.5), ("lookup", 0.2), ("lookup", -3.0)], 0.3),
        ([("head", 0.5), (None, 0.7)], 0.0),
        ([("head", 0.5), ("head", 0.9), (None, 0.7)], 0.2),
    ],
)
def test_a_source_leads_by_what_nobody_else_has(
    options: list[tuple[str | None, float]], expected: float
) -> None:
    """The best that begins with it, over the best that does not; plain decoding is there always."""
    begun = [
        Option(chain([0.5], name) if name else Draft(), worth=worth) for name, worth in options
    ]
    assert lead("head", begun) == pytest.approx(expected)


def _asked(control: Controller, stats: SessionStats, prior: float, took: float, rounds: int) -> int:
    """In how many rounds a source was asked that then says one token, this likely."""
    count = 0
    for _ in range(rounds):
        asked = control.wants_slow_source("head", stats)
        count += asked
        free = (chain([prior], "head"),) if asked else ()
        took_of = {"head": took} if asked else {}
        decide(control, View(free=free, budget=8, stats=stats, asked=took_of))
    return count


@pytest.mark.parametrize(
    ("prior", "took", "each"), [(0.9, TAKES, 1), (0.05, TAKES, 8), (0.9, 1, 8)]
)
def test_a_controller_asks_for_what_a_round_gains(prior: float, took: float, each: int) -> None:
    """A sure token pays for a millisecond of a row's thirty, not for a second; one in 20 neither.

    A new session begins with what earlier ones found.
    """
    control = controller(Q4_K)
    for _ in range(4):
        _asked(control, control.open_session(), prior, took, 100)
    assert _asked(control, control.open_session(), prior, took, 80) == 80 // each
    assert control.wants_slow_source("head", None)
    assert control.wants_slow_source("somebody new", control.open_session())


def test_for_a_guess_nobody_is_asked_who_takes_longer_than_the_forward_it_spares() -> None:
    """Neither often nor seldom."""
    control = controller(Q4_K)
    stats = control.open_session()
    step = control.costs.draft("model", 1, 1)
    assert control.wants_slow_source("head", stats, "model")
    for took in (0.01 * step, step):
        control.feedback.asked("head", stats, took, took)
        for _ in range(400):
            control.feedback.asked("head", stats, took, took)
        assert control.wants_slow_source("head", stats, "model") == (took < step)


def test_where_plain_decoding_is_measured_nobody_is_asked() -> None:
    """Asking it for nothing there would count as its time."""
    control = controller(Q4_K)
    stats = control.open_session()
    control.feedback.asked("head", stats, TAKES, 1.0)
    assert control.wants_slow_source("head", stats)
    while not control.feedback.baseline.due:
        control.feedback.baseline.passed()
    assert not control.wants_slow_source("head", stats)
