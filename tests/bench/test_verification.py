"""Verification by repetition: where texts part, and what follows from it."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Peer, answer, chunk

from localspec.bench import arms, verification
from localspec.bench.results import Settings
from localspec.bench.suite import Prompt
from localspec.client import Client

TEXT = st.text(alphabet="ab", max_size=60)

Reply: TypeAlias = str | list[bytes] | tuple[int, object]


@given(TEXT, TEXT)
def test_a_difference_is_the_first_one(plain: str, found: str) -> None:
    """Up to it both say the same; from it on they do not."""
    parted = verification.difference(plain, found)
    if parted is None:
        assert plain == found
        return
    position, before, mine, other = parted
    assert plain[:position] == found[:position]
    assert plain[position : position + 1] != found[position : position + 1]
    assert plain[:position].endswith(before)
    assert plain[position:].startswith(mine)
    assert found[position:].startswith(other)


def after(likelier: str, other: str, gap: float) -> Reply:
    """The daemon's answer to a replay."""
    return 200, {
        "id": "r",
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "tokens": 1,
        "max_draft": 24,
        "gaps": [0.0],
        "margins": [2.0],
        "after": {"pieces": [likelier, other], "gap": gap},
        "drafters": {},
    }


def verified(
    exactness: str, *replies: Reply, turns: int = 1
) -> tuple[verification.Verification, Peer]:
    """A repetition of one prompt, with one drafter, by a peer that gives `replies` in turn."""
    model = {"name": "tiny", "drafters": ["lookup"], "exactness": exactness}
    prompt = Prompt("qa/1", "qa", ("Why?", "And then?")[:turns])
    streams = [answer(reply) if isinstance(reply, str) else reply for reply in replies]
    with Peer(streams) as peer:
        ways = list(arms.forced(Client(peer.socket_path), model).values())
        told = verification.verify(ways, [prompt], Settings(), model, lambda _count, _text: None)
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
    texts: list[Reply] = ["a cat", "a cat", "a dog", after("cat", "dog", 0.03), *["same"] * 3]
    told, _ = verified(exactness, *texts)
    assert told.differences == [
        verification.Difference(
            "qa/1", 0, "greedy", "lookup", 2, "a ", "cat", "dog", ("cat", "dog"), 0.03
        )
    ]
    assert told.broken is broken


def test_the_gap_is_asked_where_the_tokens_part() -> None:
    """Not inside of a token that both texts begin alike; the whole conversation is given."""
    first = [chunk("a cat ", origins=[[2, "target"], [4, "target"]]), *answer("sat")]
    second = [chunk("a ", origins=[[2, "lookup"]]), *answer("car")]
    parted = after("cat ", "car", 0.5)
    told, peer = verified("standard", first, second, parted, first, *["same"] * 3)
    assert [(one.position, one.logit_gap) for one in told.differences] == [(4, 0.5)]
    (asked,) = [one.body for one in peer.asked if one.path == "/v1/replay"]
    assert asked["text"] == "a "
    assert [message["content"] for message in asked["messages"]] == ["Why?"]
    assert all(one.body["return_origins"] for one in peer.asked if one.path != "/v1/replay")


def test_a_refused_gap_is_no_gap() -> None:
    """The difference is told all the same."""
    refused = (400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    told, _ = verified("strict", "a cat", "a dog", refused, "a cat", *["same"] * 3)
    assert [(one.likeliest, one.logit_gap) for one in told.differences] == [(None, None)]


def test_one_difference_does_not_become_many() -> None:
    """Later turns go on from plain's answer in every arm."""
    turns: list[Reply] = ["one", "one", "ONE", after("one", "ONE", 1.0), *["two"] * 3]
    told, peer = verified("strict", *turns * 2, turns=2)
    assert [found.turn for found in told.differences] == [0, 0]
    histories = {body["messages"][1]["content"] for body in (one.body for one in peer.asked[4:7])}
    assert histories == {"one"}
