"""Laws of grammars and readers: what a reader takes as a tidy call is allowed, and the reverse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import templates
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from text.test_format_grammars import Words, written
from text.test_format_records import opened
from text.test_formats import ANSWERS, calls, form, read, said

from localspec.text.formats import Format, Offer, writing
from localspec.text.formats.parts import Hole

UNTIDY = {"qwen3/raw-line-break": "a line break inside of a JSON string, which no JSON has"}
"""Records with calls that a reader mends, and a grammar does not allow."""
RECORDS = [one for one in templates.records() if one["calls"] and one["ends"] == "stop"]
ROUTE: dict[str, Any] = {
    "name": "plan_route",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "mode": {"anyOf": [{"enum": ["sail", "row"]}, {"type": "integer"}]},
            "crew": {"type": "integer", "minimum": 1, "maximum": 9},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "legs": {"type": "array", "items": {"$ref": "#/$defs/leg"}, "maxItems": 3},
        },
        "required": ["place", "crew"],
        "additionalProperties": False,
        "$defs": {
            "leg": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "fast": {"type": "boolean"}},
                "required": ["to"],
                "additionalProperties": False,
            }
        },
    },
}
LIST = {"name": "list_ports", "strict": True, "parameters": {"type": "object", "properties": {}}}
TOOLS = [ROUTE, LIST]
MADE: list[tuple[str, dict[str, Any]]] = [
    ("plan_route", {"place": "Århus, old port", "crew": 4, "mode": "sail"}),
    (
        "plan_route",
        {"crew": 1, "place": "7", "mode": 3, "note": None, "legs": [{"to": "Kiel", "fast": True}]},
    ),
    ("list_ports", {}),
    ("plan_route", {"legs": [], "crew": 9, "place": 'a "b" {c}: [d]'}),
]
family = pytest.mark.parametrize("name", ANSWERS)
both = pytest.mark.parametrize("control", [True, False])


def bound(offer: Offer, **more: Any) -> Offer:
    """The offer with functions whose arguments must obey their schemas."""
    return replace(offer, functions=[{**one, "strict": True} for one in offer.functions], **more)


def obey(made: list[tuple[str, Any]], offer: Offer) -> None:
    """Check that all calls are of offered functions, with arguments that match their schemas."""
    for name, arguments in made:
        assert name in offer.names
        jsonschema.validate(arguments, offer.function(name).get("parameters") or {})


@both
@pytest.mark.parametrize("one", RECORDS, ids=[one["id"] for one in RECORDS])
def test_a_records_calls_are_allowed_where_functions_are_strict(one: Any, control: bool) -> None:
    """By tokens of marks and by bytes; where nothing is said beside them, as required calls too."""
    dialogue, offer = opened(one)
    words = Words(dialogue.format, control=control)
    allowed = one["id"] not in UNTIDY
    assert words.allows(dialogue.format, bound(offer), one["emitted"]) == allowed
    if not one["content"] and allowed:
        forced = bound(offer, forced=True)
        assert words.allows(dialogue.format, forced, one["emitted"])


def variants(found: Format, made: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Other spellings of calls: in one line, with more lines, compact, in JSON's other ways."""
    if found.heads:
        yield written(found, *made[0])
        return
    text = writing.calls(found, made)
    yield text
    yield re.sub(r"\s*\n\s*", "", text)
    yield re.sub(r"(?<=>)\n?", "\n\n", text)
    yield re.sub(r'(?<=[":\d\]}]), (?=")', ",", text).replace('": ', '":')
    yield re.sub(r"(?<=[{\[]) ?(?=[\"{])", " ", text)
    yield text.replace('{"name": ', '{"id": "c1", "name": ', 1)
    yield text.replace('{"name": ', '{"type": "function", "name": ', 1)
    yield text.replace('"arguments": ', '"parameters": ')
    yield text.replace('"parameters": ', '"arguments": ')
    for name, arguments in made:
        plain = json.dumps(arguments, ensure_ascii=False)
        yield text.replace(
            f'"name": {json.dumps(name)}, "arguments": {plain}',
            f'"arguments": {plain}, "name": {json.dumps(name)}',
        )
        yield text.replace(name, f"functions.{name}") if "functions." not in text else text
    if found.ways[0].opening:
        yield text.removeprefix(found.ways[0].opening).removesuffix(found.ways[0].closing)
    if found.thoughts:
        pair = found.thoughts[0]
        yield f"{pair.opening}I see.{pair.closing}\n\n{text}"
        yield f"\n{pair.opening}I see {pair.closing}{text}\n"
        yield f"{pair.opening}I need it.\n{text}"
        once = writing.calls(found, made[:1])
        yield f"{pair.opening}Perhaps {once}, or not.{pair.closing}{text}"


