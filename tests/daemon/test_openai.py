"""OpenAI's dialect as pure functions: bodies in, shapes out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import Config, Speculation
from localspec.errors import ContextOverflow, RequestError
from localspec.types import SamplingParams, SourceCount
from localspec.wire.messages import Delta, Finished, Message, SpeculationReport, Started
from localspec.wire.values import Alternative, Timings, TokenLogprob, Usage
from localspec_daemon.api import openai
from localspec_daemon.api.dialect import Answer, Caller, ParsedRequest
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.api.openai_replies import (
    COMPLETION_KIND,
    ChatReply,
    CompletionReply,
    TextOffset,
    token_logprob,
)
from localspec_daemon.api.openai_types import ChatRequest, CompletionRequest

CALLER = Caller("uid:1")
HELLO = [{"role": "user", "content": "hello"}]
SOURCES = {"lookup": SourceCount(7, 3, [1], [1])}
FINISHED = Finished(
    "x",
    "length",
    Usage(10, 5, 4),
    Timings(4, 6, 60.0, 10.0, 100.0, 5, 50.0, 10.0, 100.0, 7, 3),
    SpeculationReport("speculating", "coupled", 2, 7, 3, SOURCES, 0.1, 0.2, 0.3, 0.4),
    seed=11,
)  # fmt: skip


def chat(**fields: Any) -> ParsedRequest:
    """Parses a chat body."""
    return openai.chat(msgspec.json.encode({"messages": HELLO, **fields}), Config(), CALLER)


def completion(**fields: Any) -> ParsedRequest:
    """Parses a completion body."""
    return openai.completion(msgspec.json.encode(fields), Config(), CALLER)


def answered(text: str, finished: Finished) -> Answer:
    """Returns a finished choice."""
    answer = Answer()
    answer.take(Delta(finished.id, text, [1], [(len(text), "lookup")]))
    answer.take(finished)
    return answer


def test_what_is_absent_or_null_is_what_the_configuration_says() -> None:
    """Each default comes from one place; null means absent."""
    config = Config(
        sampling=SamplingParams(temperature=0.3, top_k=7),
        speculation=Speculation(mode="off", max_draft=5),
    )
    nulls = dict.fromkeys(("temperature", "stop", "seed", "max_tokens", "speculation", "n"))
    for extra in ({}, nulls):
        body = msgspec.json.encode({"messages": HELLO, **extra})
        generate = openai.chat(body, config, CALLER).generates[0]
        assert (generate.sampling.temperature, generate.sampling.top_k) == (0.3, 7)
        assert (generate.speculation.mode, generate.speculation.max_draft) == ("off", 5)
        assert generate.speculation.drafters is None
        assert generate.max_tokens is None
        assert generate.stop == []


ASKED = {
    "mode": "always", "drafters": ["lookup"], "max_draft": 3, "verify": "rejection",
    "exactness": "strict",
}  # fmt: skip


def test_what_is_said_is_what_is_asked_of_the_worker() -> None:
    """Every field reaches its place, aliases included."""
    asked = chat(
        model="m", stream=True, stream_options={"include_usage": True}, return_origins=True,
        max_tokens=9, temperature=0, top_k=-1, top_p=0.5, min_p=0.1, repeat_penalty=1.2,
        frequency_penalty=-1, presence_penalty=1, logit_bias={"3": -100}, seed=-2, stop="END",
        ignore_eos=True, response_format={"type": "json_object"},
        speculation=ASKED, some_field_of_tomorrow={"a": [1]}, user="me", store=False,
    )  # fmt: skip
    assert (asked.model, asked.stream, asked.body.return_origins) == ("m", True, True)
    generate = asked.generates[0]
    assert generate.sampling == SamplingParams(
        0, 0, 0.5, 0.1, 1.2, -1, 1, 64, logit_bias={3: -100.0}, seed=2**64 - 2
    )
    speculation = msgspec.to_builtins(generate.speculation)
    assert speculation == ASKED
    assert generate.stop == ["END"]
    assert generate.ignore_eos
    assert generate.max_tokens == 9
    assert generate.response_format == {"type": "json_object"}
    assert chat(max_tokens=9, max_completion_tokens=5).generates[0].max_tokens == 5
    assert chat(response_format={"type": "text"}).generates[0].response_format is None


def test_a_seed_that_nobody_chose_differs_each_time_and_survives_javascript() -> None:
    """The seed is reported, so a client must be able to send it back."""
    seeds = {chat().generates[0].sampling.seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_the_client_is_who_the_kernel_says_and_never_a_field() -> None:
    """A request cannot choose whose cache it reads."""
    assert chat(client="uid:0", user="root").generates[0].client == "uid:1"


def test_messages_become_text_and_keep_what_templates_read() -> None:
    """Parts are joined, developer becomes system, tool calls stay."""
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "42", "tool_call_id": "1", "name": "f"},
    ]
    assert chat(messages=messages).generates[0].messages == [
        Message("system", "be brief"),
        Message("user", "ab"),
        Message("assistant", "", {"tool_calls": calls}),
        Message("tool", "42", {"name": "f", "tool_call_id": "1"}),
    ]


def test_a_prediction_is_text_or_parts_of_text() -> None:
    """Parts are joined; absent, null and empty are the same."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content, text in (("ab", "ab"), (parts, "ab"), ("", ""), ([], "")):
        asked = chat(prediction={"type": "content", "content": content})
        assert asked.generates[0].prediction == text
    assert chat(prediction=None).generates[0].prediction == chat().generates[0].prediction == ""


