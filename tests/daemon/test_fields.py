"""Fields that clients send in any dialect are served, or refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from daemon.test_dialects import FINISHED

from localspec.chain import SamplingParams
from localspec.config import Config, Server
from localspec.errors import RequestError
from localspec.wire.messages import Delta
from localspec.wire.values import Alternative, TokenLogprob
from localspec_daemon.api import anthropic, infill, llama_server, ollama, openai, responses
from localspec_daemon.api.dialect import Answer, Caller, Dialect, ParsedRequest

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


def read(endpoint: tuple[Dialect, dict[str, Any]], **fields: Any) -> ParsedRequest:
    """Parses that body with further fields."""
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
        (MESSAGE, {"thinking": {"type": "enabled", "budget_tokens": 5}}, "max_thoughts", 5),
        (MESSAGE, {"thinking": {"type": "adaptive"}}, "max_thoughts", None),
        (CHAT, {"reasoning_budget_tokens": 0}, "max_thoughts", 0),
        (CHAT, {"reasoning_control": True}, "reasoning_control", True),
        (CHAT, {"thinking_budget_tokens": 7}, "max_thoughts", 7),
        (CHAT, {"reasoning_budget_tokens": 3, "thinking_budget_tokens": 7}, "max_thoughts", 3),
        (CHAT, {"reasoning_budget_tokens": -1}, "max_thoughts", None),
        (CHAT, {"guided_json": SCHEMA}, "response_format", BOUND),
        (CHAT, {"guided_grammar": "g"}, "response_format", {"type": "gbnf", "grammar": "g"}),
    ],
)  # fmt: skip
def test_a_field_is_what_the_worker_is_asked(
    endpoint: Any, fields: dict[str, Any], name: str, value: Any
) -> None:
    """A field of any dialect sets the same field of `Generate`."""
    assert getattr(read(endpoint, **fields).generates[0], name) == value


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (MESSAGE, {"tool_choice": {"type": "some"}}, "tool_choice.type"),
        (MESSAGE, {"output_format": {"type": "json_schema"}}, "output_format.schema"),
        (RESPONSE, {"prompt": {"id": "stored"}}, "prompt"),
        (RESPONSE, {"top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"functions": [{"name": "f"}]}, "functions"),
        (CHAT, {"function_call": {"name": "f"}}, "function_call"),
        (CHAT, {"repeat_last_n": -2}, "repeat_last_n"),
        (TEXT, {"prompt": "", "suffix": ""}, "prompt"),
        (OLLAMA, {"options": {"mirostat": 3}}, "options.mirostat"),
        (MESSAGE, {"adaptive_target": 0.5}, "adaptive_target"),
        (RESPONSE, {"typical_p": 1.5}, "typical_p"),
        (LLAMA, {"samplers": ["top_k", "infill"]}, "samplers"),
        (LLAMA, {"samplers": "kz"}, "samplers"),
        (LLAMA, {"n_cache_reuse": 256}, "n_cache_reuse"),
        (LLAMA, {"dry_sequence_breakers": []}, "dry_sequence_breakers"),
        (CHAT, {"mirostat": 2, "speculation": {"verify": "rejection"}}, "speculation.verify"),
        (TEXT, {"reasoning_control": True}, "reasoning_control"),
        (LLAMA, {"reasoning_control": True}, "reasoning_control"),
        (INFILL, {"reasoning_control": True}, "reasoning_control"),
        (CHAT, {"return_tokens": True}, "return_tokens"),
        (TEXT, {"response_fields": ["content"]}, "response_fields"),
        (CHAT, {"parse_tool_calls": False}, "parse_tool_calls"),
        (CHAT, {"chat_template": "{{ messages }}"}, "chat_template"),
        (CHAT, {"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        (TEXT, {"stop_token_ids": [7]}, "stop_token_ids"),
        (TEXT, {"use_beam_search": True}, "use_beam_search"),
        (CHAT, {"min_tokens": 5}, "min_tokens"),
        (GENERATE, {"context": [1, 2]}, "context"),
        (GENERATE, {"template": "{{ .Prompt }}"}, "template"),
        (OLLAMA, {"think": 5}, "think"),
        (MESSAGE, {"mcp_servers": [{"type": "url", "url": "https://x"}]}, "mcp_servers"),
        (MESSAGE, {"thinking": {"type": "some"}}, "thinking.type"),
        (CHAT, {"json_schema": SCHEMA, "grammar": "g"}, "grammar"),
        (LLAMA, {"json_schema": SCHEMA, "guided_regex": "a"}, "guided_regex"),
        (
            TEXT,
            {"response_format": {"type": "json_object"}, "guided_choice": ["a"]},
            "guided_choice",
        ),
        (CHAT, {"response_format": {"type": "text"}, "json_schema": 1}, "json_schema"),
        (
            CHAT,
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
    ],
)
def test_a_field_that_nobody_serves_is_refused_by_its_name(
    endpoint: Any, fields: dict[str, Any], param: str
) -> None:
    """An unserved field would change the answer, so it is not dropped."""
    with pytest.raises(RequestError) as caught:
        read(endpoint, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (CHAT, {"min_tokens": 0, "stop_token_ids": [], "length_penalty": 1.0, "bad_words": None}),
        (TEXT, {"use_beam_search": False, "include_stop_str_in_output": False}),
        (CHAT, {"skip_special_tokens": True, "priority": 5, "chat_template": None, "user": 5}),
        (GENERATE, {"context": [], "template": ""}),
        (MESSAGE, {"mcp_servers": [], "thinking": {}}),
    ],
)
def test_a_field_with_the_value_that_asks_for_nothing_is_taken(
    endpoint: Any, fields: dict[str, Any]
) -> None:
    """Clients send every field at its default."""
    assert read(endpoint, **fields).generates


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL, RESPONSE, MESSAGE])
def test_every_step_of_llama_cpps_chain_may_be_asked_for(endpoint: Any) -> None:
    """Every dialect takes every step; with mirostat, verification is coupled."""
    fields: dict[str, Any] = {
        "typical_p": 0.5, "top_n_sigma": 1.5, "dynatemp_range": 0.5, "dynatemp_exponent": 2.0,
        "xtc_probability": 0.5, "xtc_threshold": 0.2, "dry_multiplier": 0.8, "dry_base": 2.0,
        "dry_allowed_length": 3, "dry_penalty_last_n": 9, "mirostat": 2, "mirostat_tau": 3.0,
        "mirostat_eta": 0.2, "min_keep": 2,
    }  # fmt: skip
    one = read(endpoint, **fields, dry_sequence_breakers=["x"], samplers="kt").generates[0]
    assert {name: getattr(one.sampling, name) for name in fields} == fields
    assert one.sampling.dry_sequence_breakers == ("x",)
    assert one.sampling.samplers == ("top_k", "temperature")
    assert one.speculation.verify == "coupled"


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL, RESPONSE, MESSAGE])
def test_a_seed_is_the_requests_or_the_configured_one_or_random(endpoint: Any) -> None:
    """-1 and 4294967295 draw one; so does a configuration without one."""
    fixed = Config(sampling=SamplingParams(seed=7))
    dialect, body = endpoint

    def seed(config: Config, **fields: Any) -> int:
        asked = dialect.read(msgspec.json.encode(body | fields), config, Caller("uid:1"))
        return int(asked.generates[0].sampling.seed)

    assert (seed(fixed), seed(fixed, seed=3), seed(fixed, seed=None)) == (7, 3, 7)
    for drawn in (Config(), fixed):
        for asked in (-1, 2**32 - 1):
            assert len({seed(drawn, seed=asked) for _ in range(4)}) == 4
    assert len({seed(Config()) for _ in range(4)}) == 4


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL, RESPONSE, MESSAGE])
@pytest.mark.parametrize(
    ("sent", "tokens", "texts"),
    [
        ({"5": 1.5, "7": -100}, {5: 1.5, 7: -100.0}, []),
        ([[5, 1.5], ["7", -2]], {5: 1.5, 7: -2.0}, []),
        ([[5, 1.5], [5, 1]], {5: 2.5}, []),
        ([[5, -900], [5, -900]], {5: -1000.0}, []),
        ([[5, False], [5, 900]], {5: -float("inf")}, []),
        ([[5, False]], {5: -float("inf")}, []),
        ({"5": False, "hello": 2}, {5: -float("inf")}, [("hello", 2.0)]),
        ([["hello", -1], [" x", False]], {}, [("hello", -1.0), (" x", -float("inf"))]),
        ({"--5": 2}, {}, [("--5", 2.0)]),
        ([], {}, []),
        ({}, {}, []),
    ],
)
def test_biases_come_as_pairs_and_objects_of_tokens_and_texts(
    endpoint: Any, sent: Any, tokens: dict[int, float], texts: list[Any]
) -> None:
    """All of llama-server's forms; false forbids."""
    one = read(endpoint, logit_bias=sent).generates[0]
    assert (one.sampling.logit_bias, one.biased_texts) == (tokens, texts)


