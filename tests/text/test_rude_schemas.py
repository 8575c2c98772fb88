"""Schemas that refer to anything: grammars, readers and plainer forms stay small and end soon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import templates
from hypothesis import given
from hypothesis import strategies as st
from rude_schemas import RUDE, A
from text.test_formats import calls, form, read

from localspec.errors import RequestError
from localspec.text.dialogue import Dialogue
from localspec.text.formats import Offer, shown, typed, writing
from localspec.text.formats.spelled import with_definitions
from localspec.wire.messages import Message

MOST_CHARS = 4 << 20


def function(parameters: dict[str, Any]) -> dict[str, Any]:
    """A function with these parameters, which calls have to obey."""
    return {"name": "f", "description": "d", "parameters": parameters, "strict": True}


def formats() -> Iterator[Dialogue]:
    """A dialogue of each format that writes calls."""
    seen = set()
    for path in templates.everything():
        dialogue = templates.dialogue(path)
        if dialogue.format.name not in seen:
            seen.add(dialogue.format.name)
            yield dialogue


@pytest.mark.parametrize("name", RUDE)
def test_a_grammar_is_small_or_refused(name: str) -> None:
    """In every format."""
    asked = templates.chat([Message("user", "hi")], [function(RUDE[name])], tool_choice="required")
    for dialogue in formats():
        offer = dialogue.turn(asked).offer
        if offer.functions:
            try:
                made = dialogue.grammar(offer)
            except RequestError as error:
                assert "characters" in error.message  # noqa: PT017 - others may be made
            else:
                assert len(made) <= MOST_CHARS + 10_000


@pytest.mark.parametrize("name", RUDE)
def test_values_are_read_and_shown(name: str) -> None:
    """By a reader, for a template, and with what a field refers to."""
    whole = RUDE[name]
    for wanted in [*whole["properties"].values()][:3]:
        typed.value("1", wanted, whole)
        part = with_definitions(wanted, whole)
        assert len(json.dumps(part)) <= len(json.dumps(whole)) + 100
    told = shown.plainer([{"type": "function", "function": function(whole)}])
    assert len(json.dumps(told)) <= 2 * MOST_CHARS


PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"enum": ["x", None, 3]},
        {"const": "y"},
        {"type": "object", "properties": {}},
        {"items": {}},
        {},
        {"nullable": True},
    ]
)
SCHEMAS = st.recursive(
    PLAIN,
    lambda inner: st.builds(
        lambda key, several: {key: several},
        st.sampled_from(["anyOf", "oneOf"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


@given(SCHEMAS, SCHEMAS)
def test_a_reference_is_what_it_refers_to(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Also where a schema refers to the same twice, or to itself beside others."""
    whole = {"$defs": {"a": first, "b": {"anyOf": [second, A, {"$ref": "#/$defs/b"}]}}}
    b = {"$ref": "#/$defs/b"}
    for twice in ({"anyOf": [A, A]}, A):
        assert typed.types(twice, whole) == typed.types(first, whole)
    assert typed.types(b, whole) == typed.types(first, whole) | typed.types(second, whole)
    words = typed.choices({"anyOf": [second, first]}, {})
    assert typed.choices(b, whole) == words
    needed = with_definitions(b, {**whole, "$defs": {**whole["$defs"], "c": {}}})
    assert needed["$defs"] == whole["$defs"]


@pytest.mark.parametrize(
    "odd", [{"$ref": 5}, {"$ref": "#/$defs"}, {"$ref": "#/required"}, {"anyOf": 1}, {"oneOf": {}}]
)
def test_nested_elements_are_read_whatever_their_schema_is(odd: dict[str, Any]) -> None:
    """In the format whose values are elements themselves."""
    whole = {"type": "object", "properties": {"a": odd}, "required": ["a"], "$defs": [1]}
    text = writing.calls(form("minimax-m3"), [("f", {"a": {"b": "x"}})])
    assert "<b>" in text
    assert calls(read(form("minimax-m3"), [text], Offer([function(whole)]))) == [
        ("f", {"a": {"b": "x"}})
    ]
