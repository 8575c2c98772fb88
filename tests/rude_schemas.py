"""Schemas that refer to themselves, or to much, in many places."""

from __future__ import annotations

from typing import Any

A = {"$ref": "#/$defs/a"}


def schema(definitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An object with these fields, all of them required."""
    made = {"type": "object", "properties": fields, "required": list(fields)}
    return {**made, "additionalProperties": False, "$defs": definitions}


def many(count: int) -> dict[str, Any]:
    """As many fields, each with a definition of its own."""
    fields = {f"p{at}": {"$ref": f"#/$defs/d{at}"} for at in range(count)}
    definition = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return schema({f"d{at}": definition for at in range(count)}, **fields)


RUDE = {
    "itself": schema({"a": {"anyOf": [A]}}, a=A),
    "itself in forty places": schema({"a": {"anyOf": [A] * 40}}, a=A),
    "itself in ten fields": schema({"a": schema({}, **dict.fromkeys("abcdefghij", A))}, a=A),
    "lists of itself": schema(
        {"a": {"oneOf": [*[{"type": "array", "items": A}] * 12, {"type": "integer"}]}}, a=A
    ),
    "each other": schema(
        {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{to}"} for to in range(30)]} for at in range(30)},
        a={"$ref": "#/$defs/d0"},
    ),
    "a chain": schema(
        {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(3000)}, a={"$ref": "#/$defs/d0"}
    ),
    "many definitions": many(1000),
    "one large definition": schema(
        {"a": {"enum": [f"word {at}" for at in range(6000)]}}, **{f"p{at}": A for at in range(400)}
    ),
    "counts that are none": schema(
        {}, a={"type": "array", "items": {"type": "integer"}, "minItems": "x", "maxItems": -4}
    ),
}
