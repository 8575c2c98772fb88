"""Limits of requested JSON schemas, and the keys that may be relaxed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
MAX_NODES = 60_000
"""Limit of values in a schema. One property takes several: its schema, its type, its name in
`required`, and often more."""
MAX_PROPERTIES = 5_000
MAX_NAME_CHARS = 120_000
"""Limit of characters in the names of properties and definitions and in `enum` and `const` values,
as OpenAI has it."""
MAX_INTEGER = 9 * 10**18
"""Limit of integers: llguidance counts in signed 64 bits, and near their lower end it recurses
without end."""

_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_OPTIONS = "x-guidance"
"""The key of llguidance's own settings inside of a schema, which requests may not change."""

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keys whose value holds schemas under names chosen by the author."""
_VALUES = frozenset({"const", "enum", "default", "examples", "required"})
"""Keys whose value is no schema, even if it looks like one."""

_RELAXABLE = ("minProperties", "maxProperties", "multipleOf", *sorted(_BOUNDS))
"""Keys that cannot always be enforced. Without one of them a schema only allows more answers."""
_NOT_REGULAR = re.compile(r"\\[bB1-9]|\(\?<?[=!]")
"""Word boundaries, look-around and back-references, which no automaton supports."""


_WORDS = frozenset({"description", "title", "examples", "$comment", "default"})
"""Keys that explain a schema and restrict nothing."""


def without_words(asked: Schema) -> Schema:
    """The schema without the keys that only explain it, which are often its larger part."""
    return _without(asked, lambda key, _value: key in _WORDS)[0]


def excess(asked: Schema, *, strict: bool) -> str:
    """The reason why a schema is too large to compile; "" if it is not."""
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
    """The reason why a schema is nested too deeply to be walked; "" if it is not."""
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
    """The schema, then wider ones, each with the keys that it leaves out somewhere.

    The first leaves out only the keys that are known not to work. The next ones leave out one
    relaxable key each, the last one all of them. A strict schema is never widened.
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
    """The keys that llguidance reports as ignored."""
    if warning.startswith("Unimplemented keys"):
        return set(re.findall(r'"([$\w-]+)"', warning))
    if warning.startswith("Unknown format"):
        return {"format"}
    if warning.startswith("min/maxProperties"):
        return {"minProperties", "maxProperties"}
    return {"oneOf"} if warning.startswith("oneOf") else {"something"}


def _named_size(asked: Schema) -> tuple[int, int]:
    """The number of properties, and the characters of names and of `enum` and `const` values."""
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
    """A copy without the keys for which `drop` is true, also in nested schemas; and those keys."""
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
