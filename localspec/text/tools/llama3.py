"""Llama 3: a JSON object with `parameters` as the whole answer, perhaps behind a token for it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from localspec.protocol import Message
from localspec.text.tools import calls
from localspec.text.tools.format import Json, Offer, Spell, lark, literal
from localspec.text.tools.hermes import Hermes
from localspec.text.tools.tape import Reading, Tape, words

_TAG = "<|python_tag|>"
_HEAD = '{"name": '


class Llama3(Hermes):
    """Its templates refuse a message with more than one call."""

    name = "llama3"
    markers: Sequence[str] = (_TAG,)
    thought: tuple[str, str] | None = None

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """With every call in a message of its own."""
        return [one for message in messages for one in _apart(message)]

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Objects at the beginning, with `;` or line breaks between them, or words."""
        if offer.functions:
            begin = yield from tape.blank(0)
            tagged = yield from tape.literal(begin, _TAG)
            at = begin if tagged is None else (yield from tape.blank(tagged))
            while (yield from calls.call(tape, at, offer.names)):
                at = yield from tape.blank(0)
                semicolon = yield from tape.literal(at, ";")
                at = at if semicolon is None else (yield from tape.blank(semicolon))
                if at >= len(tape.text):
                    tape.give("markup", at)
        yield from words(tape)

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """One object after the other."""

        def one(function: Json, arguments: str) -> str:
            head = json.dumps(function["name"]) + ', "parameters": '
            return f"{literal(head)} {arguments} {literal('}')}"

        return lark(
            offer,
            spell,
            thought=None,
            opening=_HEAD,
            first="",
            between=f'"; " {literal(_HEAD)}',
            one=one,
        )


def _apart(message: Message) -> list[Message]:
    """A message for each of its calls, the words with the first."""
    made = message.extra.get("tool_calls") or []
    if len(made) < 2:  # noqa: PLR2004 - one call needs no parting
        return [message]
    return [
        msgspec.structs.replace(
            message,
            content="" if index else message.content,
            extra={**message.extra, "tool_calls": [call]},
        )
        for index, call in enumerate(made)
    ]
