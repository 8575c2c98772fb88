"""Laws of readers: any cut gives the same pieces, nothing is lost, calls are what was written."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.text.tools import Format, Offer, Piece, Reader, recognise
from localspec.text.tools.json_text import JsonScan

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME = {"name": "now"}
OFFER = Offer([WEATHER, TIME], thinks=True)
SHOWN = "{% if tools %}{{ tools }}{% endif %}"


class Family(NamedTuple):
    """What is in a family's template, and an answer of its with two calls."""

    template: str
    answer: str
    content: str = ""
    reasoning: str = ""


ARGUMENTS = '{"city": "Paris", "days": 2}'
FAMILIES = {
    "hermes": Family(
        SHOWN + "<tool_call><think>",
        "<think>\nWell.\n</think>\n\nLet me see.\n<tool_call>\n"
        f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
        "Let me see.",
        "Well.",
    ),
    "qwen3-coder": Family(
        SHOWN + "<tool_call><function=<think>",
        "<think>\nWell.\n</think>\n\nLet me see.\n<tool_call>\n<function=get_weather>\n"
        "<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "Let me see.",
        "Well.",
    ),
    "generic": Family(
        "{{ messages }}",
        f'```json\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n'
        '{"name": "now", "arguments": {}}\n```',
    ),
    "llama3": Family(
        SHOWN + "<|start_header_id|>",
        f'<|python_tag|>{{"name": "get_weather", "parameters": {ARGUMENTS}}}; '
        '{"name": "now", "parameters": {}}',
    ),
    "mistral": Family(
        SHOWN + "[TOOL_CALLS]",
        f'I look.[TOOL_CALLS][{{"name": "get_weather", "arguments": {ARGUMENTS}, "id": '
        '"abcdefghi"}, {"name": "now", "arguments": {}}]',
        "I look.",
    ),
    "mistral-named": Family(
        SHOWN + "[TOOL_CALLS][ARGS]",
        f"[THINK]Well.[/THINK]I look.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{ARGUMENTS}"
        "[TOOL_CALLS]now[ARGS]{}",
        "I look.",
        "Well.",
    ),
    "deepseek": Family(
        SHOWN + "<｜tool▁calls▁begin｜>```json",  # noqa: RUF001
        "<think>Well.</think>\n\nSee:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"  # noqa: RUF001
        f"function<｜tool▁sep｜>get_weather\n```json\n{ARGUMENTS}\n```"  # noqa: RUF001
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now"  # noqa: RUF001
        "\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",  # noqa: RUF001
        "See:",
        "Well.",
    ),
    "deepseek-v3.1": Family(
        SHOWN + "<｜tool▁calls▁begin｜>",  # noqa: RUF001
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"  # noqa: RUF001
        f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now"  # noqa: RUF001
        "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",  # noqa: RUF001
    ),
    "gpt-oss": Family(
        SHOWN + "<|channel|>",
        "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        f"<|constrain|>json<|message|>{ARGUMENTS}<|call|><|start|>assistant<|channel|>commentary "
        "to=functions.now <|constrain|>json<|message|>{}",
        "I look.",
        "Well.",
    ),
}
family = pytest.mark.parametrize("name", FAMILIES)


def read(found: Format, parts: list[str], offer: Offer = OFFER) -> list[Piece]:
    """The pieces of an answer that comes in `parts`; those of a kind that touch are joined."""
    reader = Reader(lambda tape: found.read(tape, offer))
    pieces = [piece for part in parts for piece in reader.push(part)] + reader.finish()
    joined: list[Piece] = []
    for kind, text, raw in pieces:
        last = joined[-1] if joined else None
        if last and last.kind == kind != "call":
            joined[-1] = Piece(kind, last.text + text, last.raw + raw)
        else:
            joined.append(Piece(kind, text, raw))
    return joined


def said(pieces: list[Piece], kind: str) -> list[str]:
    """What the pieces of one kind say."""
    return [piece.text for piece in pieces if piece.kind == kind]


@family
def test_a_family_is_known_by_its_template_and_its_calls_are_read(name: str) -> None:
    """Two calls with their arguments, and words and thoughts apart from them."""
    known = FAMILIES[name]
    found = recognise(known.template)

    pieces = read(found, [known.answer])

    assert found.name == name
    assert said(pieces, "call") == ["get_weather", "now"]
    assert said(pieces, "arguments") == [ARGUMENTS, "{}"]
    assert "".join(said(pieces, "content")) == known.content
    assert "".join(said(pieces, "reasoning")).strip() == known.reasoning


