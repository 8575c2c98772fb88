"""Tests of functions as templates show them: any JSON Schema is shown by each template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import templates
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import TemplateError
from localspec.text.dialogue import Dialogue
from localspec.text.formats import shown
from localspec.text.template import Conversation, rendered
from localspec.wire.messages import Message

PATHS = templates.everything()
TEXT = {"type": "string"}
SCHEMAS: list[Any] = [
    TEXT,
    {"type": "string", "description": None},
    {"type": "string", "enum": ["x", "y"], "description": "Which."},
    {"type": "integer", "default": 3, "minimum": 0},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"type": ["array", "object"]},
    {"type": "array"},
    {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}},
    {"type": "object"},
    {"type": "object", "properties": {"b": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {"b": TEXT}, "additionalProperties": False},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "additionalProperties": TEXT},
    {"anyOf": [{"type": "null"}, TEXT], "default": None},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": "v"}}}, {"type": "array"}]},
    {"enum": ["x", 1]},
    {"$ref": "#/$defs/A"},
    {"$ref": "#/$defs/missing"},
    {},
    True,
]
PARAMETERS: list[Any] = [None, {}, {"type": "object"}, {"properties": {}}]


def offer(wanted: Any) -> dict[str, Any]:
    """A function with one argument of that schema."""
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/A"}}}
    fields = {"berth": wanted}
    return {
        "name": "moor",
        "description": "Moors a boat.",
        "parameters": {"type": "object", "properties": fields, "$defs": {"A": tree}},
    }


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_any_schema_is_shown(path: Path) -> None:
    """The template does not raise, and shows the function's name and its argument's."""
    dialogue = templates.dialogue(path)
    functions = [offer(wanted) for wanted in SCHEMAS]
    functions += [{"name": "moor", "parameters": one} for one in PARAMETERS]
    for one in functions:
        prompt = dialogue.turn(templates.chat([Message("user", "Hi.")], [one])).prompt
        assert "moor" in prompt, one
        if "berth" in str(one):
            assert "berth" in prompt, one


def test_a_function_is_shown_in_the_order_that_models_know() -> None:
    """Name, description, parameters, and nothing that is only for the grammar."""
    [tool] = shown.tools([{"parameters": {}, "strict": True, "description": "D.", "name": "f"}])
    assert list(tool["function"]) == ["name", "description", "parameters"]
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


def test_what_a_template_refuses_with_plainer_functions_too_is_refused() -> None:
    """The error is the first one."""
    source = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}
{% for call in m.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}{% endfor %}{% for tool in tools or [] %}
{% set berth = tool.function.parameters.properties.berth %}
{% if berth %}{{ raise_exception('no berth: ' ~ berth.type) }}{% endif %}{% endfor %}"""

    def render(messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        turns = [{**one.extra, "role": one.role, "content": one.content} for one in messages]
        return rendered(Conversation(source, "", "", turns, dict(variables))).text

    dialogue = Dialogue(source, render, lambda _mark: None)
    assert dialogue.recognised.reads.tools
    with pytest.raises(TemplateError, match=r"no berth: \['string', 'null'\]"):
        dialogue.turn(
            templates.chat([Message("user", "Hi.")], [offer({"type": ["string", "null"]})])
        )


schemas = st.recursive(
    st.sampled_from(SCHEMAS),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda one: {"type": "object", "properties": {"a": one}}, inner),
        st.builds(lambda one: {"anyOf": [{"type": "null"}, one]}, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(wanted=schemas)
def test_the_plainer_form_has_one_type_for_each_value(wanted: Any) -> None:
    """And is its own plainer form."""
    plain = shown.plainer(shown.tools([offer(wanted)]))

    def walk(one: Any) -> None:
        assert isinstance(one["type"], str)
        assert one["type"] != "null"
        assert isinstance(one.get("description", ""), str)
        if one["type"] == "array":
            walk(one["items"])
        if one["type"] == "object":
            walk(one["additionalProperties"])
            for inner in one["properties"].values():
                walk(inner)

    walk(plain[0]["function"]["parameters"]["properties"]["berth"])
    assert shown.plainer(plain) == plain
