"""Calls written as JSON objects, the way most families write them: read as they come in."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from localspec.text.tools.json_text import JsonScan
from localspec.text.tools.tape import Reading, Tape

_ARGUMENTS = ("arguments", "parameters")


class _Other(Exception):
    """What stands here is no call."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Where the name stands, and where the arguments begin or, without any, the object ends."""

    begin: int
    end: int
    arguments: int | None
    closed: int


def call(tape: Tape, at: int, known: Collection[str] | None) -> Reading[bool]:
    """Take an object of a name and arguments that begins at `at`, with all before it.

    Nothing is taken and False returned where there is none, or where `known` does not hold the
    name. Arguments go out as they come; where they break off being JSON, the rest is left.
    """
    try:
        head = yield from _head(tape, at, known)
    except _Other:
        return False
    name = json.loads(tape.text[head.begin - 1 : head.end + 1])
    tape.give("markup", head.begin)
    tape.give("call", head.end - head.begin, name)
    if head.arguments is None:
        tape.give("markup", head.closed - head.end)
        return True
    tape.give("markup", head.arguments - head.end)
    if (yield from arguments(tape)):
        with suppress(_Other):
            tape.give("markup", (yield from _closing(tape)))
    return True


def arguments(tape: Tape) -> Reading[bool]:
    """Take a JSON object as arguments; False where it broke off."""
    scan = JsonScan()
    while True:
        count, said = scan.push(tape.text)
        tape.give("arguments", count, said)
        if scan.done or scan.broken or tape.ended:
            return scan.done
        yield


def _head(tape: Tape, at: int, known: Collection[str] | None) -> Reading[_Head]:
    """What stands before the arguments of a call. Raises _Other where it is no call."""
    place = _there((yield from tape.literal(at, "{")))
    doubled = yield from tape.literal(place, "{")  # some templates show a call in two braces
    place = place if doubled is None else doubled
    name: tuple[int, int] | None = None
    while True:
        key, value = yield from _key(tape, place)
        if key in _ARGUMENTS and name and (yield from tape.peek(value)) == "{":
            return _Head(*name, value, value)
        behind = _there((yield from tape.string(value)))
        if key == "name" and _may(tape.text[value:behind], known):
            name = (value + 1, behind - 1)
        elif key not in ("id", "type"):
            raise _Other
        place = yield from tape.blank(behind)
        closed = yield from tape.literal(place, "}")
        if closed is not None and name:
            return _Head(*name, None, closed)
        place = _there((yield from tape.literal(place, ",")))


def _key(tape: Tape, at: int) -> Reading[tuple[str, int]]:
    """The key that comes next in an object, and where its value begins."""
    begin = yield from tape.blank(at)
    end = _there((yield from tape.string(begin)))
    colon = _there((yield from tape.literal((yield from tape.blank(end)), ":")))
    return tape.text[begin + 1 : end - 1], (yield from tape.blank(colon))


def _closing(tape: Tape) -> Reading[int]:
    """The place behind the end of a call whose arguments are read, an id perhaps before it."""
    place = yield from tape.blank(0)
    comma = yield from tape.literal(place, ",")
    if comma is not None:
        key, value = yield from _key(tape, comma)
        end = yield from tape.string(value)
        place = place if end is None or key != "id" else (yield from tape.blank(end))
    return _there((yield from tape.literal(place, "}")))


def _there(place: int | None) -> int:
    if place is None:
        raise _Other
    return place


def _may(written: str, known: Collection[str] | None) -> bool:
    """Whether a name in JSON is a name, and one of those that are known."""
    try:
        name = json.loads(written)
    except ValueError:
        return False
    return bool(name) and (known is None or name in known)
