"""A history of very many messages is converted in time that grows with its length alone."""

from __future__ import annotations

from itertools import chain

import pytest

from localspec.text.formats import history
from localspec.text.formats.recognise import Reads
from localspec.text.formats.table import GENERIC
from localspec.wire.messages import Message

MANY = 100_000
LINE = "one line of many words, which all together are as long as a request may be. "


def called(*ids: str) -> Message:
    """A message with these calls."""
    calls = [{"id": id_, "function": {"name": "f", "arguments": "{}"}} for id_ in ids]
    return Message("assistant", "", {"tool_calls": calls})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_many_messages_of_one_role_become_one(role: str) -> None:
    """Where a template's roles alternate; a call between two of the assistant's moves the first."""
    said = [Message(role, LINE)] * MANY
    if role == "assistant":
        said = [*chain.from_iterable((one, called("a")) for one in said)]
    turns = history.prepared([Message("user", "?"), *said], GENERIC, Reads(alternates=True))
    words = [turn.content for turn in turns if "tool_calls" not in turn.extra]
    assert "\n\n".join(words) == "\n\n".join(["?", *[LINE] * MANY])
    assert len(words) == (1 if role == "user" else 2)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reads", [Reads(), Reads(several=False)], ids=["several", "single"])
def test_many_results_find_their_calls(reads: Reads) -> None:
    """In any order."""
    ids = [str(number) for number in range(MANY // 2)]
    results = [Message("tool", id_, {"tool_call_id": id_}) for id_ in reversed(ids)]
    turns = history.prepared([Message("user", "?"), called(*ids), *results], GENERIC, reads)
    told = [turn.content for turn in turns if turn.role == "tool"]
    assert told == (ids if not reads.several else ids[::-1])
    assert all(turn.extra["name"] == "f" for turn in turns if turn.role == "tool")


def test_results_without_ids_answer_the_calls_in_their_order() -> None:
    """The next call of their function, else the next one at all."""
    names = {"a": "f", "b": "g", "c": "f", "d": "g"}
    calls = [
        {"id": id_, "function": {"name": name, "arguments": "{}"}} for id_, name in names.items()
    ]
    results = [Message("tool", "", {"name": name} if name else {}) for name in ("g", "", "g", "g")]
    turns = history.prepared(
        [Message("user", "?"), Message("assistant", "", {"tool_calls": calls}), *results],
        GENERIC,
        Reads(),
    )
    assert [turn.extra["tool_call_id"] for turn in turns[2:]] == ["b", "a", "d", "c"]
