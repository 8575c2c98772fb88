"""Types values that are written without a type, by the function's schema.

Where the schema says string, a text stays one even if it looks like a number. Where it says string
or null, only the text `null` is null. Any other text is read as JSON or Python's notation.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from localspec.text.formats import values

Json: TypeAlias = dict[str, Any]

_MAX_DEPTH = 12
"""Depth of nested references and alternatives that are followed."""
_TRUTHS = ("true", "false")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def types(wanted: Any, whole: Json) -> frozenset[str]:
    """The JSON Schema types that a schema allows; empty if it does not say.

    `whole` is the schema that references are resolved in.
    """
    return _types(wanted, whole, set(), 0)


def _types(  # noqa: C901, PLR0911 - one of each way to say it
    wanted: Any, whole: Json, followed: set[str], depth: int
) -> frozenset[str]:
    if not isinstance(wanted, dict) or depth > _MAX_DEPTH:
        return frozenset()
    found: set[str] = {"null"} if wanted.get("nullable") is True else set()
    match wanted.get("type"):
        case str(one):
            return frozenset({one, *found})
        case list(several):
            return frozenset({one for one in several if isinstance(one, str)} | found)
    if isinstance(reference := wanted.get("$ref"), str):
        return _types(once(reference, whole, followed), whole, followed, depth + 1)
    choices = wanted.get("enum")
    if isinstance(choices, list):
        return frozenset(_named(choice) for choice in choices) | found
    if "const" in wanted:
        return frozenset({_named(wanted["const"])})
    for key in ("anyOf", "oneOf", "allOf"):
        options = wanted.get(key)
        for option in options if isinstance(options, list) else ():
            found |= _types(option, whole, followed, depth + 1)
    if not found and isinstance(wanted.get("properties"), dict):
        return frozenset({"object"})
    if not found and "items" in wanted:
        return frozenset({"array"})
    return frozenset(found)


def value(text: str, wanted: Any, whole: Json) -> Any:
    """The value of `text` by the schema `wanted`; None stands for a parameter without a schema."""
    allowed = types(wanted, whole)
    if wanted is not None and "string" not in allowed:
        return _typed(text, allowed)
    if "null" in allowed and text.strip() == "null":
        return None
    only, plain = choices(wanted, whole), text.strip()
    if only is not None:
        for one in (text, plain, plain.strip("\"'")):
            if one in only:
                return one
        if others := allowed - {"string"}:  # none of the allowed strings, so another type
            return _typed(text, others)
    contained = _container(text, allowed)
    return text if contained is None else contained


def choices(wanted: Any, whole: Json) -> list[str | None] | None:
    """The only strings that a schema allows, and None for null; no list where any string may be."""
    found: list[str | None] = []
    for one in alternatives(wanted, whole):
        if not isinstance(one, dict):
            return None
        given = [one["const"]] if "const" in one else one.get("enum")
        if isinstance(given, list):
            found += [each for each in given if each is None or isinstance(each, str)]
            continue
        allowed = types(one, whole)
        if not allowed or "string" in allowed:
            return None
        found += [None] if "null" in allowed else []
    return found


def _typed(text: str, allowed: frozenset[str]) -> Any:
    """The value of a text that is no string; the text itself if it does not parse."""
    if "boolean" in allowed and (word := text.strip().lower()) in _TRUTHS:
        return word == "true"
    try:
        found = values.read(text.strip())
    except ValueError:
        return text
    if isinstance(found, str) and allowed:  # quoted, though it is no string
        try:
            return values.read(found.strip())
        except ValueError:
            return found
    return found


def parameters(function: Json) -> Json:
    """The schema of a function's arguments; {} if it has none."""
    given = function.get("parameters")
    return given if isinstance(given, dict) else {}


def property_of(name: str, whole: Json) -> Any:
    """The schema of one argument; None if there is none."""
    known = table(whole, "properties")
    if name in known:
        return known[name]
    more = whole.get("additionalProperties")
    return more if isinstance(more, dict) else None


def table(given: Any, key: str) -> Json:
    """An object inside of a client's object; {} if it is something else."""
    found = given.get(key) if isinstance(given, dict) else None
    return found if isinstance(found, dict) else {}


def _container(text: str, allowed: frozenset[str]) -> Any:
    """An object or a list where a string is allowed as well; None if the text is neither."""
    first = text.lstrip()[:1]
    if (first == "{" and "object" in allowed) or (first == "[" and "array" in allowed):
        try:
            return values.read(text.strip())
        except ValueError:
            pass
    return None


def alternatives(wanted: Any, whole: Json) -> list[Any]:
    """The schemas of which a value must match one: the schema itself, or its alternatives.

    Some may be no objects, as the client wrote them; None stands for a schema without an end.
    """
    return _alternatives(wanted, whole, set(), 0) or [None]


def _alternatives(wanted: Any, whole: Json, followed: set[str], depth: int) -> list[Any]:
    if not isinstance(wanted, dict) or depth > _MAX_DEPTH:
        return [None if isinstance(wanted, dict) else wanted]
    if isinstance(reference := wanted.get("$ref"), str):
        if reference in followed:  # its alternatives are there already
            return []
        return _alternatives(once(reference, whole, followed), whole, followed, depth + 1)
    if "enum" in wanted or "const" in wanted:
        return [wanted]
    for key in ("anyOf", "oneOf"):
        if isinstance(several := wanted.get(key), list):
            made = (_alternatives(one, whole, followed, depth + 1) for one in several)
            return [one for some in made for one in some]
    return [wanted]


def once(reference: str, whole: Json, followed: set[str]) -> Any:
    """The schema that a local reference leads to; None for others, and for one `followed` before.

    A schema may refer to itself in many places: following each would take exponential time.
    """
    if reference in followed:
        return None
    followed.add(reference)
    return referred(reference, whole)


def _named(one: Any) -> str:
    return _NAMES.get(type(one), "array" if isinstance(one, list) else "object")


def referred(reference: str, whole: Json) -> Any:
    """The schema that a local reference leads to; None for other references."""
    found: Any = whole
    if not reference.startswith("#/"):
        return None
    for step in reference[2:].split("/"):
        if not isinstance(found, dict):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found
