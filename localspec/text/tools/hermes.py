"""Hermes, Qwen and the many that learned from them: JSON between `<tool_call>` and its end.

Also the fallback for every template that knows nothing of tools. Small models forget the tags and
write the object alone or in a fence; where the name is one of the functions, that is a call too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence

import msgspec

from localspec.protocol import Message
from localspec.text.tools import calls
from localspec.text.tools.format import Json, Offer, Spell, arguments_of, lark, literal
from localspec.text.tools.tape import Reading, Tape, thoughts, words

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_PAIRS = {
    OPENING: CLOSING,
    "<function_call>": "</function_call>",
    "<tools>": "</tools>",
    "```json\n": "```",
}
_OFFER = """# Tools

You may call one or more functions to assist with the user query.

Their signatures are within <tools></tools>:
<tools>
{signatures}
</tools>

For each call write a JSON object with the function's name and its arguments within \
<tool_call></tool_call>:
<tool_call>
{{"name": "<function-name>", "arguments": <arguments-as-JSON-object>}}
</tool_call>"""


class Hermes:
    """Templates that write `<tool_call>` themselves."""

    name = "hermes"
    markers: Sequence[str] = (OPENING, CLOSING, "<think>", "</think>")
    thought: tuple[str, str] | None = ("<think>", "</think>")

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """As they are: such templates read OpenAI's fields."""
        return list(messages)

    def prompt(self, functions: Sequence[Json]) -> str:
        """Each function on a line of its own."""
        lines = (json.dumps({"type": "function", "function": one}) for one in functions)
        return _OFFER.format(signatures="\n".join(lines))

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Thoughts, then words and calls in turn."""
        if (offer.thinks or offer.thinking) and self.thought:
            yield from thoughts(tape, *self.thought, begun=offer.thinking)
        if not offer.functions:
            return (yield from words(tape))
        yield from _calls(tape, "", offer)
        while marker := (yield from tape.prose("content", list(_PAIRS))):
            if not (yield from _calls(tape, marker, offer)):
                tape.give("content", tape.text.index(marker) + len(marker))
        return None

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """Calls one after the other, each between its tags."""

        def one(function: Json, arguments: str) -> str:
            head = json.dumps({"name": function["name"]})[:-1] + ', "arguments": '
            return f"{literal(head)} {arguments} {literal('}')}"

        return self.tagged(offer, spell, one)

    def tagged(self, offer: Offer, spell: Spell, one: Callable[[Json, str], str]) -> str:
        """Lark of calls between their tags, each on lines of its own; `one` as `lark` has it."""
        closing = f'"\\n" {spell(CLOSING)}'
        return lark(
            offer,
            spell,
            thought=self.thought,
            opening=OPENING,
            first='"\\n"',
            between=f'{closing} "\\n" {spell(OPENING)} "\\n"',
            end=closing,
            one=one,
        )

    def call_id(self) -> str:
        """As OpenAI's look."""
        return f"call_{secrets.token_hex(12)}"


class Generic(Hermes):
    """Templates without tools: the system message tells of them, and results come from the user."""

    name = "generic"

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Calls as they were written, and results as the user's words."""
        return [_plain(message) for message in messages]


def _calls(tape: Tape, marker: str, offer: Offer) -> Reading[bool]:
    """Take one object after the other behind `marker`, which comes next; False if there is none."""
    at = (yield from tape.blank(0)) + len(marker)
    known = None if marker in (OPENING, "<function_call>") else offer.names
    if not (yield from calls.call(tape, (yield from tape.blank(at)), known)):
        return False
    while (yield from calls.call(tape, (yield from tape.blank(0)), known)):
        pass
    yield from tape.closing(_PAIRS[marker] if marker else "")
    return True


def _plain(message: Message) -> Message:
    """A message of tools in words."""
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    made = message.extra.get("tool_calls") or []
    if not made:
        return message
    written = [
        json.dumps({"name": one.get("name"), "arguments": arguments_of(one)}, ensure_ascii=False)
        for call in made
        if isinstance(one := call.get("function"), dict)
    ]
    blocks = [f"{OPENING}\n{one}\n{CLOSING}" for one in written]
    text = "\n".join([*([message.content] if message.content else []), *blocks])
    extra = {key: value for key, value in message.extra.items() if key != "tool_calls"}
    return msgspec.structs.replace(message, content=text, extra=extra)
