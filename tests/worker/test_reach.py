"""What a class of forwards is claimed for grows while nobody waits, and nobody is in its way."""

from __future__ import annotations

import itertools
from pathlib import Path

from engine.lawful import Lawful, Quirk, Seen
from laws.policies import FixedDepth

from localspec import drafters
from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.engine import exactness
from localspec.engine.exactness import EVERYWHERE
from localspec.engine.session import Request
from localspec.engine.step import Engine, Limits
from localspec.types import SamplingParams, SpeculationParams
from localspec.worker.profile import Profile
from localspec.worker.reach import Reach


def opened(quirk: Quirk, tmp_path: Path) -> tuple[Lawful, Engine, Profile, Reach]:
    """An engine on such a device, probed near and no farther."""
    target = Lawful(quirk, n_slots=3, context=2048)
    shape = exactness.strict(target, patience=lambda: False)
    assert shape.cells == 512
    target.other_bits.clear()  # what the probe found
    engine = Engine(
        target,
        {"lookup": drafters.load("lookup", piece=lambda token: b"x%d " % token)},
        FixedDepth(31),
        ends=frozenset(),
        shape=shape,
        limits=Limits(),
        clock=itertools.count(0.0, 0.001).__next__,
    )
    profile = Profile(tmp_path / "profile.json", Costs(), Acceptance(), shape)
    return target, engine, profile, Reach(engine, profile)


def answer(engine: Engine, client: str, prompt: int) -> int:
    """60 tokens after such a prompt; how many of them were drafted and accepted."""
    session = engine.admit(
        Request(
            id="r",
            client=client,
            prompt=[1, 2, 3, 4] * (prompt // 4),
            sampling=SamplingParams(temperature=0.0),
            speculation=SpeculationParams(mode="always"),
            max_tokens=60,
            ignore_eos=True,
        )
    )
    while engine.sessions:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)
    return session.meter.accepted


def test_the_context_is_probed_in_pauses_and_then_drafts_reach_as_far(tmp_path: Path) -> None:
    """Requests come between two forwards; slots are forgotten by nobody, and the end is kept."""
    target, engine, profile, reach = opened(lambda seen: seen.total == 1, tmp_path)
    assert answer(engine, "a", 600) == 0
    pauses = 0
    while reach.advance():
        pauses += 1
        if pauses in (7, 50):
            answer(engine, "a", 600)
            assert reach.detail == engine.shape.detail

    assert engine.shape.cells == EVERYWHERE
    assert answer(engine, "a", 600) > 0
    assert target.other_bits == []
    assert profile.shape == engine.shape
    assert "probed up to" not in reach.detail
    assert str(EVERYWHERE) in (tmp_path / "profile.json").read_text()


def test_a_conversation_in_the_last_slot_is_worth_more(tmp_path: Path) -> None:
    """Nothing is read over it; a slot that was taken and left unread begins anew."""
    target, engine, _, reach = opened(lambda _: 0, tmp_path)
    assert reach.advance()
    slot, _ = engine.seat("b", [1, 2, 3])
    engine.leave(slot, "b", [])
    for client in "abc":
        assert reach.advance()
        answer(engine, client, 40)

    assert engine.remembers(2)
    assert not reach.advance()
    before = target.decoded
    answer(engine, "c", 40)
    assert target.decoded - before < 80  # its prefix was still there


def test_a_line_that_fails_ends_it(tmp_path: Path) -> None:
    """The claim stays where it was, and status says where it ends and why."""

    def far(seen: Seen) -> object:
        return seen.rows if seen.end > 1024 else 0

    _, engine, profile, reach = opened(far, tmp_path)
    while reach.advance():
        pass

    assert not reach.advance()
    assert engine.shape.cells == 512
    assert profile.shape is not None
    assert "fails at 1024, and beyond 512 nothing is drafted" in profile.shape.detail
