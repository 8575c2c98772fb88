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
        "{“city”: “Rome”}",
        "{`city`: `Rome`}",
        '{"city": """Rome"""}',
        '[{"city": "Rome"}]',
        '"{"city": "Rome"}"',
        '"{"city": "Rome",}"',
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
    quoted = '"{"a": ' * depth
    text = f'<tool_call>{{"name": "now", "arguments": {{"a": {quoted}}}}}</tool_call>\nDone.'
    assert "".join(said(read(form("hermes"), [text]), "content")).endswith("Done.")
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
        ('"print("hi", end="")"', 'print("hi", end="")'),
        ('"x = {"a": 1, "b": "c"}"', 'x = {"a": 1, "b": "c"}'),
        ('"x = {"a": "b"}; y = x["a"]"', 'x = {"a": "b"}; y = x["a"]'),
        ('"He said "no", and "yes"."', 'He said "no", and "yes".'),
        ('"{"k": [1, 2]}"', '{"k": [1, 2]}'),
        ('"""say "hi"\n\'x\'"""', "say \"hi\"\n'x'"),
        ('`say "hi"`', 'say "hi"'),
        ('"“quoted”"', "“quoted”"),
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
    "name",
    ["functions.get_weather", "default_api.get_weather", "get_weather()", r"get\\_weather",
     " get_weather ", r"functions.get\\_weather"],
)  # fmt: skip
def test_a_name_is_the_functions_whatever_is_around_it(name: str) -> None:
    """A namespace, parentheses, an escape of Markdown; another function's name stays as it is."""
    text = f'<tool_call>{{"name": "{name}", "arguments": {{"city": "Rome"}}}}</tool_call>'
    assert calls(read(form("hermes"), [text])) == [("get_weather", {"city": "Rome"})]
    other = text.replace("weather", "rain").replace(name.replace("weather", "rain"), "get_rain")
    assert calls(read(form("hermes"), [other])) == [("get_rain", {"city": "Rome"})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "now", "arguments": {}}\n<tool_call>'),
        ("glm", "<tool_call>\n<tool_call>now</tool_call>"),
        ("qwen3-coder", "<tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"),
        ("generic", '```json\n[{"name": "now", "arguments": {}}]\n```'),
        ("nemotron-v2", '<TOOLCALL>```json\n[{"name": "now", "arguments": {}}]\n```</TOOLCALL>'),
        ("gpt-oss", "<|channel|>commentary to=functions.now json<|message|>```json\n{}\n```"),
        ("gpt-oss", "<|channel|>commentary to=functions.now json<|message|>"),
        ("mistral-named", "[TOOL_CALLS]now"),
        ("mistral-named", "[TOOL_CALLS]now[ARGS]"),
        ("minimax-m2", "<minimax:tool_call><invoke name='now'></invoke></minimax:tool_call>"),
        ("minimax-m2", "<minimax:tool_call><invoke name=now></invoke></minimax:tool_call>"),
    ],
)
def test_marks_that_are_doubled_forgotten_or_quoted_otherwise_are_marks(
    name: str, text: str
) -> None:
    """And none of them becomes text, wherever the answer is cut."""
    for parts in ([text], list(text)):
        pieces = read(form(name), parts)
        assert (calls(pieces), "".join(said(pieces, "content")).strip()) == ([("now", {})], "")
    for end in range(len(text)):
        pieces = read(form(name), [text[:end]], cut=True)
        assert "".join(said(pieces, "content")).strip().strip("`") == ""
        assert calls(pieces) in ([], [("now", {})])