def test_predicted_tokens_are_counted_apart_from_other_drafts() -> None:
    """Accepted and rejected tokens of the prediction are counted, those of lookup are not.

    The draft model may have drafted the same tokens first: they were predicted all the same.
    """
    sources = {"lookup": SourceCount(7, 3), "prediction": SourceCount(30, 28)}
    report = msgspec.structs.replace(FINISHED.speculation, sources=sources)
    usage = msgspec.structs.replace(FINISHED.usage, predicted_tokens=33, reasoning_tokens=3)
    finished = msgspec.structs.replace(FINISHED, speculation=report, usage=usage)
    answer = ChatReply(chat(), "m").whole([answered("hi", finished)])
    assert answer["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": 3,
        "accepted_prediction_tokens": 33,
        "rejected_prediction_tokens": 2,
    }


def test_prompts_are_text_or_tokens_or_a_list_with_one() -> None:
    """All the spellings of one prompt."""
    for prompt, text, tokens in (
        ("hi", "hi", None),
        (["hi"], "hi", None),
        ([1, 2], None, [1, 2]),
        ([7], None, [7]),
        ([[1, 2]], None, [1, 2]),
    ):
        generate = completion(prompt=prompt, echo=True).generates[0]
        assert (generate.prompt, generate.prompt_tokens) == (text, tokens)
        assert generate.messages is None
        assert generate.echo


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 1e308}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"min_p": -1}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**63}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 65}, "n"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"mirostat": 3}, "mirostat"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"typical_p": 1.5}, "typical_p"),
        ({"repeat_penalty": 1000}, "repeat_penalty"),
        ({"frequency_penalty": 100.1}, "frequency_penalty"),
        ({"presence_penalty": -100.1}, "presence_penalty"),
        ({"penalty_last_n": 5000}, "penalty_last_n"),
        ({"logit_bias": {"-1": 0}}, "logit_bias"),
        ({"logit_bias": {"x": True}}, "logit_bias"),
        ({"logit_bias": {str(2**31): 0}}, "logit_bias"),
        ({"logit_bias": {"1": 1001}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias[0]"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["a"] * 33}, "stop"),
        ({"stop": ["x" * 1025]}, "stop"),
        ({"stop": ["é" * 513]}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"stream": 1}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"speculation": {"mode": "turbo"}}, "speculation.mode"),
        ({"speculation": {"max_drafts": 3}}, "speculation"),
        ({"speculation": {"max_draft": 65}}, "speculation.max_draft"),
        ({"speculation": {"verify": "trust"}}, "speculation.verify"),
        ({"speculation": "off"}, "speculation"),
        ({"model": 3}, "model"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"prediction": "text"}, "prediction"),
        ({"prediction": {"content": "text"}}, "prediction.type"),
        ({"prediction": {"type": "content"}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": None}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": 3}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": ["text"]}}, "prediction.content[0]"),
        ({"prediction": {"type": "tokens", "content": "text"}}, "prediction.type"),
        (
            {"prediction": {"type": "content", "content": [{"type": "image_url"}]}},
            "prediction.content[0]",
        ),
    ],
)
def test_a_wrong_value_is_refused_and_the_field_named(fields: dict[str, Any], param: str) -> None:
    """The status is 400, never 500, and the error names the field."""
    with pytest.raises(RequestError) as caught:
        chat(**fields)
    assert caught.value.status == 400
    assert caught.value.param == param


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], ["a", ""], ["a", 1.5], [-1], [2**31], [1.5], {}, [1, ["a"]], ["a"] * 65],
)
def test_a_prompt_that_is_none_or_a_mixture_is_refused(prompt: object) -> None:
    """A list holds prompts or tokens, and not too many."""
    with pytest.raises(RequestError):
        completion(prompt=prompt)


