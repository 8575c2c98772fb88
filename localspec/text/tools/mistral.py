"""Mistral: a token, then a JSON list of calls; later models write a name, `[ARGS]`, an object."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from localspec.protocol import Message
from localspec.text.tools import calls
from localspec.text.tools.format import Json, Offer, Spell, lark, literal
from localspec.text.tools.hermes import Hermes
from localspec.text.tools.tape import Reading, Tape, thoughts, words

OPENING = "[TOOL_CALLS]"
_ARGS, _ID = "[ARGS]", "[CALL_ID]"
_ID_LETTERS = 9


class Mistral(Hermes):
    """Its templates demand ids of nine letters and digits."""

    markers: Sequence[str] = (OPENING, _ARGS, _ID, "[THINK]", "[/THINK]")
    thought: tuple[str, str] | None = ("[THINK]", "[/THINK]")

    def __init__(self, *, named: bool) -> None:
        self.name = "mistral-named" if named else "mistral"
        self._named = named

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """With every id made one of nine letters: the same for a call and its result."""
        return [_with_ids(message) for message in messages]

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Thoughts, then words, then calls."""
        if self.thought and (offer.thinks or offer.thinking):
            yield from thoughts(tape, *self.thought, begun=offer.thinking)
        if not offer.functions:
            return (yield from words(tape))
        while marker := (yield from tape.prose("content", [OPENING])):
            at = yield from tape.blank(tape.text.index(marker) + len(marker))
            listed = yield from tape.literal(at, "[")
            if listed is None:
                made = yield from _by_name(tape, at)
            else:
                made = yield from _list(tape, listed)
            if made:
                tape.give("markup", (yield from tape.blank(0)))
            else:
                tape.give("content", tape.text.index(marker) + len(marker))
        return None

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """A list, or one named call after the other."""

        def named(function: Json, arguments: str) -> str:
            return f"{literal(str(function['name']))} {spell(_ARGS)} {arguments}"

        def listed(function: Json, arguments: str) -> str:
            head = json.dumps({"name": function["name"]})[:-1] + ', "arguments": '
            return f"{literal(head)} {arguments} {literal('}')}"

        return lark(
            offer,
            spell,
            thought=self.thought,
            opening=OPENING,
            first="" if self._named else '"["',
            between=spell(OPENING) if self._named else '", "',
            end="" if self._named else '"]"',
            one=named if self._named else listed,
        )

    def call_id(self) -> str:
        """Nine digits of sixteen."""
        return secrets.token_hex(_ID_LETTERS)[:_ID_LETTERS]


def _list(tape: Tape, at: int) -> Reading[bool]:
    """Take calls in a JSON list whose bracket stands before `at`."""
    if not (yield from calls.call(tape, (yield from tape.blank(at)), None)):
        return False
    while True:
        place = yield from tape.blank(0)
        comma = yield from tape.literal(place, ",")
        if comma is None:
            break
        if not (yield from calls.call(tape, (yield from tape.blank(comma)), None)):
            return True
    closed = yield from tape.literal(place, "]")
    tape.give("markup", place if closed is None else closed)
    return True


def _by_name(tape: Tape, at: int) -> Reading[bool]:
    """Take one call whose name begins at `at`."""
    end = at
    while (char := (yield from tape.peek(end))) and (char.isalnum() or char in "_-."):
        end += 1
    place = end
    if (behind := (yield from tape.literal(place, _ID))) is not None:
        place = behind
        while (yield from tape.peek(place)).isalnum():
            place += 1
    behind = yield from tape.literal(place, _ARGS)
    place = yield from tape.blank(place if behind is None else behind)
    if end == at or (yield from tape.peek(place)) != "{":
        return False
    tape.give("markup", at)
    tape.give("call", end - at)
    tape.give("markup", place - end)
    yield from calls.arguments(tape)
    return True


def _with_ids(message: Message) -> Message:
    extra: dict[str, Any] = dict(message.extra)
    if isinstance(extra.get("tool_call_id"), str):
        extra["tool_call_id"] = _nine(extra["tool_call_id"])
    if extra.get("tool_calls"):
        extra["tool_calls"] = [
            {**call, "id": _nine(str(call.get("id", "")))} for call in extra["tool_calls"]
        ]
    return msgspec.structs.replace(message, extra=extra)


def _nine(given: str) -> str:
    """The id, or nine digits that stand for it."""
    fits = len(given) == _ID_LETTERS and given.isascii() and given.isalnum()
    return given if fits else f"{zlib.crc32(given.encode()) % 10**_ID_LETTERS:0{_ID_LETTERS}d}"
