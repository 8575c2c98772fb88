"""Laws of reading requests: what is expensive waits for its like, and turns go round by client."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Embed, Generate, Message, Render, Replay, Tokenize
from localspec.worker.preprocessing import (
    LONG_CHARS,
    LONG_GRAMMAR_CHARS,
    Preprocessing,
    Request,
    Turns,
    queue_of,
)

BOOK = [Message("user", "x" * LONG_CHARS)]
CALL = {"function": {"name": "f", "arguments": "x" * LONG_CHARS}}
CALLED = Message("assistant", "", {"tool_calls": [CALL]})
NAMED = {"type": "function", "function": {"name": "f"}}
CHOICES = ["x" * 40 + str(number) for number in range(1000)]
LONG = {"type": "regex", "pattern": "a" * (LONG_GRAMMAR_CHARS + 1)}
SHORT = {"type": "regex", "pattern": "a+"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}  # type: ignore[dict-item]


def chat(id_: str = "1", client: str = "me", session: str = "", **fields: Any) -> Generate:
    """A chat of one word."""
    fields = {"messages": [Message("user", "hi")], **fields}
    sampling, speculation = SamplingParams(), SpeculationParams()
    return Generate(id_, "chat", client, sampling, speculation, session=session, **fields)


@pytest.mark.parametrize(
    ("fields", "queue"),
    [
        ({}, "texts"),
        ({"response_format": {"type": "text"}}, "texts"),
        ({"response_format": {"type": "json_object"}}, "texts"),
        ({"tools": [TOOL]}, "texts"),
        ({"tools": [STRICT], "tool_choice": "none"}, "grammars"),
        ({"messages": BOOK}, "long texts"),
        ({"messages": None, "prompt_pieces": ["x" * LONG_CHARS, 1]}, "long texts"),
        ({"messages": None, "prompt_pieces": [1] * LONG_CHARS}, "long texts"),
        ({"prefill": "x" * LONG_CHARS}, "long texts"),
        ({"biased_texts": [("x" * LONG_CHARS, 1.0)]}, "long texts"),
        ({"messages": [CALLED]}, "long texts"),
        ({"tools": [{"function": {"description": "x" * LONG_CHARS}}]}, "long texts"),
        ({"response_format": SHORT}, "grammars"),
        ({"response_format": LONG}, "long grammars"),
        ({"response_format": {"type": "choice", "choices": CHOICES}}, "long grammars"),
        ({"response_format": {"type": "gbnf", "grammar": "x" * 42_000}}, "long grammars"),
        ({"response_format": SHORT, "messages": BOOK}, "long grammars"),
        ({"tools": [TOOL], "tool_choice": "required"}, "grammars"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "grammars"),
        ({"tools": [STRICT]}, "grammars"),
        ({"tools": [STRICT] * 200}, "long grammars"),
        ({"tools": [{"function": "x"}], "response_format": {"type": 5}}, "grammars"),
    ],
)  # fmt: skip
def test_a_request_waits_with_its_like(fields: dict[str, Any], queue: str) -> None:
    """By the length of its text and of its grammar; also inside of a replay and a rendering."""
    request = chat(**fields)
    assert queue_of(request) == queue
    assert queue_of(Replay(request, "text")) == queue_of(Render("1", request)) == queue


def test_a_query_counts_with_each_of_its_documents() -> None:
    """The model reads it again with each."""
    query = "x" * (LONG_CHARS // 10)
    assert queue_of(Embed("few", ["a"] * 5, query=query)) == "texts"
    assert queue_of(Embed("many", ["a"] * 10, query=query)) == "long texts"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "s", "t"])), max_size=40))
def test_turns_go_round_by_client_and_nothing_is_lost(callers: list[tuple[str, str]]) -> None:
    """Each client's requests keep their order; who has one waits for one of each other at most."""
    turns = Turns()
    for number, (client, session) in enumerate(callers):
        turns.put((chat(str(number), client, session), 0.0))
    taken = [turns.get() for _ in callers]
    ids = [int(item[0].id) for item in taken if item]
    assert sorted(ids) == list(range(len(callers)))
    for caller in set(callers):
        own = [at for at in ids if callers[at] == caller]
        assert own == sorted(own)
        first = ids.index(own[0])
        assert len({callers[at] for at in ids[:first]}) == first


def test_closing_wakes_a_waiting_thread() -> None:
    """A queue whose thread waits can be closed."""
    turns = Turns()
    heard: list[object] = ["nothing"]
    thread = threading.Thread(target=lambda: heard.append(turns.get()))
    thread.start()
    turns.close()
    thread.join()
    assert heard[-1] is None


def test_slow_preprocessing_delays_no_other() -> None:
    """While an endless grammar is compiled, chats, other grammars and status go on."""
    gate, read = threading.Event(), threading.Event()

    def reader(request: Request) -> str:
        if request.id.startswith("long"):
            gate.wait()
        return request.id

    preprocessing: Preprocessing[str] = Preprocessing(reader, read.set)
    for number in range(40):
        preprocessing.put(chat(f"long{number}", response_format=LONG), 0.0)
    wanted = {"plain", "short", "words"}
    preprocessing.put(chat("plain"), 0.0)
    preprocessing.put(chat("short", response_format=SHORT), 0.0)
    preprocessing.put(Tokenize("words", "a", add_special=False, parse_special=False), 0.0)
    done: set[str] = set()
    while not wanted <= done:
        assert read.wait(60)
        read.clear()
        done |= {one.request.id for one in preprocessing.taken()}
    assert done == wanted
    gate.set()
    preprocessing.close()
