"""The range claimed for a class of forwards grows in idle time, without delaying requests."""

from __future__ import annotations

from pathlib import Path

from engine.lawful import Lawful, Quirk, Seen
from worker import idling
from worker.idling import answer

from localspec.engine.exactness.classes import EVERYWHERE
from localspec.engine.step import Engine
from localspec.worker.exactness_probe import FIRST_PAUSE_SECONDS, BackgroundProbe
from localspec.worker.profile import Profile


def opened(quirk: Quirk, tmp_path: Path) -> tuple[Lawful, Engine, Profile, BackgroundProbe]:
    """An engine on such a device, and what reaches farther."""
    target, engine, profile = idling.opened(quirk, tmp_path)
    return target, engine, profile, BackgroundProbe(engine, profile)


def test_the_context_is_probed_in_pauses_and_then_drafts_reach_as_far(tmp_path: Path) -> None:
    """Requests come between two forwards; slots keep their texts, and the result is stored."""
    target, engine, profile, probe = opened(lambda seen: seen.total == 1, tmp_path)
    assert answer(engine, "a", 600) == 0
    pauses = 0
    while probe.advance(0.0):
        pauses += 1
        if pauses in (7, 50):
            answer(engine, "a", 600)
            assert probe.detail == engine.shape.detail

    assert engine.shape.cells == EVERYWHERE
    assert answer(engine, "a", 600) > 0
    assert target.other_bits == []
    assert profile.shape == engine.shape
    assert "probed up to" not in probe.detail
    assert str(EVERYWHERE) in (tmp_path / "profile.json").read_text()


def test_a_conversation_is_worth_more_until_a_long_pause(tmp_path: Path) -> None:
    """Nothing is read over it; a slot that was taken and left unread begins anew."""
    target, engine, _, probe = opened(lambda _: 0, tmp_path)
    assert probe.advance(0.0)
    slot, _ = engine.take_slot("b", [1, 2, 3])
    engine.release_slot(slot, "b", [])
    for client in "abc":
        assert probe.advance(0.0)
        answer(engine, client, 40)

    assert all(engine.remembers(slot) for slot in range(3))
    assert not probe.advance(0.0)
    assert not probe.advance(0.9 * FIRST_PAUSE_SECONDS)
    before = target.decoded
    for client in "abc":
        answer(engine, client, 40)
    assert target.decoded - before < 3 * 80  # their prefixes were still there


def test_when_every_slot_remembers_the_oldest_text_makes_place(tmp_path: Path) -> None:
    """Only that one, and what follows behind a long prompt is drafted again."""
    target, engine, _, probe = opened(lambda seen: seen.total == 1, tmp_path)
    for client in "abc":
        answer(engine, client, 40)
    assert answer(engine, "d", 600) == 0
    assert not probe.advance(0.0)

    pause = FIRST_PAUSE_SECONDS
    while probe.advance(pause):
        pause += 1.0
    assert engine.shape.cells == EVERYWHERE
    assert sum(engine.remembers(slot) for slot in range(3)) == 2
    assert answer(engine, "e", 600) > 0
    assert target.other_bits == []


def test_each_text_that_makes_place_needs_a_longer_pause(tmp_path: Path) -> None:
    """Conversations that come back every now and then do not read their texts again each time."""
    _, engine, _, probe = opened(lambda _: 0, tmp_path)
    now = 0.0
    for pause in (1, 2, 4):
        for client in "abc":
            answer(engine, client, 40)
        assert not probe.advance(now)
        now += pause * FIRST_PAUSE_SECONDS
        assert not probe.advance(now - 0.1)
        assert probe.advance(now)


def test_a_failed_text_ends_the_probe(tmp_path: Path) -> None:
    """The claim stays where it was, and status gives its end and the reason."""

    def far(seen: Seen) -> object:
        return seen.rows if seen.end > 1024 else 0

    _, engine, profile, probe = opened(far, tmp_path)
    while probe.advance(0.0):
        pass

    for client in "abc":
        answer(engine, client, 40)
    assert not probe.advance(0.0)
    assert not probe.advance(1000.0)  # no text makes place for what is known
    assert all(engine.remembers(slot) for slot in range(3))
    assert engine.shape.cells == 512
    assert profile.shape is not None
    assert "fails at 1024, and beyond 512 nothing is drafted" in profile.shape.detail
