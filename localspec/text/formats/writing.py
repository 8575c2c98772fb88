"""Writes calls in a family's format, for templates that leave them out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from localspec.text.formats.offer import Json
from localspec.text.formats.parts import Element, Format, Hole, Maybe, Way
from localspec.text.formats.values import written

_WRITTEN_MARKS = (":", "functions.", "[ARGS]")
"""The optional marks that the writer writes."""


def calls(form: Format, made: Iterable[tuple[str, Json]]) -> str:
    """Calls by name and arguments, with all marks around them."""
    way = form.ways[0]
    texts = [_one(way, name, given, index) for index, (name, given) in enumerate(made)]
    return f"{way.opening}{way.between.join(texts)}{way.closing}"


def tool_instructions(form: Format, functions: Iterable[Json]) -> str:
    """Instructions for calling functions, for the system message of a template without any."""
    shown = ({"type": "function", "function": one} for one in functions)
    lines = (json.dumps(one, ensure_ascii=False) for one in shown)
    shape = calls(form, [("<function-name>", {})]).replace("{}", "<arguments-as-JSON-object>")
    return _OFFER.format(signatures="\n".join(lines), shape=shape)


_OFFER = """# Tools

You may call one or more functions to assist with the user query.

Their signatures are within <tools></tools>:
<tools>
{signatures}
</tools>

For each call write a JSON object with the function's name and its arguments within \
<tool_call></tool_call>:
{shape}"""


def marks_written(part: Maybe) -> list[str]:
    """The marks of an optional part that the writer writes."""
    marks = [inner for inner in part.parts if isinstance(inner, str)]
    return marks if marks and marks[0] in _WRITTEN_MARKS else []


def _one(way: Way, name: str, given: Json, index: int) -> str:
    return "".join(_part(way, part, name, given, index) for part in way.call)


def _part(way: Way, part: str | Hole | Maybe, name: str, given: Json, index: int) -> str:  # noqa: PLR0911 - one of each kind
    match part:
        case str():
            return part
        case Maybe(parts):
            marks = parts if marks_written(part) else ()
            return "".join(_part(way, inner, name, given, index) for inner in marks)
        case Hole.NAME:
            return name
        case Hole.ID:
            return f"{index:09d}"
        case Hole.INDEX:
            return str(index)
        case Hole.CALL:
            keys = way.keys
            return f'{{"{keys[0]}": {written(name)}, "{keys[1]}": {written(given)}}}'
        case Hole.PAIR:
            return written({name: given})
        case Hole.KEYWORDS:
            return ", ".join(f"{key}={python(value)}" for key, value in given.items())
        case Hole.NOTED:
            return noted(given, way.quote)
    return _elements(way, part, given)


def _elements(way: Way, part: Hole, given: Json) -> str:
    if part is Hole.OBJECT or way.element is None:
        return written(given)
    if part is Hole.TREE:
        return _branches(way.element, given)
    return "".join(_element(way.element, key, value) for key, value in given.items())


def _element(element: Element, key: str, value: Any) -> str:
    text = isinstance(value, str)
    holes = {
        Hole.KEY: key,
        Hole.TYPE: element.text_type if text else element.other_type,
        Hole.VALUE: value if text else written(value),
    }
    return "".join(part if isinstance(part, str) else str(holes[part]) for part in element.parts)


def _branches(element: Element, given: Any) -> str:
    """Nested elements."""
    if isinstance(given, dict):
        items = list(given.items())
    elif isinstance(given, list):
        items = [("item", value) for value in given]
    else:
        return given if isinstance(given, str) else written(given)
    mark = str(element.parts[0])[:-1]
    return "".join(
        f"{mark}<{key}>{_branches(element, value)}{mark}</{key}>" for key, value in items
    )


def python(value: Any) -> str:
    """A value in Python's notation, with strings in JSON's."""
    match value:
        case bool() | None:
            return repr(value)
        case dict():
            return "{" + ", ".join(f"{written(k)}: {python(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(python, value)) + "]"
    return written(value)


def noted(value: Any, quote: str) -> str:
    """A value in Gemma's notation."""
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return (
                "{"
                + ",".join(f"{noted_key(k, quote)}:{noted(v, quote)}" for k, v in value.items())
                + "}"
            )
        case list():
            return "[" + ",".join(noted(one, quote) for one in value) + "]"
    return written(value)


def noted_key(key: str, quote: str) -> str:
    """A key in Gemma's notation."""
    return key if key.isidentifier() else noted(key, quote)
