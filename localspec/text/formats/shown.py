"""Functions in the form in which a template shows them to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.text.formats import typed
from localspec.text.formats.offer import Json

_MAX_DEPTH = 12
"""Depth of nested schemas that are shown in their plainer form; deeper values are strings."""
_MOST_CHARS = 1 << 20
"""Characters of one function's values in their plainer form, about: a schema may refer to itself,
or to a large part of it in many places. Behind so many values are strings."""
_STRING: Json = {"type": "string"}
_KEPT = ("description", "enum", "default")
"""Keys of a value's schema that its plainer form keeps, where they hold something."""


def tools(functions: Sequence[Json]) -> list[Json]:
    """The functions as OpenAI's tools: name, description and parameters, in that order.

    Models were trained on this order. `strict` is for the grammar and is not shown.
    """
    return [{"type": "function", "function": _function(one)} for one in functions]


def plainer(given: Sequence[Json]) -> list[Json]:
    """The tools with schemas that any template can walk.

    Each value has a single type; an object says what its other properties are. Some templates have
    no case for the rest of JSON Schema: Hermes' and Command R+'s recurse without end at the type
    `["string", "null"]`.
    """
    return [{**tool, "function": _plainer(tool["function"])} for tool in given]


def _function(one: Json) -> Json:
    first: Json = {key: one[key] for key in ("name", "description") if key in one}
    whole = typed.parameters(one)
    fields = typed.table(whole, "properties")  # JSON Schema allows true for {}, templates do not
    shown = {name: inner if isinstance(inner, dict) else {} for name, inner in fields.items()}
    parameters = {"type": "object", **whole, "properties": shown}
    rest = {key: value for key, value in one.items() if key not in (*first, "parameters", "strict")}
    return {**first, "parameters": parameters, **rest}


def _plainer(one: Json) -> Json:
    whole = typed.parameters(one)
    fields = typed.table(whole, "properties")
    room = _Room()
    shown = {name: _value(wanted, whole, room, 0) for name, wanted in fields.items()}
    return {**one, "parameters": {**whole, "properties": shown}}


@dataclass(slots=True)
class _Room:
    """The characters that the values of a function may still have."""

    left: int = _MOST_CHARS


def _value(wanted: Any, whole: Json, room: _Room, depth: int) -> Json:
    """The schema of one value, with a single type; a string where there is no room."""
    for _ in range(_MAX_DEPTH):
        wanted = _chosen(wanted, whole)
    if not isinstance(wanted, dict) or depth > _MAX_DEPTH or room.left <= 0:
        return _STRING
    kinds = sorted(typed.types(wanted, whole) - {"null"})
    found: Json = {"type": kinds[0] if kinds else "string"}
    found |= {key: wanted[key] for key in _KEPT if wanted.get(key) is not None}
    fields = typed.table(wanted, "properties")
    room.left -= len(json.dumps([found, *fields, *[_STRING] * len(fields)]))
    if found["type"] == "array":
        found["items"] = _value(wanted.get("items"), whole, room, depth + 1)
    if found["type"] == "object":
        found["properties"] = {
            name: _value(inner, whole, room, depth + 1) for name, inner in fields.items()
        }
        others = wanted.get("additionalProperties")
        found["additionalProperties"] = _value(others, whole, room, depth + 1)
    return found


def _chosen(wanted: Any, whole: Json) -> Any:
    """The schema that a reference leads to, or the first alternative that is not null."""
    if not isinstance(wanted, dict):
        return wanted
    if isinstance(reference := wanted.get("$ref"), str):
        return typed.referred(reference, whole)
    for key in ("anyOf", "oneOf", "allOf"):
        options = wanted.get(key)
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict) and option.get("type") != "null":
                about = {key: wanted[key] for key in _KEPT if key in wanted}
                return {**about, **option}
    return wanted
