"""Tests of what stands around calls: fences, commas, marks that are missing or another family's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.test_formats import MADE, OFFER, calls, family, form, read, said

from localspec.text.formats import Offer, pythonic, values, writing
from localspec.text.formats.marks import opening

DSML = """<｜DSML｜{0}>
<｜DSML｜invoke name="get_weather">
{1}
</｜DSML｜invoke>
</｜DSML｜{0}>"""  # noqa: RUF001 - the model's own letters
MINIMAX = """<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">Rome</parameter>
</minimax:tool_call>"""
SEED = "<function=get_weather>\n<parameter=city>Rome</parameter>\n</function>\n"
HY = "tool_call:opensource>"
HUNYUAN = f"""<tool_calls:opensource>
<{HY}get_weather<tool_sep:opensource>
<arg_key:opensource>city</arg_key:opensource><arg_value:opensource>Rome</arg_value:opensource>
</{HY}
<{HY}now</{HY}
</tool_calls:opensource>"""
ROME = '{"city": "Rome"}'
CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>"),
        ("hermes", f"<tool_call>\n```\n{CALL}\n```"),
        ("hermes", f"{CALL}\n</tool_call>"),
        ("hermes", f"[{CALL},]"),
        ("hermes", f"<tool_call>[\n{CALL},\n]</tool_call>"),
        ("hermes", f"<tool_call>\n{CALL},\n</tool_call>"),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome" /* IT */}}'),
        ("hermes", '<tool_call>{"name": "get_weather", // now\n"arguments": {"city": "Rome"}}'),
        ("hermes", '<tool_call>{"name": "get_weather" "arguments": {"city": "Rome"}}</tool_call>'),
        ("deepseek-v3.1", f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>```json\n{ROME}\n```"),  # noqa: RUF001
        ("deepseek", f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n{ROME}"),  # noqa: RUF001
        ("glm", f"<tool_call>get_weather{ROME}</tool_call>"),
        ("qwen3-coder", f"<tool_call>\n<function=get_weather>\n{ROME}\n</function>\n</tool_call>"),
        ("deepseek-v4", DSML.format("tool_calls", ROME)),
        ("minimax-m2", MINIMAX),
        ("minimax-m2", f"<minimax:tool_call>\n{CALL}\n</minimax:tool_call>"),
        ("seed-oss", SEED + "</seed:tool_call>"),
        ("nemotron-v2", f"<TOOLCALL>{CALL}</TOOLCALL>"),
        ("apertus", f"<|tools_prefix|>[{CALL}]<|tools_suffix|>"),
        ("granite-3", f"<tool_call>[{CALL}]"),
        ("olmo3", f"<function_calls>\n{CALL}\n</function_calls>"),
        ("mistral", f"[{CALL}]"),
        ("llama3", f"[{CALL}]"),
        ("llama3", f"```json\n{CALL}\n```"),
        ("gemma4", "<|tool_call>get_weather{city:'Rome'}<tool_call|>"),
        ("gemma4", '<|tool_call>call:get_weather(city="Rome")<tool_call|>'),
        ("lfm2", '<|tool_call_start|>[\n  get_weather(\n    city="Rome"),\n]<|tool_call_end|>'),
    ],
)  # fmt: skip
def test_a_call_is_understood_in_an_unusual_block(name: str, text: str) -> None:
    """And no mark of it becomes text."""
    for parts in ([text], list(text)):
        pieces = read(form(name), parts)
        assert (calls(pieces), "".join(said(pieces, "content"))) == (
            [("get_weather", {"city": "Rome"})],
            "",
        )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", f'<tool_call>\n{CALL}\n{{"name": "now", "arguments": {{}}}}\n</tool_call>'),
        ("seed-oss", f"<seed:tool_call>\n{SEED}<function=now></function></seed:tool_call>"),
        ("hunyuan-3", HUNYUAN),
    ],
)  # fmt: skip
def test_marks_around_one_call_may_be_around_two(name: str, text: str) -> None:
    """And no mark of them becomes text."""
    for parts in ([text], list(text)):
        pieces = read(form(name), parts)
        assert calls(pieces) == [("get_weather", {"city": "Rome"}), ("now", {})]
        assert not "".join(said(pieces, "content"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", f"```\n<tool_call>\n{CALL}\n</tool_call>\n```"),
        ("lfm2", '<|tool_call_start|>[\n  get_weather(city="Rome"),\n]<|tool_call_end|>'),
        ("hermes", f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>"),
    ],
)
def test_a_block_that_is_cut_leaves_no_mark_behind(name: str, text: str) -> None:
    """Wherever it is cut; a fence alone may still begin words."""
    for end in range(len(text)):
        pieces = read(form(name), [text[:end]], cut=True)
        assert "".join(said(pieces, "content")).strip().strip("`") == ""
        assert calls(pieces) in ([], [("get_weather", {"city": "Rome"})])


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('path=r"a\\b"', {"path": "a\\b"}),
        ("path=f'a'", {"path": "a"}),
        ('path="a" "b"', {"path": "ab"}),
        ('**{"path": "a"}', {"path": "a"}),
        ('{"path": "a"}', {"path": "a"}),
        ("path=0x10", {"path": 16}),
        ("path=dict(a=1)", {"path": {"a": 1}}),
        ('path={"a", }', {"path": ["a"]}),
        ("path=[1,  # one\n null, -2]", {"path": [1, None, -2]}),
        ('"a", mode=2', {"path": "a", "mode": 2}),
        ('{"a": 1}', {"path": {"a": 1}}),
        ('path: "a", mode: 2', {"path": "a", "mode": 2}),
        ('path="print("a", "b")", mode=2', {"path": 'print("a", "b")', "mode": 2}),
    ],
)
def test_arguments_are_read_as_python_reads_them(arguments: str, wanted: dict[str, Any]) -> None:
    """Also those that are neither JSON nor literals."""
    fields = {"path": {"type": "string"}, "mode": {"type": "integer"}}
    offer = Offer([{"name": "f", "parameters": {"properties": fields}}])
    text = f"<|tool_call_start|>[f({arguments})]<|tool_call_end|>"
    for parts in ([text], list(text)):
        assert calls(read(form("lfm2"), parts, offer)) == [("f", wanted)]


@pytest.mark.parametrize(
    "arguments", ["path=open('x')", "path=a.b", "path=1 if x else 2", "1, 2, 3", "path=x", "a b"]
)
def test_what_would_have_to_be_evaluated_is_no_call(arguments: str) -> None:
    """The text is unchanged."""
    offer = Offer([{"name": "f", "parameters": {"properties": {"path": {}, "mode": {}}}}])
    text = f"<|tool_call_start|>[f({arguments})]<|tool_call_end|>"
    pieces = read(form("lfm2"), [text], offer)
    assert (calls(pieces), "".join(said(pieces, "content"))) == ([], text)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet="ab1_ ,.:=\"'()[]{}*+-~#\\\n", max_size=40))
def test_no_text_is_too_odd_for_pythons_parser(text: str) -> None:
    """The result is an object or ValueError."""
    try:
        found = pythonic.arguments(text, ["a", "b"])
    except ValueError:
        return
    values.written(found)


def test_what_is_nested_deeply_is_not_given_to_pythons_parser() -> None:
    """It recurses in C."""
    for signs in ("[" * 5000, "-" * 100_000, "~" * 5000):
        with pytest.raises(ValueError, match="too many brackets"):
            pythonic.arguments(f"a={signs}1", [])


@family
def test_calls_in_a_fence_of_their_own_are_calls_and_others_are_quoted(name: str) -> None:
    """A fence behind words shows how a call would look; one around nothing but calls is dropped."""
    found = form(name)
    marked = found.ways and not found.ways[0].first and opening(found.ways[0]) != "{"
    if not marked or found.heads or found.dropped or opening(found.ways[0]).startswith("Action"):
        return
    for fence in ("```", "```xml", "```json"):
        text = f"{fence}\n{writing.calls(found, MADE)}\n```"
        for parts in ([text], list(text)):
            pieces = read(found, parts)
            assert (calls(pieces), "".join(said(pieces, "content")).strip()) == (MADE, ""), fence
            shown = read(found, ["It looks so:\n", *parts, "\nUse it."])
            assert "".join(said(shown, "content")) == f"It looks so:\n{text}\nUse it."
            assert calls(shown) == []


def test_words_around_a_call_are_in_lines_of_their_own() -> None:
    """As without the call between them."""
    call = f"<tool_call>\n{CALL}\n</tool_call>"
    for gap in ("", "\n", "\n\n", " "):
        text = f"One.{gap}{call}{gap}{call}{gap}Two.{gap}{call}{gap}"
        for parts in ([text], list(text)):
            assert "".join(said(read(form("hermes"), parts, OFFER), "content")) == "One.\nTwo."
