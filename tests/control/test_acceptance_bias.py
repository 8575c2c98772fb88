"""Copies that promise and do not keep: they are believed less, in this answer and in the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from control.known import LONG, controller, decide
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import AcceptanceBias
from localspec.control.controller import Controller
from localspec.control.round import Round, SessionStats, VerifiedDraft, View
from localspec.types import Draft, Signal

WIDE = {1: 1, 2: 2.9, 8: 3.6, 32: 4.2}
"""A first row more is dear and the others are not, so that copies are long or none."""
NODES = 24
settled = st.tuples(st.floats(-20, 20), st.floats(0.1, 5), st.floats(0, 20))


def copies(chance: float) -> Iterator[Draft]:
    """Long copies that nothing is known of but what they promise."""
    for number in itertools.count():
        signals = [Signal("lookup", NODES * number + node, chance) for node in range(NODES)]
        yield Draft.chain(list(range(NODES)), signals)


def drafted(control: Controller, stats: SessionStats, *, kept: int, rounds: int = 120) -> int:
    """How many of so many rounds took a copy that promised most of its nodes and `kept` so many.

    Between them single tokens come as foretold, as inside of words: lookup is right on average.
    """
    taken = 0
    for chain in itertools.islice(copies(0.85), rounds):
        view = View(free=(chain,), budget=31, stats=stats, elapsed_seconds=LONG)
        _, count = decide(control, view)
        taken += count > 0
        accepted = min(kept, count)
        said = (*range(accepted), NODES)
        seconds = control.costs.target(1 + count)
        judged = VerifiedDraft(chain.head(count), accepted)
        control.observe(Round(1 + count, seconds, 0.0, (), (view,), (judged,), (said,)))
        for word in itertools.islice(copies(0.5), 3):
            sure = View(free=(word.head(1),), budget=0, stats=stats, elapsed_seconds=LONG)
            control.plan([sure])
            plain = VerifiedDraft(Draft(), 0)
            control.observe(Round(1, control.costs.target(1), 0.0, (), (sure,), (plain,), ((0,),)))
    return taken


def test_copies_that_break_at_once_are_soon_left() -> None:
    """Each promises nine tokens in ten, whatever those before it gave."""
    control = controller(WIDE)
    assert drafted(control, control.open_session(), kept=0) <= 12


def test_the_next_answer_begins_with_what_the_last_one_showed() -> None:
    """It may find out again, but for less than one that knows nothing of that."""
    taken = []
    for fresh in (Controller.open_session, lambda _: SessionStats()):
        control = controller(WIDE)
        drafted(control, control.open_session(), kept=0)
        taken.append(drafted(control, fresh(control), kept=0))
    assert taken[0] < taken[1]


def test_an_answer_whose_copies_are_kept_is_believed_after_one_whose_were_not() -> None:
    """Many chats do not spoil an edit."""
    control = controller(WIDE)
    for _ in range(4):
        drafted(control, control.open_session(), kept=0)
    assert drafted(control, control.open_session(), kept=NODES) >= 100


def test_copies_that_are_kept_are_taken_on_and_on() -> None:
    """Nearly every one, but for plain rounds that measure."""
    control = controller(WIDE)
    assert drafted(control, control.open_session(), kept=NODES) >= 100


def test_no_row_is_carried_for_what_only_promises() -> None:
    """The same copy raises savings of the next one where such were kept, and none else."""
    brings = []
    for broken in (0.0, 0.9):
        control, stats = controller(WIDE), SessionStats()
        control.costs.expect_change(0, control.costs.target(1))
        stats.copies = AcceptanceBias(
            shortfall=broken, spent=1e6, promised=1.0
        )  # but dear was none
        decide(control, View(free=(next(copies(0.85)),), budget=31, stats=stats))
        brings.append(stats.expected_saving)
    assert all(much > 5 * little > 0 for much, little in zip(*brings, strict=True))


@given(st.lists(settled, max_size=20))
def test_luck_is_no_credit_and_doubt_passes_on_in_part(
    rounds: list[tuple[float, float, float]],
) -> None:
    """A copy never has to repay less than its cost; a new answer doubts no more, and by half."""
    stats = SessionStats()
    for settlement in rounds:
        stats.copies.observe(*settlement)
        assert 0 <= stats.copies.kept <= 1
    asked = stats.copies_cost
    assert asked >= 1
    assert SessionStats.after(stats.copies).copies_cost == pytest.approx(min(asked, 1.5))
    stats.forgive_copies()
    assert 1 <= stats.copies_cost <= asked