def test_several_prompts_and_choices_are_as_many_requests() -> None:
    """Prompt by prompt, each `n` times; ids differ, and so do the seeds of one prompt."""
    generates = completion(prompt=["a", [1, 2]], n=2, best_of=2, seed=2**64 - 1).generates
    assert [one.prompt or one.prompt_tokens for one in generates] == ["a", "a", [1, 2], [1, 2]]
    assert [one.sampling.seed for one in generates] == [2**64 - 1, 0] * 2
    assert len({one.id for one in generates}) == 4
    with pytest.raises(RequestError, match="best_of"):
        completion(prompt="a", n=2, best_of=4)


def test_what_clients_write_for_nothing_means_nothing() -> None:
    """Empty stop strings, no limit, whole numbers with a point, penalties that are off."""
    one = completion(
        prompt="a", stop=["", "x"], max_tokens=-1, top_k=40.0, repeat_penalty=0, suffix="", seed=7.0
    ).generates[0]
    assert (one.stop, one.max_tokens, one.suffix) == (["x"], None, None)
    assert (one.sampling.top_k, one.sampling.repetition_penalty, one.sampling.seed) == (40, 1, 7)
    assert chat(stop="", max_tokens=1.0, n_predict=9).generates[0].stop == []
    assert chat(n_predict=9).generates[0].max_tokens == 9
    nothing = {"mirostat": 0, "typical_p": 1.0, "lora": [], "xtc_probability": 0.0}
    assert chat(**nothing, dry_multiplier=0, modalities=None, store=True).generates
    assert chat(max_tokens=0, n_predict=9).generates[0].max_tokens == 0
    function = {"role": "function", "name": "f", "content": "42"}
    _, told = chat(messages=[*HELLO, function]).generates[0].messages or (None, None)
    assert told is not None
    assert told.role == "tool"


def test_an_answer_goes_on_where_a_last_message_of_the_assistant_ends() -> None:
    """Unless the request says otherwise, or the message has called tools."""
    begun = [*HELLO, {"role": "assistant", "content": "Well, "}]
    for fields, prefill in (
        ({}, "Well, "),
        ({"continue_final_message": True}, "Well, "),
        ({"continue_final_message": False}, ""),
        ({"add_generation_prompt": True}, ""),
    ):
        one = chat(messages=begun, **fields).generates[0]
        assert (one.prefill, len(one.messages or ())) == (prefill, 1 if prefill else 2)
    called = [*HELLO, {"role": "assistant", "content": "x", "tool_calls": [{}]}]
    assert chat(messages=called).generates[0].prefill == ""
    with pytest.raises(RequestError, match="continue_final_message"):
        chat(continue_final_message=True)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"model":"\xff"}', b'{"model":"\\ud800"}',
        b'{"temperature":NaN}', b'{"temperature":1e999}', b'{"seed":' + b"9" * 5000 + b"}",
        b'{"metadata":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b'{"a":1}{"b":2}',
        b"\xef\xbb\xbf{}", b'{"model":"\x00"}',
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(data: bytes) -> None:
    """Malformed, not UTF-8, not finite, too deep, too long a number: 400."""
    for read in (openai.chat, openai.completion):
        with pytest.raises(RequestError) as caught:
            read(data, Config(), CALLER)
        assert caught.value.status == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=6,
)  # fmt: skip
fields = st.sampled_from([*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__])