@pytest.mark.parametrize(
    "sent",
    [
        {"5": True}, [[5, True]], [[5]], [[5, 1, 2]], [["5", 1001]], {"-3": 1}, [[-3, 1]], "5", 5,
        [[2**31, 1]], [[5.5, 1]], {"9" * 5000: 1},
    ],
)  # fmt: skip
def test_what_is_no_bias_is_refused(sent: Any) -> None:
    """The error names the field."""
    with pytest.raises(RequestError) as caught:
        read(LLAMA, logit_bias=sent)
    assert str(caught.value.param).startswith("logit_bias")


@pytest.mark.parametrize("endpoint", [LLAMA, INFILL])
def test_llama_servers_endpoints_take_the_nearest_number_in_range(endpoint: Any) -> None:
    """They clamp where llama-server does; other endpoints refuse numbers out of range."""
    sent = {"temperature": -1, "top_p": 1.5, "min_p": -0.5, "top_k": -5, "xtc_threshold": 2}
    chain = read(endpoint, **sent, presence_penalty=3.5, dry_base=0.5).generates[0].sampling
    assert (chain.temperature, chain.top_p, chain.min_p, chain.top_k) == (0, 1, 0, 0)
    assert (chain.xtc_threshold, chain.presence_penalty, chain.dry_base) == (1, 3.5, 1.75)
    for name, value in sent.items():
        with pytest.raises(RequestError):
            read(CHAT, **{name: value})


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        ("a", [("a", None, None)]),
        ({"prompt_string": "a"}, [("a", None, None)]),
        ({"prompt_string": "a", "multimodal_data": []}, [("a", None, None)]),
        ([1, 2], [(None, [1, 2], None)]),
        ([1, "a", 2], [(None, None, [1, "a", 2])]),
        (["a", 1], [(None, None, ["a", 1])]),
        (["a", "b"], [("a", None, None), ("b", None, None)]),
        (["a", [1], {"prompt_string": "b"}, [1, "a"]],
         [("a", None, None), (None, [1], None), ("b", None, None), (None, None, [1, "a"])]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("endpoint", [TEXT, LLAMA])
def test_prompts_come_as_text_tokens_objects_and_mixtures(
    endpoint: Any, sent: Any, asked: list[Any]
) -> None:
    """Each form is one prompt, or several in a list."""
    generates = read(endpoint, prompt=sent).generates
    assert [(one.prompt, one.prompt_tokens, one.prompt_pieces) for one in generates] == asked


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"t_max_predict_ms": 1500}, "predict_seconds", 1.5),
        ({"t_max_predict_ms": 0}, "predict_seconds", None),
        ({"t_max_prompt_ms": 20}, "prompt_seconds", 0.02),
        ({"cache_prompt": False}, "reuse", False),
        ({"cache_prompt": True}, "reuse", True),
        ({"post_sampling_probs": True}, "after_sampling", True),
        ({"return_progress": True}, "tells_reading", True),
        ({"n_indent": 4}, "indent", 4),
    ],
)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL])
def test_llama_servers_fields_reach_the_worker(
    endpoint: Any, fields: dict[str, Any], name: str, value: Any
) -> None:
    """Each endpoint that has a field passes it on."""
    assert getattr(read(endpoint, **fields).generates[0], name) == value


