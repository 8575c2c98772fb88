"""Describes a value of the wrong type: which one, what it must be, and the values of an enum.

msgspec says "Invalid enum value 'loud' - at `$.server.log_level`"; the author of the value needs
to know the allowed ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a table of keys and values",
    "null": "nothing",
}
"""msgspec's names of types, in words."""
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_UNITS = {
    "str": ("character", "characters"), "array": ("entry", "entries"), "object": ("key", "keys")
}  # fmt: skip
_BOUND = re.compile(r"Expected `(\w+)` (of length )?([<>]=?) (\S+)")
_LENGTH = re.compile(r"Expected `(\w+)` of length (\d+)")
_WHOLE = re.compile(r"Expected `float` that's a multiple of 1\.0")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `([^`]+)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")


class Fault(NamedTuple):
    """A fault: the dotted path of the value, "" for the whole, and a sentence about it."""

    path: str
    sentence: str


def fault(error: msgspec.ValidationError, kind: Any) -> Fault:
    """The fault that msgspec's `error` reports about a value that was to be a `kind`, a struct."""
    problem, _, where = str(error).partition(" - at ")
    found = re.search(r"`\$([^`]*)`$", where)
    steps = found[1] if found else ""
    sentence = _sentence(problem, _at(kind, steps), is_key=where.startswith("`key`"))
    return Fault(steps.removeprefix("."), sentence)


def missing(error: msgspec.ValidationError) -> str:
    """The name of the field that is missing; "" for any other fault."""
    found = _FIELD.match(str(error))
    return found[2] if found and found[1] == "missing required" else ""


def kind_at(kind: Any, names: Iterable[str]) -> Any:
    """The type reached by these keys, one below the other; None where there is none."""
    for name in names:
        kind = next(filter(None, (_below(each, name) for each in _alternatives(kind))), None)
    return kind


def choices(kind: Any) -> list[str]:
    """The values of an enum of strings, also of one that may be missing; [] for other types."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    members = _alternatives(kind)
    return [] if members == (kind,) else [value for each in members for value in choices(each)]


def _sentence(problem: str, kind: Any, *, is_key: bool) -> str:
    if problem.startswith("Invalid enum value") and (known := choices(kind)):
        given = problem.removeprefix("Invalid enum value ").strip("'")
        return f'"{given}" is none of its values, which are {", ".join(known)}.'
    what = "its keys" if is_key else "it"
    if bounds := _bounds(problem):
        return f"{what} must {bounds}."
    if field := _FIELD.fullmatch(problem):
        lacks = field[1] == "missing required"
        return f"{field[2]} is missing." if lacks else f"there is no key {field[2]}."
    types = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", problem)
    if not types:
        return f"{problem}."
    wanted = [name.strip() for name in types[1].split("|") if name.strip() != "null"]
    if "int" in wanted and "float" in wanted:  # a whole number, also as 1.0
        wanted.remove("float")
    named = " or ".join(_WORDS.get(name, name) for name in wanted)
    values = f" ({', '.join(known)})" if (known := choices(kind)) else ""
    given = "a number with a fraction" if types[2] == "float" else _WORDS.get(types[2], types[2])
    return f"{what} must be {named}{values}, not {given}."


def _bounds(problem: str) -> str:
    """The bound that was missed, behind "must"; "" for any other fault."""
    if bound := _BOUND.fullmatch(problem):
        name, is_length, sign, limit = bound.groups()
        least = f"{_BOUNDS[sign]} {limit.removesuffix('.0')}"
        return f"have {least} {_UNITS[name][limit != '1']}" if is_length else f"be {least}"
    if exact := _LENGTH.fullmatch(problem):
        return f"have {exact[2]} {_UNITS[exact[1]][exact[2] != '1']}"
    return "be a whole number, not a number with a fraction" if _WHOLE.fullmatch(problem) else ""


def _at(kind: Any, steps: str) -> Any:
    return kind_at(kind, (name for name, _ in _STEP.findall(steps)))


def _below(kind: Any, name: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return fields.get(name)
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return arguments[1]
    return arguments[0] if get_origin(kind) in {list, tuple} and arguments else None


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union; the type itself where it is none."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        return tuple(inner for each in get_args(kind) for inner in _alternatives(each))
    return (kind,)
