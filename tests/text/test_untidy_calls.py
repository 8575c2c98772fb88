"""Tests of calls that deviate from their templates, and are repaired."""

from __future__ import annotations

from typing import Any

import pytest
from text.test_formats import calls, form, read, said

from localspec.text.formats import Offer, writing


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>[{"name": "now", "arguments": {}}]</tool_call>'),
        ("kimi-k2", "<|tool_call_begin|>now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("llama3", "<|python_tag|>now.call()"),
        ("llama3", "[now()]"),
        ("gpt-oss", "<|channel|>commentary to=now<|message|>{}"),
        ("lfm2", '<|tool_call_start|>[{"name": "now", "arguments": {}}]<|tool_call_end|>'),
        ("mistral", '[TOOL_CALLS]{"name": "now", "arguments": {}}'),
        ("glm", '<tool_call>{"name": "now", "arguments": {}}</tool_call>'),
        ("qwen3-coder", "<function=now>\n</function>"),
        ("generic", '```json\n{"name": "now", "arguments": {}}\n```'),
        ("deepseek-v3.1", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),  # noqa: RUF001
    ],
)
def test_a_family_is_understood_where_it_writes_otherwise(name: str, text: str) -> None:
    """Forgotten marks, a list in place of an object, another family's notation."""
    pieces = read(form(name), list(text))
    assert (calls(pieces), "".join(said(pieces, "content"))) == ([("now", {})], "")


@pytest.mark.parametrize("text", ["now\n{}>>>now\n{}", "now\n{} >>>now\n{}>>>now\n{}"])
def test_a_call_without_a_mark_is_followed_by_one_with_a_mark(text: str) -> None:
    """Functionary's prompt ends with the mark of the first call."""
    for parts in ([text], list(text)):
        pieces = read(form("functionary-3.2"), parts)
        assert calls(pieces) == [("now", {})] * text.count("now")
        assert not "".join(said(pieces, "content")).strip()


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "Rome"}',
        '"{\\"city\\": \\"Rome\\"}"',
        '{"city": "Rome",}',
        "{'city': 'Rome'}",
        '{city: "Rome"}',
        '{"city": "Rome"',
        '{"city": "Rome"}}',
        '{"city"\n:\n"Rome"}',
    ],
)
@pytest.mark.parametrize("stop", ["\n</tool_call>", "</tool_call>\n\n", ""])
def test_arguments_are_mended_to_what_was_meant(arguments: str, stop: str) -> None:
    """Typical mistakes of small models."""
    text = '<tool_call>\n{"name": "get_weather", "arguments": ' + arguments + "}" + stop
    pieces = read(form("hermes"), [text])
    assert calls(pieces) == [("get_weather", {"city": "Rome"})]
    assert "".join(said(pieces, "content")) == ""


@pytest.mark.parametrize("depth", [50, 900, 5000])
def test_what_is_nested_too_deeply_ends_nothing(depth: int) -> None:
    """The result is a call or text; reading never fails."""
    deep = "[" * depth + "]" * depth
    for name in ("hermes", "qwen3-coder", "lfm2", "gemma4"):
        text = writing.calls(form(name), [("now", {"a": 1})]).replace("1", deep) + "\nDone."
        assert "".join(said(read(form(name), [text]), "content")).endswith("Done.")


@pytest.mark.parametrize("nothing", ["null", '""', "[]", "{}", '"{}"', '"null"', "None"])
@pytest.mark.parametrize("name", ["hermes", "mistral-named", "kimi-k2", "functionary-3.1"])
def test_nothing_is_an_empty_object(name: str, nothing: str) -> None:
    """Empty arguments are {}."""
    found = form(name)
    text = writing.calls(found, [("now", {})]).replace("{}", nothing)
    assert calls(read(found, [text])) == [("now", {})]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"one\ntwo"', "one\ntwo"),
        (r'"C:\dir\new"', "C:\\dir\new"),
        (r'"it\'s"', "it's"),
        (r'"caf\u00e9 \ud83d\ude00"', "café 😀"),
        ('"print("hi")"', 'print("hi")'),
        ("True", True),
        ("None", None),
        ("+1", 1),
        (".5", 0.5),
        ("1_000", 1000),
        ('"\\ud800"', "\ufffd"),
    ],
)
def test_values_are_what_a_person_would_read(written: str, value: Any) -> None:
    """Escapes, words and numbers that JSON does not allow."""
    text = '<tool_call>{"name": "now", "arguments": {"a": ' + written + "}}</tool_call>"
    assert calls(read(form("hermes"), list(text))) == [("now", {"a": value})]


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}',
        '{"function": "get_weather", "parameters": {"city": "Rome"}}',
        '{"name": "get_weather", "city": "Rome"}',
        '{"name": "functions.get_weather", "arguments": {"city": "Rome"}}',
        '{{"name": "get_weather", "arguments": {"city": "Rome"}}}',
    ],
)
def test_an_object_that_is_nearly_a_call_is_one(text: str) -> None:
    """Other keys than the template's, two braces, a prefix."""
    assert calls(read(form("hermes"), [f"<tool_call>{text}</tool_call>"])) == [
        ("get_weather", {"city": "Rome"})
    ]


@pytest.mark.parametrize(
    ("wanted", "written", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, 'a\n\n  "b" <c>\n', 'a\n\n  "b" <c>\n'),
        ({"type": "string"}, "", ""),
        ({"type": "string"}, "see </parameter> there", "see </parameter> there"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, '"12"', 12),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "None", "None"),
        ({"type": ["string", "null"]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "2024", "2024"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "2024", 2024),
        ({"anyOf": [{"type": "array"}, {"type": "object"}]}, '[1, {"a": "é"}]', [1, {"a": "é"}]),
        ({"$ref": "#/$defs/n"}, "3", 3),
        ({"type": "boolean"}, "True", True),
        ({"type": "string"}, "True", "True"),
        ({"type": "object"}, "{'a': None}", {"a": None}),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "object"}, "no object", "no object"),
        ({}, "12", 12),
        (None, "12", "12"),
    ],
)
@pytest.mark.parametrize("name", ["qwen3-coder", "glm", "seed-oss", "minimax-m2", "hunyuan-3"])
def test_a_value_in_an_element_is_what_the_schema_says(
    name: str, wanted: object, written: str, value: object
) -> None:
    """A string is taken verbatim between its marks, anything else as JSON if it is valid."""
    properties = {} if wanted is None else {"x": wanted}
    parameters = {"properties": properties, "$defs": {"n": {"type": "integer"}}}
    offer = Offer([{"name": "f", "parameters": parameters}])
    text = writing.calls(form(name), [("f", {"x": written.replace("</parameter>", "@")})])
    closing = {"glm": "</arg_value>", "hunyuan-3": "</arg_value:opensource>"}.get(name)
    mark = closing or "</parameter>"
    pieces = read(form(name), list(text.replace("@", mark)), offer)
    if isinstance(value, str):
        value = value.replace("</parameter>", mark)
    assert calls(pieces) == [("f", {"x": value})]
