"""Fields that clients send in one dialect or another: each is served, or refused by its name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from daemon.test_dialects import FINISHED

from localspec.config import Config
from localspec.errors import RequestError
from localspec.protocol import Delta
from localspec.types import Alternative, TokenLogprob
from localspec_daemon.dialects import anthropic, infill, llama_server, ollama, openai, responses
from localspec_daemon.dialects.dialect import Answer, Asked, Caller, Dialect

SAID = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
BOUND = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
CHAT: Any = (openai.CHAT, {"messages": SAID})
TEXT: Any = (openai.COMPLETION, {"prompt": "hello"})
LLAMA: Any = (llama_server.COMPLETION, {"prompt": "hello"})
INFILL: Any = (infill.INFILL, {"input_prefix": "hello"})
RESPONSE: Any = (responses.RESPONSES, {"input": "hello"})
MESSAGE: Any = (anthropic.MESSAGES, {"messages": SAID, "max_tokens": 9})
OLLAMA: Any = (ollama.CHAT, {"model": "m", "messages": SAID})
GENERATE: Any = (ollama.GENERATE, {"model": "m", "prompt": "hello"})
TOKENS = [
    TokenLogprob(Alternative(7, b"o", -0.5), [Alternative(8, b"x", -0.1)]),
    TokenLogprob(Alternative(9, b"k", -0.25)),
]


def read(endpoint: tuple[Dialect, dict[str, Any]], **fields: Any) -> Asked:
    """That body with further fields, understood."""
    dialect, body = endpoint
    return dialect.read(msgspec.json.encode(body | fields), Config(), Caller("uid:1"))


@pytest.mark.parametrize(
    ("endpoint", "fields", "name", "value"),
    [
        (MESSAGE, {"output_config": {"format": FORMAT}}, "response_format", BOUND),
        (MESSAGE, {"output_format": FORMAT}, "response_format", BOUND),
        (MESSAGE, {"output_config": {"effort": "low"}}, "reasoning_effort", "low"),
        (MESSAGE, {"output_config": None, "output_format": None}, "response_format", None),
        (MESSAGE, {"tool_choice": {"type": "any"}}, "tool_choice", "required"),
        (MESSAGE, {"tool_choice": {"type": "none"}}, "tool_choice", "none"),
        (RESPONSE, {"include": ["message.output_text.logprobs"]}, "logprobs", 0),
        (RESPONSE, {"include": ["message.output_text.logprobs"], "top_logprobs": 3}, "logprobs", 3),
        (RESPONSE, {"include": ["reasoning.encrypted_content"]}, "logprobs", None),
        (RESPONSE, {"tool_choice": {"type": "web_search"}}, "tool_choice", {"type": "web_search"}),
        (OLLAMA, {"logprobs": True, "top_logprobs": 2}, "logprobs", 2),
        (GENERATE, {"logprobs": True}, "logprobs", 0),
        (GENERATE, {"prompt": "", "suffix": "b"}, "suffix", "b"),
        (TEXT, {"prompt": "", "suffix": "b"}, "prompt", ""),
        (TEXT, {"prompt": None, "suffix": "b"}, "suffix", "b"),
        (CHAT, {"guided_json": SCHEMA}, "response_format", BOUND),
        (CHAT, {"guided_grammar": "g"}, "response_format", {"type": "gbnf", "grammar": "g"}),
    ],
)  # fmt: skip
def test_a_field_is_what_the_worker_is_asked(
    endpoint: Any, fields: dict[str, Any], name: str, value: Any
) -> None:
    """In the words that all dialects share."""
    assert getattr(read(endpoint, **fields).generates[0], name) == value


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (MESSAGE, {"tool_choice": {"type": "some"}}, "tool_choice.type"),
        (MESSAGE, {"output_format": {"type": "json_schema"}}, "output_format"),
        (RESPONSE, {"prompt": {"id": "stored"}}, "prompt"),
        (RESPONSE, {"top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"functions": [{"name": "f"}]}, "functions"),
        (CHAT, {"function_call": {"name": "f"}}, "function_call"),
        (CHAT, {"repeat_last_n": -2}, "repeat_last_n"),
        (TEXT, {"prompt": "", "suffix": ""}, "prompt"),
        (OLLAMA, {"options": {"mirostat": 2}}, "mirostat"),
        (MESSAGE, {"mirostat": 2}, "mirostat"),
        (RESPONSE, {"typical_p": 0.5}, "typical_p"),
    ],
)
def test_a_field_that_nobody_serves_is_refused_by_its_name(
    endpoint: Any, fields: dict[str, Any], param: str
) -> None:
    """It would change the answer, so it is not dropped."""
    with pytest.raises(RequestError) as caught:
        read(endpoint, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL, RESPONSE, MESSAGE])
def test_llama_servers_name_of_a_window_is_known_in_every_dialect(endpoint: Any) -> None:
    """As many tokens as it says; -1 is as many as may be."""
    for sent, meant in ((64, 64), (0, 0), (-1, 4096)):
        asked = read(endpoint, repeat_last_n=sent, mirostat=0, typical_p=1.0)
        assert asked.generates[0].sampling.penalty_last_n == meant
    options = {"repeat_last_n": -1, "mirostat": 0, "num_predict": None}
    assert read(OLLAMA, options=options).generates[0].sampling.penalty_last_n == 4096


def test_tools_of_messages_may_be_strict() -> None:
    """The word is passed on, and `cache_control` is not."""
    tool = {"name": "f", "input_schema": SCHEMA, "strict": True, "cache_control": {"type": "x"}}
    function = {"name": "f", "parameters": SCHEMA, "strict": True}
    asked = read(MESSAGE, tools=[tool]).generates[0]
    assert asked.tools == [{"type": "function", "function": function}]


def test_ollamas_turns_may_have_nulls_thoughts_and_a_tag() -> None:
    """Its client writes null for no content; `:latest` is no part of a name here."""
    thought = {"role": "assistant", "content": None, "thinking": "hm", "tool_calls": None}
    asked = read(OLLAMA, model="m:latest", messages=[*SAID, thought, *SAID])
    assert asked.model == "m"
    turn = (asked.generates[0].messages or [])[1]
    assert (turn.content, turn.extra) == ("", {"reasoning_content": "hm"})
    answer = Answer(finished=FINISHED)
    assert ollama.CHAT.reply(asked, "m").whole([answer])["model"] == "m:latest"


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (RESPONSE, {"include": ["message.output_text.logprobs"], "top_logprobs": 1}),
        (OLLAMA, {"logprobs": True, "top_logprobs": 1}),
        (GENERATE, {"logprobs": True, "top_logprobs": 1}),
    ],
)
def test_logprobs_are_told_whole_and_in_streams(endpoint: Any, fields: dict[str, Any]) -> None:
    """Those of a token whose text is still held back come with the text."""
    asked, dialect = read(endpoint, **fields), endpoint[0]
    deltas = [Delta("x", "", [7], logprobs=TOKENS[:1]), Delta("x", "ok", [9], logprobs=TOKENS[1:])]
    reply, answer = dialect.reply(asked, "m"), Answer(finished=FINISHED)
    frames: list[Any] = []
    for delta in deltas:
        answer.take(delta)
        frames += reply.delta(0, delta)
    told = [one for frame in frames for one in frame.get("logprobs") or ()]
    assert [(one["token"], one["logprob"]) for one in told] == [("o", -0.5), ("k", -0.25)]
    assert told[0]["top_logprobs"] == [{"token": "x", "logprob": -0.1, "bytes": [120]}]
    whole = dialect.reply(asked, "m").whole([answer])
    found = whole if "logprobs" in whole else whole["output"][0]["content"][0]
    assert found["logprobs"] == told