@family
@given(data=st.data())
def test_any_cut_gives_the_same_pieces_and_nothing_is_lost(name: str, data: st.DataObject) -> None:
    """Of answers that were damaged anywhere, too: pieces are a matter of the text alone."""
    known = FAMILIES[name]
    found = recognise(known.template)
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(known.answer))] * 2)))
    instead = data.draw(st.sampled_from(["", "<", '"', "}", "{", "\n", known.answer, "```json\n"]))
    text = known.answer[:begin] + instead + known.answer[end:]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    offer = data.draw(st.sampled_from([OFFER, Offer(), Offer([TIME], thinking=True, thinks=True)]))

    whole = read(found, [text], offer)
    parts = [text[one:other] for one, other in pairwise([0, *cuts, len(text)])]

    assert "".join(piece.raw for piece in whole) == text
    assert read(found, parts, offer) == whole
    assert read(found, list(text), offer) == whole


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "generic"])
def test_an_answer_that_is_cut_behind_its_calls_says_no_piece_of_a_tag(name: str) -> None:
    """As the limit of tokens does it, where a tag is no token of its own."""
    known = FAMILIES[name]
    found = recognise(known.template)
    for end in range(len(known.answer)):
        pieces = read(found, [known.answer[:end]])
        if said(pieces, "arguments") == [ARGUMENTS, "{}"]:
            assert "".join(said(pieces, "content")) == known.content, known.answer[:end]


@family
@pytest.mark.parametrize("text", ["Hello.", "", "  two\n\nlines \n", 'see `{"name": 1}`', "{}"])
def test_words_are_words(name: str, text: str) -> None:
    """An answer that calls nothing is the content, to the last blank."""
    pieces = read(recognise(FAMILIES[name].template), [text])
    assert said(pieces, "content") == ([text] if text else [])


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('<tool_call>\n{"name": "get_weather", "arguments": [1]}', None),
        ('<tool_call>{"name": "now", "arguments": {"a": tru!}}</tool_call>', "!}}</tool_call>"),
        ('{"name": "unknown", "arguments": {}}', None),
        ("<tool_call>nonsense</tool_call>", None),
    ],
)
def test_what_is_broken_is_content(text: str, content: str | None) -> None:
    """No call where there is none; and where arguments break off, the rest is said."""
    pieces = read(recognise(FAMILIES["hermes"].template), [text])
    assert "".join(said(pieces, "content")) == (text if content is None else content)


def test_a_line_break_in_a_string_is_escaped() -> None:
    """Models write it, JSON forbids it, and a client has to parse it."""
    pieces = read(recognise(SHOWN), ['{"name": "now", "arguments": {"a": "one\ntwo"}}'])
    assert json.loads(said(pieces, "arguments")[0]) == {"a": "one\ntwo"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=9,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=4), values, max_size=4), st.text(max_size=5), st.booleans())
def test_an_object_is_followed_to_its_end_and_no_further(
    value: dict[str, object], behind: str, indent: bool
) -> None:
    """Whatever JSON it is and whatever follows."""
    written = json.dumps(value, ensure_ascii=indent, indent=2 if indent else None)
    scan = JsonScan()
    assert scan.push(written + behind) == (len(written), written)
    assert scan.done
    assert not scan.broken


@given(st.text(alphabet='{}[]",:\\u0n1truefalse -.', max_size=14))
def test_what_json_refuses_is_broken(text: str) -> None:
    """An object that is done is one that Python's parser accepts, and the other way round."""
    scan = JsonScan()
    count, said_ = scan.push("{" + text)
    try:
        accepted = isinstance(json.loads("{" + text), dict)
    except ValueError:
        accepted = False
    assert not accepted or (scan.done and count == len(("{" + text).rstrip()))
    if scan.done:
        assert isinstance(json.loads(said_), dict)


@pytest.mark.parametrize(
    ("wanted", "written", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, 'a\n\n  "b" <c>\n', 'a\n\n  "b" <c>\n'),
        ({"type": "string"}, "", ""),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"type": "integer"}, "12", 12),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [{"type": "array"}, {"type": "object"}]}, '[1, {"a": "é"}]', [1, {"a": "é"}]),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "object"}, "no object", "no object"),
        (None, "12", "12"),
    ],
)
def test_a_value_in_an_element_is_what_the_schema_says(
    wanted: object, written: str, value: object
) -> None:
    """Text as it stands between the line breaks of the tags, all else as JSON where it is some."""
    properties = {} if wanted is None else {"x": wanted}
    offer = Offer([{"name": "f", "parameters": {"properties": properties}}])
    text = f"<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>"
    pieces = read(recognise(FAMILIES["qwen3-coder"].template), list(text), offer)
    assert json.loads("".join(said(pieces, "arguments"))) == {"x": value}


@pytest.mark.parametrize(
    "text",
    [
        "<function=unknown>\n</function>",
        "<tool_call>\n<function=>",
        "<tool_call>nothing",
        "see <function=get_weather",
    ],
)
def test_elements_that_are_no_call_are_words(text: str) -> None:
    """To the last character."""
    pieces = read(recognise(FAMILIES["qwen3-coder"].template), [text])
    assert "".join(said(pieces, "content")) == text