@pytest.mark.parametrize(
    ("allowed", "wanted", "asked"),
    [(0, None, None), (0, 9, 9), (5, None, 5), (5, 9, 5), (5, 3, 3), (5, -1, 5), (5, 0, 0)],
)
@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL])
def test_no_answer_is_longer_than_the_configuration_allows(
    endpoint: Any, allowed: int, wanted: int | None, asked: int | None
) -> None:
    """A request's limit is capped by the configured one; 0 is no cap."""
    config, (dialect, body) = Config(server=Server(max_tokens=allowed)), endpoint
    data = msgspec.json.encode(body | {"n_predict": wanted})
    assert dialect.read(data, config, Caller("uid:1")).generates[0].max_tokens == asked


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL])
def test_completions_are_counted_by_either_name(endpoint: Any) -> None:
    """`n_cmpl` means `n`."""
    assert len(read(endpoint, n_cmpl=3).generates) == 3


@pytest.mark.parametrize("endpoint", [CHAT, TEXT, LLAMA, INFILL, RESPONSE, MESSAGE])
def test_llama_servers_name_of_a_window_is_known_in_every_dialect(endpoint: Any) -> None:
    """The window has that many tokens; -1 is the largest allowed."""
    for sent, meant in ((64, 64), (0, 0), (-1, 4096)):
        asked = read(endpoint, repeat_last_n=sent, mirostat=0, typical_p=1.0)
        assert asked.generates[0].sampling.penalty_last_n == meant
    options = {"repeat_last_n": -1, "mirostat": 0, "num_predict": None}
    assert read(OLLAMA, options=options).generates[0].sampling.penalty_last_n == 4096