@given(st.dictionaries(fields, json_values, max_size=5))
def test_no_body_whatever_raises_anything_else(body: dict[str, Any]) -> None:
    """Any body is parsed or raises RequestError: no invalid value reaches the engine."""
    data = msgspec.json.encode(body)
    for read in (openai.chat, openai.completion):
        try:
            generate = read(data, Config(), CALLER).generates[0]
        except RequestError:
            continue
        assert generate.messages or generate.prompt or generate.prompt_tokens
        assert 0 <= generate.sampling.temperature <= 100


def test_chunks_share_id_and_time_and_end_with_the_figures() -> None:
    """A stream as clients parse it: role first, figures in the last chunk, usage after it."""
    asked = chat(stream=True, return_origins=True, stream_options={"include_usage": True})
    reply = ChatReply(asked, "m", created=5)
    (first,) = reply.begin(Started("x", 10, 4))
    (delta,) = reply.delta(0, Delta("x", "hi", [1], [(2, "lookup")]))
    (last,) = reply.finish(0, FINISHED)
    (usage,) = reply.end()
    for chunk in (first, delta, last, usage):
        assert list(chunk)[:5] == ["id", "object", "created", "model", "system_fingerprint"]
        assert chunk["id"] == reply.parsed.generates[0].id
        assert (chunk["object"], chunk["created"]) == ("chat.completion.chunk", 5)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert delta["choices"][0] == {"index": 0, "delta": {"content": "hi"}, "finish_reason": None}
    assert delta["origins"] == [(2, "lookup")]
    assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "length"}
    assert (last["timings"]["draft_n"], last["timings"]["draft_n_accepted"]) == (7, 3)
    assert last["speculation"]["sources"]["lookup"]["accepted_by_position"] == [1]
    assert last["speculation"]["seed"] == 11
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_a_whole_answer_has_everything_a_stream_has() -> None:
    """Text, reason, usage, timings and speculation in one object, for both endpoints."""
    answer = ChatReply(chat(), "m").whole([answered("hi", FINISHED)])
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert "origins" not in answer
    assert answer["usage"]["total_tokens"] == 15
    assert answer["timings"]["cache_n"] == 4
    reply = CompletionReply(completion(prompt="x"), "m")
    answer = reply.whole([answered("hi", FINISHED)])
    assert (answer["object"], answer["choices"][0]["text"]) == ("text_completion", "hi")
    assert list(reply.begin(Started("x", 10, 4))) == list(reply.end()) == []
    (delta,) = reply.delta(0, Delta("x", "hi", [1]))
    assert delta["choices"][0]["text"] == "hi"


def test_an_error_body_begins_with_error_and_is_compact() -> None:
    """One client recognises errors by their first characters."""
    error = ContextOverflow("Too long.", fix="Shorten it.", details={"n_ctx": 8192})
    data = msgspec.json.encode(errors(error))
    assert data.startswith(b'{"error":{"message":"Too long."')
    fields_ = msgspec.json.decode(data)["error"]
    assert fields_["type"] == "exceed_context_size_error"
    assert (fields_["n_ctx"], fields_["fix"], fields_["param"]) == (8192, "Shorten it.", None)


PIECES = (
    b"a", "é".encode(), "€x".encode(), b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xa9b",
    b"\xf0\x9f", b"\xff",
)  # fmt: skip
WHOLE = PIECES[:3]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_an_offset_is_where_the_token_begins_in_the_text(pieces: list[bytes]) -> None:
    """Of one inside of a character where that begins; whole characters are found at theirs."""
    tokens = [TokenLogprob(Alternative(index, piece, -1.0)) for index, piece in enumerate(pieces)]
    told = COMPLETION_KIND.logprobs(tokens, TextOffset())
    text = b"".join(pieces).decode("utf-8", "replace")
    offsets = told["text_offset"]
    assert offsets == sorted(offsets)
    for piece, offset in zip(pieces, offsets, strict=True):
        if piece in WHOLE:
            assert text[offset:].startswith(piece.decode())
    chat = [token_logprob(token) for token in tokens]
    assert [bytes(one["bytes"]) for one in chat] == pieces
