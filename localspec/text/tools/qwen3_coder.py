"""Qwen3-Coder and those after it: a call in tags, and in it one element for each argument.

A value that is not of text is JSON. Which it is the function's own schema says, so that a text like
`12` stays one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from localspec.text.tools.format import Json, Offer, Spell, literal, spaced
from localspec.text.tools.hermes import CLOSING, OPENING, Hermes
from localspec.text.tools.tape import Reading, Tape, thoughts, words

FUNCTION, FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NOT_IN_NAMES = ("\n", "<", "")


class Qwen3Coder(Hermes):
    """Templates that write `<function=name>` themselves."""

    name = "qwen3-coder"

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Thoughts, then words and calls in turn; small models forget the outer tag."""
        if (offer.thinks or offer.thinking) and self.thought:
            yield from thoughts(tape, *self.thought, begun=offer.thinking)
        if not offer.functions:
            return (yield from words(tape))
        while marker := (yield from tape.prose("content", (OPENING, FUNCTION))):
            if not (yield from _call(tape, marker, offer)):
                tape.give("content", tape.text.index(marker) + len(marker))
        return None

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """Calls one after the other; arguments in the order of the schema."""

        def one(function: Json, arguments: str) -> str:
            whole = offer.forced or bool(function.get("strict"))
            head = literal(f"{FUNCTION}{function['name']}>\n")
            inner, rules = _parameters(function, arguments) if whole else _any(arguments)
            return "\n".join([" ".join([head, *inner, literal(FUNCTION_END)]), *rules])

        return self.tagged(offer, spell, one)


def _call(tape: Tape, marker: str, offer: Offer) -> Reading[bool]:
    """Take the call behind `marker`, which comes next; False if there is none."""
    at = yield from tape.blank(0)
    if marker == OPENING:
        at = yield from tape.blank(at + len(marker))
    begin = yield from tape.literal(at, FUNCTION)
    end = begin and (yield from _name(tape, begin))
    if not (begin and end):
        return False
    name = tape.text[begin:end]
    if marker == FUNCTION and name not in offer.names:
        return False
    tape.give("markup", begin)
    tape.give("call", end - begin, name)
    tape.give("markup", 1)
    if (yield from _arguments(tape, _properties(name, offer))):
        yield from tape.closing(CLOSING)
    return True


def _arguments(tape: Tape, properties: Json) -> Reading[bool]:
    """Take the elements as one JSON object; False where it broke off, and the rest is left."""
    said = "{"
    while True:
        place = yield from tape.blank(0)
        for ending in (FUNCTION_END, CLOSING):
            closed = yield from tape.literal(place, ending)
            if closed is not None:
                tape.give("arguments", closed, "{}" if said == "{" else "}")
                return True
        begin = yield from tape.literal(place, _PARAMETER)
        end = begin and (yield from _name(tape, begin))
        if not (begin and end):
            return False
        name = tape.text[begin:end]
        last = yield from _find(tape, end, _PARAMETER_END)
        if last < 0:
            return False
        value = _value(tape.text[end + 1 : last], properties.get(name))
        text = f"{said}{json.dumps(name, ensure_ascii=False)}: {value}"
        tape.give("arguments", last + len(_PARAMETER_END), text)
        said = ", "


def _name(tape: Tape, at: int) -> Reading[int | None]:
    """The place of the `>` behind a name; None where there is no name."""
    begin = at
    while (char := (yield from tape.peek(at))) != ">":
        if char in _NOT_IN_NAMES:
            return None
        at += 1
    return at if at > begin else None


def _find(tape: Tape, at: int, text: str) -> Reading[int]:
    """Where `text` begins, from `at` on; -1 where the answer ends without it."""
    while (found := tape.text.find(text, at)) < 0 and not tape.ended:
        at = max(at, len(tape.text) - len(text))
        yield
    return found


def _value(raw: str, wanted: Any) -> str:
    """What stands in an element, as JSON; a line break at both ends belongs to the tags."""
    text = raw.removeprefix("\n").removesuffix("\n")
    if isinstance(wanted, dict) and not _is_text(wanted):
        try:
            return json.dumps(json.loads(text, parse_constant=_no_number), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return json.dumps(text, ensure_ascii=False)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _is_text(wanted: Json) -> bool:
    choices = wanted.get("enum")
    if wanted.get("type") is None and isinstance(choices, list):
        return all(isinstance(choice, str) for choice in choices)
    return wanted.get("type") == "string"


def _properties(name: str, offer: Offer) -> Json:
    found = (one for one in offer.functions if one["name"] == name)
    return _table(next(found, {}).get("parameters"), "properties")


def _table(given: Any, key: str) -> Json:
    """An object inside of an object that somebody sent; empty where it is something else."""
    found = given.get(key) if isinstance(given, dict) else None
    return found if isinstance(found, dict) else {}


def _parameters(function: Json, prefix: str) -> tuple[list[str], list[str]]:
    """The elements of a function's arguments in Lark, and the rules that they need."""
    given = function.get("parameters") or {}
    required = given.get("required")
    inner, rules = [], []
    for index, (name, wanted) in enumerate(_table(given, "properties").items()):
        value = f"{prefix}_{index}"
        element = f"{literal(f'{_PARAMETER}{name}>' + chr(10))} {value}"
        needed = isinstance(required, list) and name in required
        inner.append(element if needed else f"({element})?")
        rules.append(_rule(value, wanted if isinstance(wanted, dict) else {}, given))
    return inner, rules


def _rule(name: str, wanted: Json, given: Json) -> str:
    """One value and the end of its element."""
    end = f"\n{_PARAMETER_END}\n"
    choices = wanted.get("enum")
    if not _is_text(wanted):
        shared: Json = {key: given[key] for key in ("$defs", "definitions") if key in given}
        value = json.dumps(spaced({**wanted, **shared}))
        return f"{name}: {name}_json {literal(end)}\n{name}_json: %json {value}"
    if isinstance(choices, list) and choices:
        either = " | ".join(literal(str(choice)) for choice in choices)
        return f"{name}: ({either}) {literal(end)}"
    return _text(name)


def _text(name: str) -> str:
    """Any text that does not end its element, and the end."""
    ended = f"{name}_ended"
    return f'{name}: {ended} "\\n"\n{ended}[suffix={literal(_PARAMETER_END)}]: /(?s:.*)/'


def _any(prefix: str) -> tuple[Sequence[str], list[str]]:
    """Any elements, of a function whose arguments nobody holds to a schema."""
    element = f'{literal(_PARAMETER)} /[^<>\\n]+/ ">\\n" {prefix}_any'
    return [f"({element})*"], [_text(f"{prefix}_any")]
