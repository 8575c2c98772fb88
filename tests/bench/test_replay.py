"""Verification by replay: where texts part, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Peer, answer

from localspec.bench import arms, replay
from localspec.bench.results import Settings
from localspec.bench.suite import Prompt
from localspec.client import Client

TEXT = st.text(alphabet="ab", max_size=60)


@given(TEXT, TEXT)
def test_a_difference_is_the_first_one(plain: str, found: str) -> None:
    """Up to it both say the same; from it on they do not."""
    parted = replay.difference(plain, found)
    if parted is None:
        assert plain == found
        return
    position, before, mine, other = parted
    assert plain[:position] == found[:position]
    assert plain[position : position + 1] != found[position : position + 1]
    assert plain[:position].endswith(before)
    assert plain[position:].startswith(mine)
    assert found[position:].startswith(other)


def verified(exactness: str, *texts: str, turns: int = 1) -> tuple[replay.Verification, Peer]:
    """A replay of one prompt, with one drafter, by a peer that says `texts` in turn."""
    model = {"name": "tiny", "drafters": ["lookup"], "exactness": exactness}
    prompt = Prompt("qa/1", "qa", ("Why?", "And then?")[:turns])
    with Peer([answer(text) for text in texts]) as peer:
        ways = list(arms.forced(Client(peer.socket_path), model).values())
        told = replay.verify(ways, [prompt], Settings(), model, lambda _count, _text: None)
    return told, peer


def test_every_drafter_is_compared_with_plain_in_both_ways() -> None:
    """Greedy and seeded, auto and the drafter alone, made to draft."""
    told, peer = verified("strict", *["same"] * 6)
    assert [(one.way, one.arm, one.equal, one.compared) for one in told.tallies] == [
        (way, arm, 1, 1) for way in ("greedy", "seeded") for arm in ("auto", "lookup")
    ]
    assert not told.differences
    assert not told.broken
    bodies = [asked.body for asked in peer.asked]
    assert [body["temperature"] for body in bodies] == [0, 0, 0, 0.8, 0.8, 0.8]
    assert [body["speculation"]["mode"] for body in bodies[:3]] == ["off", "auto", "always"]


@pytest.mark.parametrize(("exactness", "broken"), [("strict", True), ("standard", False)])
def test_a_difference_breaks_the_promise_that_was_given(exactness: str, *, broken: bool) -> None:
    """Strict promises bit for bit; standard promises the law, and rounding may show."""
    told, _ = verified(exactness, "a cat", "a cat", "a dog", *["same"] * 3)
    assert told.differences == [
        replay.Difference("qa/1", 0, "greedy", "lookup", 2, "a ", "cat", "dog")
    ]
    assert told.broken is broken


def test_one_difference_does_not_become_many() -> None:
    """Later turns go on from plain's answer in every arm."""
    told, peer = verified("strict", *["one", "one", "ONE", *["two"] * 3] * 2, turns=2)
    assert [found.turn for found in told.differences] == [0, 0]
    histories = {body["messages"][1]["content"] for body in (one.body for one in peer.asked[3:6])}
    assert histories == {"one"}