DSML = '<｜DSML｜function_calls><｜DSML｜invoke name="f">'  # noqa: RUF001
STRING = '｜DSML｜parameter name="{}" string="true">'  # noqa: RUF001


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3-coder", "<tool_call><function=f>\n<parameter=a>\none\n<parameter=b>\ntwo"),
        ("seed-oss", "<seed:tool_call><function=f>\n<parameter=a>one\n<parameter=b>two"),
        ("glm", "<tool_call>f<arg_key>a</arg_key><arg_value>one<arg_key>b</arg_key><arg_value>two"),
        (
            "minimax-m2",
            '<minimax:tool_call><invoke name="f"><parameter name="a">one\n<parameter name="b">two',
        ),
        ("deepseek-v3.2", f"{DSML}<{STRING.format('a')}one\n<{STRING.format('b')}two"),
    ],
)
def test_a_value_whose_end_was_forgotten_ends_at_the_next_argument(name: str, text: str) -> None:
    """If that is known; what only looks like one is text."""
    properties = {"a": {"type": "string"}, "b": {"type": "string"}}
    offer = Offer([{"name": "f", "parameters": {"properties": properties}}])
    ends = {"glm": "</arg_value></tool_call>", "deepseek-v3.2": "</｜DSML｜parameter>"}  # noqa: RUF001
    end = ends.get(name, "</parameter></function>" if "<function" in text else "</parameter>")
    if name == "minimax-m2":
        end += "</invoke></minimax:tool_call>"
    if name == "deepseek-v3.2":
        end += "</｜DSML｜invoke></｜DSML｜function_calls>"  # noqa: RUF001
    for parts in ([text + end], list(text + end)):
        assert calls(read(form(name), parts, offer)) == [("f", {"a": "one", "b": "two"})]
    del properties["b"]
    [(_, given)] = calls(read(form(name), [text + end], offer))
    assert given.keys() == {"a"}


@pytest.mark.parametrize(
    ("wanted", "written", "value"),
    [
        ({"type": "boolean"}, "TRUE", True),
        ({"type": ["string", "boolean"]}, "False", False),
        ({"type": "integer"}, '"12"', 12),
        ({"type": "string"}, "12", 12),
        ({"type": "string"}, "hall", "hall"),
        ({}, "12", 12),
        (None, "null", None),
    ],
)
def test_a_value_that_is_said_to_be_no_string_is_one_of_the_other_types(
    wanted: object, written: str, value: object
) -> None:
    """DeepSeek says of each value whether it is a string; the schema says the rest."""
    properties = {} if wanted is None else {"x": wanted}
    offer = Offer([{"name": "f", "parameters": {"properties": properties}}])
    text = f"{DSML}<{STRING.format('x').replace('true', 'false')}{written}</｜DSML｜parameter>"  # noqa: RUF001
    text += "</｜DSML｜invoke></｜DSML｜function_calls>"  # noqa: RUF001
    assert calls(read(form("deepseek-v3.2"), list(text), offer)) == [("f", {"x": value})]


@pytest.mark.parametrize("required", [[], ["city"]])
def test_arguments_that_were_not_written_are_none_where_none_are_required(
    required: list[str],
) -> None:
    """Otherwise the text stays text."""
    parameters = {"properties": {"city": {"type": "string"}}, "required": required}
    offer = Offer([{"name": "f", "parameters": parameters}])
    pieces = read(form("mistral-named"), ["[TOOL_CALLS]f"], offer)
    assert calls(pieces) == ([] if required else [("f", {})])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral-named", "A call begins with [TOOL_CALLS]name"),
        ("glm", "Calls stand between <tool_call> and </tool_call>"),
    ],
)
def test_marks_at_the_end_of_a_sentence_are_words(name: str, text: str) -> None:
    """An unknown name without arguments, behind words in the same line."""
    for parts in ([text], list(text)):
        pieces = read(form(name), parts)
        assert ("".join(said(pieces, "content")), calls(pieces)) == (text, [])


@pytest.mark.parametrize("head", ["to=functions.rain", "to=rain", "to=python"])
def test_an_unknown_function_of_harmony_is_called_if_it_is_said_to_be_one(head: str) -> None:
    """As the other families' unknown functions, which the client refuses by itself."""
    text = f"<|channel|>commentary {head} <|constrain|>json<|message|>{{}}"
    found = calls(read(form("gpt-oss"), [text]))
    assert found == ([("rain", {})] if "functions" in head else [])


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
        ({"anyOf": [{"type": "integer"}, {"enum": ["off"]}]}, "40", 40),
        ({"anyOf": [{"type": "integer"}, {"enum": ["off"]}]}, "off", "off"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "40", "40"),
        ({"enum": ["auto", 1, True]}, "1", 1),
        ({"enum": ["auto", 1, True]}, "true", True),
        ({"enum": ["auto", 1, True]}, "auto", "auto"),
        ({"type": ["string", "number"], "const": "1"}, "1", "1"),
        ({"enum": ["kg", "lb"]}, ' "kg" ', "kg"),
        ({"enum": ["kg", "lb"]}, "stone", "stone"),
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
