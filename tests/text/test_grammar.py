"""Laws of grammars: bounded, compiled, relaxed, or refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.errors import RequestError
from localspec.text import grammar, schema
from localspec.text.grammar import MAX_SCHEMA_BYTES, Compiled


def of_schema(wanted: Any, **more: Any) -> dict[str, Any]:
    """OpenAI's response_format for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted, **more}}


def compiled(response_format: dict[str, Any]) -> Compiled:
    """The grammar of this response_format."""
    source = grammar.source(response_format)
    assert source is not None
    return grammar.compiled(source)


def nested(depth: int) -> dict[str, Any]:
    """A schema `depth` levels deep."""
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


def test_plain_text_needs_no_grammar() -> None:
    """No response_format, and the type "text", restrict nothing."""
    assert grammar.source(None) is None
    assert grammar.source({"type": "text"}) is None


EXPLODING: dict[str, Any] = {
    "allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(6)]} for i in range(8)]
}


@pytest.mark.parametrize(
    ("response_format", "said"),
    [
        ({"type": "xml"}, "'xml' is not known"),
        ({}, "is not known"),
        ({"type": "json_schema"}, "schema is missing"),
        (of_schema([1]), "schema is missing"),
        (of_schema({"type": "nonsense"}), "Invalid type"),
        (of_schema({"$ref": "#/$defs/gone"}), "does not exist"),
        (of_schema({"$ref": "https://example.org/schema"}), "not fetch"),
        (of_schema({"$ref": "#"}), "allows nothing, or refers to itself"),
        (of_schema({"type": "string", "pattern": "(a|b"}), "unclosed group"),
        (of_schema({"enum": []}), "Unsatisfiable"),
        (of_schema({"enum": [float("nan")]}), "not JSON"),
        (of_schema({"enum": [-(1 << 63)]}), "beyond 64 bits"),
        (of_schema({"const": -(1 << 63) + 2}), "beyond 64 bits"),
        (of_schema({"const": -1e19}), "beyond 64 bits"),
        (of_schema({"minimum": -(1 << 63), "maximum": -(1 << 63)}, strict=True), "beyond 64 bits"),
        (of_schema({"properties": {f"p{i}": {} for i in range(5_001)}}), "5001 properties"),
        (of_schema({"enum": ["x" * 60_001] * 2}), "120002 characters"),
        (of_schema({"$defs": {"x" * 120_001: {}}}), "120001 characters"),
        (of_schema({"enum": [*range(schema.MAX_NODES)]}), "parts"),
        (of_schema(nested(70)), "nested more than"),
        (of_schema(nested(100_000)), "nested more than"),
        (of_schema({"pattern": "x" * MAX_SCHEMA_BYTES}), "bytes"),
        (of_schema(EXPLODING), "too large"),
        ({"type": "regex", "pattern": "(a"}, "unclosed group"),
        ({"type": "regex", "pattern": "(" * 60_000}, "invalid regex"),
        ({"type": "choice", "choices": []}, "'choice' needs choices"),
        ({"type": "choice"}, "'choice' needs choices"),
        ({"type": "regex"}, "'regex' needs a pattern"),
        ({"type": "gbnf"}, "'gbnf' needs a grammar"),
        ({"type": "lark", "grammar": None}, "'lark' needs a grammar"),
        ({"type": "choice", "choices": ["a", 1]}, "no text"),
        ({"type": "gbnf", "grammar": "root ::= (" * 9}, "GBNF"),
        ({"type": "gbnf", "grammar": "root ::= " + "(" * 60_000}, "GBNF"),
        ({"type": "lark", "grammar": "start: " + "(" * 60_000}, "nested"),
        ({"type": "lark", "grammar": "start: other"}, "other"),
    ],
)
def test_what_cannot_be_served_is_a_request_error(
    response_format: dict[str, Any], said: str
) -> None:
    """Unknown types, broken, circular, unbounded and exploding grammars are refused."""
    with pytest.raises(RequestError, match=said) as caught:
        compiled(response_format)
    assert caught.value.param == "response_format"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "wanted",
    [
        {"enum": [schema.MAX_INTEGER, -schema.MAX_INTEGER]},
        {"type": "integer", "minimum": -schema.MAX_INTEGER, "maximum": -schema.MAX_INTEGER},
        {"type": "number", "minimum": -0.5e18, "maximum": 1e-300},
        nested(30),
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(600)}},
        {"type": "string", "description": "x" * MAX_SCHEMA_BYTES, "title": "y" * MAX_SCHEMA_BYTES},
        {"enum": [f"{number:06}" for number in range(20_000)]},
        {
            "type": "object",
            "properties": {f"p{i:04}": {"type": "string", "description": "word " * 20}
                           for i in range(5_000)},
            "required": [f"p{i:04}" for i in range(5_000)],
            "additionalProperties": False,
        },
    ],
    ids=["integers", "borders", "numbers", "deep", "optional", "words", "enum", "required"],
)  # fmt: skip
def test_what_is_large_but_fits_compiles(wanted: dict[str, Any]) -> None:
    """Large schemas compile unrelaxed; keys that only explain do not count.

    The largest integers, deep nesting, many optional properties, OpenAI's largest schemas.
    """
    assert compiled(of_schema(wanted)).relaxed == []


AB = {"a": {"type": "integer"}, "b": {"type": "integer"}}


@pytest.mark.parametrize(
    ("wanted", "relaxed"),
    [
        ({"type": "object", "additionalProperties": False, "properties": AB}, []),
        ({"type": "string", "format": "iri-reference-of-mine"}, ["format"]),
        ({"type": "array", "uniqueItems": True}, ["uniqueItems"]),
        ({"type": "array", "contains": {"type": "integer"}}, ["contains"]),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, ["propertyNames"]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["oneOf"]),
        (
            {"type": "object", "minProperties": 1, "properties": AB},
            ["maxProperties", "minProperties"],
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ["if", "then"]),
        ({"not": {"type": "string"}}, ["not"]),
        ({"type": "string", "pattern": r"\bword\b"}, ["pattern"]),
        ({"type": "string", "pattern": "^(?!x)y"}, ["pattern"]),
        ({"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
         ["maximum", "minimum"]),
        ({"type": "number", "multipleOf": 1e-300}, ["multipleOf"]),
        ({"properties": {"pattern": {"const": r"\b"}, "not": {"type": "string"}}}, []),
    ],
)  # fmt: skip
def test_harmless_keys_are_relaxed_and_named(wanted: dict[str, Any], relaxed: list[str]) -> None:
    """Keys that cannot be enforced are left out; strict schemas are refused."""
    assert compiled(of_schema(wanted)).relaxed == relaxed
    assert compiled(of_schema(wanted, strict=False)).relaxed == relaxed
    if relaxed:
        with pytest.raises(RequestError):
            compiled(of_schema(wanted, strict=True))
    else:
        assert compiled(of_schema(wanted, strict=True)).relaxed == []


def test_a_schema_does_not_choose_the_compilers_settings() -> None:
    """The compiler's options inside of a schema are ignored."""
    sly = {"type": "object", "properties": {"x-guidance": {}}, "x-guidance": {"lenient": True}}
    read = json.loads(compiled(of_schema(sly, strict=True)).grammar)["grammars"][0]["json_schema"]
    assert read["x-guidance"]["lenient"] is False
