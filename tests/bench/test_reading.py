"""The comparison of reading: each prompt anew, of all servers in turns, some at a time."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from scripted import Peer, chunk, event

from localspec.bench.arms import Arm, against
from localspec.bench.reading import ANEW, compare
from localspec.bench.suite import Prompt

PROMPTS = [Prompt(f"rag/{number}", "rag", (f"Question {number}?",)) for number in range(6)]
DONE = b"data: [DONE]\n\n"


def peer_of(tokens: int) -> Peer:
    """A server whose answers have so many tokens."""
    usage = {"prompt_tokens": 100, "completion_tokens": tokens}
    stream = [chunk("so"), chunk(finish="stop"), event({"choices": [], "usage": usage}), DONE]
    return Peer([stream for _ in range(2 * len(PROMPTS))])


@pytest.mark.parametrize("streams", [1, 4])
def test_every_prompt_is_read_anew_alone_and_beside_others(streams: int) -> None:
    """By each server twice, with the tokens of all answers in the sum."""
    tokens = {"one": 3, "other": 5}
    with peer_of(3) as one, peer_of(5) as other:
        peers = {"one": one, "other": other}
        arms = [
            Arm(name, against(f"unix://{peer.socket_path}").client, ANEW, foreign=True)
            for name, peer in peers.items()
        ]
        lines = list(compare(arms, PROMPTS, streams, 64))
    for name, peer in peers.items():
        bodies = [asked.body for asked in peer.asked if asked.body]
        assert all(body["cache_prompt"] is False for body in bodies)
        asked = Counter(body["messages"][0]["content"] for body in bodies)
        assert asked == {prompt.turns[0]: 2 for prompt in PROMPTS}
        mine = [line for line in lines if line.startswith(f"{name}: ")]
        assert len(mine) == 2
        assert re.search(r"first text, .*; [1-9]\d* tokens of prompts/s", mine[0])
        assert f"({tokens[name] * len(PROMPTS)} of answers)" in mine[1]
