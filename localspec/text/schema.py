"""JSON schemas of requests: how large one may be, and what may be relaxed in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
MAX_NODES = 60_000
"""Values in it: a property has a name in two places, a type, and often more."""
MAX_PROPERTIES = 5_000
MAX_NAME_CHARS = 120_000
"""Of names of properties and definitions, and of values of `enum` and `const`: OpenAI's bounds."""
MAX_INTEGER = 9 * 10**18
"""llguidance counts in 64 bits with a sign, and near the lower end of them it recurses for ever."""

_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_OPTIONS = "x-guidance"
"""Settings of the compiler inside of a schema; they are ours to make."""

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keys whose value holds schemas under names of the writer's own."""
_VALUES = frozenset({"const", "enum", "default", "examples", "required"})
"""Keys whose value is no schema, whatever it looks like."""

_RELAXABLE = ("minProperties", "maxProperties", "multipleOf", *sorted(_BOUNDS))
"""Keys that cannot always be kept, and without which more answers fit and none fewer."""
_NOT_REGULAR = re.compile(r"\\[bB1-9]|\(\?<?[=!]")
"""Boundaries of words, looking around and back: no automaton does it."""


_WORDS = frozenset({"description", "title", "examples", "$comment", "default"})
"""Keys that explain a schema to people and models, and restrict nothing."""


def without_words(asked: Schema) -> Schema:
    """The schema without what only explains it, which is most of many."""
    return _without(asked, lambda key, _value: key in _WORDS)[0]


def excess(asked: Schema, *, strict: bool) -> str:
    """Why the schema is beyond what may be compiled; empty where it is not."""
    properties, chars = _named_size(asked)
    if properties > MAX_PROPERTIES:
        return f"it has {properties} properties, {MAX_PROPERTIES} are allowed"
    if chars > MAX_NAME_CHARS:
        return f"its names and enum values have {chars} characters, {MAX_NAME_CHARS} are allowed"
    pending: list[tuple[str, Any]] = [("", asked)]
    nodes = 0
    while pending:
        key, value = pending.pop()
        nodes += 1
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += ((key, inner) for inner in value)
        elif _beyond(value) and (strict or key not in _BOUNDS):
            return f"{key[:40]} holds an integer beyond 64 bits"
    return f"it has {nodes} parts, {MAX_NODES} are allowed" if nodes > MAX_NODES else ""


def too_deep(asked: Schema) -> str:
    """Why nothing may walk through the schema; empty where everything may."""
    pending: list[tuple[Any, int]] = [(asked, 1)]
    while pending:
        value, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            pending += ((one, depth + 1) for one in inner)
    return ""


def relaxations(asked: Schema, *, strict: bool) -> Iterator[tuple[Schema, set[str]]]:
    """The schema, then wider ones, and which keys each of them leaves out somewhere.

    First what is known not to work, then each key that can be relaxed, alone and all together. Of
    a strict one there is nothing but itself.
    """
    if strict:
        yield _without(asked, lambda _key, _value: False)[0], set()
        return
    plain, gone = _without(asked, _unusable)
    yield plain, gone
    alone = [{key} for key in _RELAXABLE]
    for attempt in (*alone, set(_RELAXABLE)):
        wider, left_out = _without(plain, partial(_named, attempt))
        if left_out:
            yield wider, gone | left_out


def keys_of(warning: str) -> set[str]:
    """The keys that llguidance says it ignores."""
    if warning.startswith("Unimplemented keys"):
        return set(re.findall(r'"([$\w-]+)"', warning))
    if warning.startswith("Unknown format"):
        return {"format"}
    if warning.startswith("min/maxProperties"):
        return {"minProperties", "maxProperties"}
    return {"oneOf"} if warning.startswith("oneOf") else {"something"}


def _named_size(asked: Schema) -> tuple[int, int]:
    """How many properties it has, and the characters of all names and of values that are given."""
    properties = chars = 0
    pending: list[Any] = [asked]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        if not isinstance(value, dict):
            continue
        for key, inner in value.items():
            if key in _NAMED and isinstance(inner, dict):
                properties += len(inner) if key == "properties" else 0
                chars += sum(map(len, inner))
                pending += inner.values()
            elif key in {"enum", "const"}:
                given = inner if isinstance(inner, list) else [inner]
                chars += sum(len(one) for one in given if isinstance(one, str))
            elif key not in _VALUES:
                pending.append(inner)
    return properties, chars


def _beyond(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and abs(value) > MAX_INTEGER


def _named(keys: set[str], key: str, _value: Any) -> bool:
    return key in keys


def _unusable(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str) and bool(_NOT_REGULAR.search(value))
    return key in _BOUNDS and _beyond(value)


def _without(asked: Schema, drop: Callable[[str, Any], bool]) -> tuple[Schema, set[str]]:
    """A copy without the keys for which `drop` holds, in all schemas inside too; and which."""
    gone: set[str] = set()

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(one) for one in value]
        return of_schema(value) if isinstance(value, dict) else value

    def of_schema(value: Schema) -> Schema:
        kept: Schema = {}
        for key, inner in value.items():
            if key == _OPTIONS:
                continue
            if drop(key, inner):
                gone.add(key)
            elif key in _NAMED and isinstance(inner, dict):
                kept[key] = {name: copied(one) for name, one in inner.items()}
            else:
                kept[key] = inner if key in _VALUES else copied(inner)
        return kept

    return of_schema(asked), gone
