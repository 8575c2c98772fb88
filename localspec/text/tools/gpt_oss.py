"""gpt-oss: messages in channels. Analysis is thought, final is said, commentary may call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from localspec.protocol import Message
from localspec.text.tools import calls
from localspec.text.tools.format import Json, Offer, Spell, lark, literal
from localspec.text.tools.hermes import Hermes
from localspec.text.tools.tape import Kind, Reading, Tape, words

CHANNEL, _MESSAGE, _START, _END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
_CALL, _RETURN, _CONSTRAIN = "<|call|>", "<|return|>", "<|constrain|>"
_TO = re.compile(r"to=functions\.([\w.-]+)")
_HEAD_CHARS = 300


class GptOss(Hermes):
    """OpenAI's harmony format; the prompt ends where the model names its channel."""

    name = "gpt-oss"
    markers: Sequence[str] = (CHANNEL, _MESSAGE, _START, _END, _CALL, _RETURN, _CONSTRAIN)
    thought: tuple[str, str] | None = ("<|channel|>analysis", "analysis")

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Thoughts under the name that its template reads."""
        return [_with_thinking(message) for message in messages]

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """One message after the other, each with a head that says what it is."""
        while (yield from tape.peek(0)):
            head = yield from _head(tape)
            if head is None:
                return (yield from words(tape))
            to = _TO.search(tape.text[:head])
            if to and to[1] in offer.names:
                yield from _calls(tape, head, to)
            else:
                kind: Kind = "reasoning" if "analysis" in tape.text[:head] else "content"
                tape.give("markup", head)
                yield from _body(tape, kind)
        return None

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """A call in the commentary, after thoughts; without force anything else instead."""

        def one(function: Json, arguments: str) -> str:
            to = literal(f"commentary to=functions.{function['name']} ")
            return f'{to} {spell(_CONSTRAIN)} "json" {spell(_MESSAGE)} {arguments}'

        said = f"{spell(_MESSAGE)} /(?s:.*)/"
        again = f'{spell(_END)} {spell(_START)} "assistant"'
        before = " ".join(
            f'({spell(CHANNEL)} "{channel}" {said} {again})?'
            for channel in (("analysis",) if offer.forced else ("analysis", "commentary"))
        )
        final = f'{spell(CHANNEL)} "final" {spell(_MESSAGE)} ({offer.said or "/(?s:.*)/"})'
        if not offer.functions:
            return f"start: {before} {final}"
        alone = replace(offer, forced=True, parallel=False)
        made = lark(alone, spell, thought=None, opening=CHANNEL, first="", one=one)
        calls, _, rules = made.removeprefix("start: ").partition("\n")
        return f"start: {before} ({calls}{'' if offer.forced else f' | {final}'})\n{rules}"


def _head(tape: Tape) -> Reading[int | None]:
    """The place behind the head of a message, which begins here; None where there is none."""
    if (yield from tape.peek(0)) != "<":
        return None
    place = 0
    while (yield from tape.peek(place)) and place < _HEAD_CHARS:
        if tape.text.endswith(_MESSAGE, 0, place + 1):
            return place + 1
        place += 1
    return None


def _calls(tape: Tape, head: int, to: re.Match[str]) -> Reading[None]:
    """Take a call by the message whose head ends at `head`, as far as its body is JSON."""
    body = yield from tape.blank(head)
    if (yield from tape.peek(body)) != "{":
        tape.give("markup", head)
        return (yield from _body(tape, "content"))
    tape.give("markup", to.start(1))
    tape.give("call", len(to[1]))
    tape.give("markup", body - to.end(1))
    yield from calls.arguments(tape)
    return (yield from _body(tape, "content"))


def _body(tape: Tape, kind: Kind) -> Reading[None]:
    """Take what a message says, to its end."""
    marker = yield from tape.prose(kind, [_END, _CALL, _RETURN, _START, CHANNEL])
    if marker in (_END, _CALL, _RETURN):
        tape.markup(marker)


def _with_thinking(message: Message) -> Message:
    extra: dict[str, Any] = dict(message.extra)
    if thought := extra.pop("reasoning_content", None):
        extra["thinking"] = thought
    return msgspec.structs.replace(message, extra=extra)
