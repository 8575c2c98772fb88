"""A draft goes on beside the target only where that is worth what it costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.control.overlap import Overlap, Window
from localspec.control.round import View
from localspec.types import Draft, Signal

LASTS, STEP, ROWS = 0.02, 0.002, 4
seconds = st.floats(1e-4, 1.0)
chances = st.floats(0.0, 1.0)


def overlap(*, shared: bool = False, always: bool = False) -> Overlap:
    """On a machine whose forwards take as long as is said above."""
    costs = Costs()
    for _ in range(40):
        costs.measured(ROWS, LASTS)
    costs.expect_draft("model", STEP / costs.target(1))
    return Overlap(costs, Acceptance(), always=always, shared=shared)


def sure(nodes: int = 3) -> tuple[View, Draft]:
    """A session whose draft is as good as certain."""
    draft = Draft.chain([1] * nodes, [Signal("model", 5, 0.99)] * nodes)
    return View(target_confidence=0.99), draft


def windows(decides: Overlap, rounds: int, contention: float) -> list[Window]:
    """Those that it opens in so many rounds, of a device that so slows the target down."""
    found = []
    for _ in range(rounds):
        window = decides.window("model", ROWS, 0.0, [sure()])
        if window is None:
            decides.alone(ROWS, 0.0, LASTS)
            continue
        found.append(window)
        drafted = window.step * min(window.nodes, 5)
        decides.beside(window, LASTS + contention * drafted, drafted)
    return found


@given(step=seconds, lasts=seconds, chance=chances, elapsed=seconds, forwards=st.integers(1, 4))
def test_what_ends_late_or_slows_the_target_has_to_be_likelier(
    step: float, lasts: float, chance: float, elapsed: float, forwards: int
) -> None:
    """Than what ends in time on a device of its own, and never pays where all of it is lost."""
    free = Window(step, lasts, 0.0, 8)
    for contention in (0.3, 1.0, 1.7):
        dear = Window(step, lasts, contention, 8)
        if dear.pays(chance, elapsed, forwards):
            assert contention < 1
            assert free.pays(chance, elapsed, forwards)
    if elapsed >= lasts:
        assert not free.pays(chance, elapsed, forwards)
    elif chance > 0.1 and elapsed + forwards * step <= lasts:
        assert free.pays(chance, elapsed, forwards)
    assert Window(step, lasts, 2.0, 8, always=True).pays(chance, elapsed, forwards)


def test_on_a_device_of_its_own_nearly_every_round_is_overlapped() -> None:
    """But for those from which costs are learned."""
    assert 85 <= len(windows(overlap(), 100, 0.0)) < 100
    assert len(windows(overlap(always=True), 100, 3.0)) == 100


def test_where_a_device_is_shared_it_is_tried_and_left() -> None:
    """Less and less often, and with the least continuation."""
    decides = overlap(shared=True)
    tried = windows(decides, 1000, 1.0)
    assert 2 <= len(tried) <= 5
    assert {window.nodes for window in tried} == {2}
    assert decides.contention > 0.9


def test_contention_is_what_is_measured() -> None:
    """On a shared device with room, and on one that only seems apart, after any belief."""
    roomy, narrow = overlap(shared=True), overlap()
    windows(roomy, 4000, 0.0)
    windows(narrow, 1000, 1.0)
    assert roomy.contention < 0.2
    assert len(windows(roomy, 100, 0.0)) > 80
    assert narrow.contention > 0.5  # from there on it costs more than it brings
    assert len(windows(narrow, 100, 1.0)) < 5


def test_a_hopeless_draft_is_not_continued() -> None:
    """Nor one that the target has no time for."""
    bad = Draft.chain([1] * 8, [Signal("model", 0, 0.2)] * 8)
    decides = overlap()
    decides.alone(ROWS, 0.0, LASTS)
    assert all(
        decides.window("model", ROWS, 0.0, [(View(target_confidence=0.3), bad)]) is None
        for _ in range(5)
    )