@family
@both
@settings(max_examples=10, derandomize=True)
@given(data=st.data())
def test_what_a_reader_takes_as_calls_is_allowed(name: str, control: bool, data: Any) -> None:
    """Any spelling of calls that is read as they were meant, among words and in thoughts."""
    found = form(name)
    made = [data.draw(st.sampled_from(MADE))]
    if not found.heads and data.draw(st.booleans()):
        made.append(data.draw(st.sampled_from(MADE)))
    text = data.draw(st.sampled_from([*variants(found, made)]))
    before, behind = data.draw(
        st.sampled_from([("", ""), ("First, a < b.\n", ""), ("", "\nDone.")])
    )
    if found.heads:
        before = behind = ""
    elif any(pair.opening.strip() in text for pair in found.thoughts):
        before = ""  # thoughts come first
    whole = f"{before}{text}{behind}"
    offer = Offer(TOOLS, thinks=True, forced=not (before or behind) and data.draw(st.booleans()))
    pieces = read(found, [whole], offer)
    assume(calls(pieces) == made)
    assume(not offer.forced or not "".join(said(pieces, "content")).strip())
    words = Words(found, control=control)
    assert words.allows(found, offer, whole), whole


@family
@both
@settings(max_examples=5, derandomize=True)
@given(data=st.data())
def test_what_a_grammar_allows_is_read_as_calls_that_obey(
    name: str, control: bool, data: Any
) -> None:
    """A walk from anywhere inside of an answer to its end, drawn from all that is allowed."""
    found = form(name)
    words = Words(found, control=control)
    offer = Offer(TOOLS, thinks=data.draw(st.booleans()), forced=data.draw(st.booleans()))
    made = [data.draw(st.sampled_from(MADE))]
    text = data.draw(st.sampled_from([*variants(found, made)]))
    tokens = words.spelled(text)
    begun = tokens[: data.draw(st.integers(0, len(tokens)))]
    seed = data.draw(st.integers(0, 2**31))
    walked = words.walk(words.opened(found, offer), seed, begun)
    assume(walked and not re.search(r"[eE][-+]?\d{3}", walked))  # a number that no float holds
    got = calls(read(found, [walked], offer))
    assert got or not offer.forced, walked
    obey(got, offer)


@family
def test_a_mark_that_thoughts_speak_of_is_theirs(name: str) -> None:
    """A model may think about how it will call, as long as it calls nothing."""
    found = form(name)
    if not found.thoughts or not found.ways or Hole.NAME in found.ways[0].call[:1]:
        return
    pair, offer = found.thoughts[0], Offer(TOOLS, thinks=True, thinking=True)
    mark = found.ways[0].opening or str(found.ways[0].call[0])
    text = f"I write {mark.strip()} and so on, as in `{mark.strip()}`.{pair.closing}Hello."
    assert Words(found, control=False).allows(found, offer, text)


@pytest.mark.parametrize("name", ["llama3", "hermes", "glm", "lfm2"])
def test_many_functions_are_no_more_than_a_grammar_holds(name: str) -> None:
    """Forty with nested schemas compile, and are called as the family writes them."""
    found = form(name)
    many = [{**ROUTE, "name": f"plan_route_{at}"} for at in range(40)]
    text = written(found, "plan_route_7", MADE[0][1])
    words = Words(found, control=False)
    assert words.allows(found, Offer(many, thinks=True), text)
    assert not words.allows(found, Offer(many, thinks=True), text.replace("sail", "soil"))