def test_tools_of_messages_may_be_strict() -> None:
    """`strict` is passed on, `cache_control` is not."""
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
    """Logprobs of a token whose text is held back come with the text."""
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


@pytest.mark.parametrize(
    ("allowed", "wanted", "most"),
    [(-1, None, None), (-1, 9, 9), (4, None, 4), (4, 9, 4), (0, 9, 0)],
)
def test_no_request_thinks_longer_than_the_server_lets_it(
    allowed: int, wanted: int | None, most: int | None
) -> None:
    """In any dialect the lower limit holds; -1 is none."""
    config = Config(server=Server(max_reasoning_tokens=allowed))
    body: dict[str, Any] = {"messages": SAID, "reasoning_budget_tokens": wanted}
    parsed = openai.CHAT.read(msgspec.json.encode(body), config, Caller("uid:1"))
    assert parsed.generates[0].max_thoughts == most
    budget = {"thinking": {"type": "enabled", "budget_tokens": wanted}} if wanted else {}
    body = {"messages": SAID, "max_tokens": 9, **budget}
    parsed = anthropic.MESSAGES.read(msgspec.json.encode(body), config, Caller("uid:1"))
    assert parsed.generates[0].max_thoughts == most


@pytest.mark.parametrize("budget", [True, "9", 1.5, [1]])
def test_a_budget_that_is_no_number_is_named(budget: Any) -> None:
    """It is not passed over."""
    with pytest.raises(RequestError) as caught:
        read(MESSAGE, thinking={"type": "enabled", "budget_tokens": budget})
    assert caught.value.param == "thinking.budget_tokens"
