"""A conversation of one model: messages into a prompt, functions offered, and the answer read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from localspec.errors import TemplateError
from localspec.protocol import Generate, Message
from localspec.text.tools import Offer, Reader, offers_itself, recognise
from localspec.text.tools.choice import offered
from localspec.text.tools.format import arguments_of, literal
from localspec.types import Token

Render: TypeAlias = Callable[[Sequence[Message], Mapping[str, Any]], str]

_NEEDLE = "a needle"
_OBJECTS = (f'"{_NEEDLE}": 1', f"={_NEEDLE}>")
"""How an object is written as JSON, or an element for each of its keys."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's prompt, and what its answer may do."""

    prompt: str
    offer: Offer


class Dialogue:
    """How one model is talked to. Model lifetime.

    Args:
        template: The source of its chat template.
        render: Messages and variables into a prompt, by this template; raises TemplateError.
        control: The token that is this text and writes nothing, such as "<|im_end|>"; None where
            the vocabulary has none.
    """

    def __init__(
        self, template: str, render: Render, control: Callable[[str], Token | None]
    ) -> None:
        self._render = render
        self.format = recognise(template)
        self._offers_itself = offers_itself(template) and self.format.name != "generic"
        thought = self.format.thought
        self._thinks = thought is not None and thought[1] in template
        tokens = {marker: control(marker) for marker in self.format.markers}
        self._tokens = {marker: token for marker, token in tokens.items() if token is not None}
        self.shown: dict[Token, bytes] = {
            token: marker.encode() for marker, token in self._tokens.items()
        }
        """Control tokens that a reader has to see, and how."""
        self._wants_objects: bool | None = None

    def turn(self, request: Generate) -> Turn:
        """The prompt of a chat request. Raises TemplateError, RequestError."""
        offer = offered(request.tools, request.tool_choice, parallel=request.parallel_tool_calls)
        messages = [self._with_arguments(one) for one in request.messages or ()]
        variables = dict(request.template_kwargs)
        if request.reasoning_effort:
            variables.setdefault("reasoning_effort", request.reasoning_effort)
        if offer.functions and self._offers_itself:
            shown = [{"type": "function", "function": one} for one in offer.functions]
            variables["tools"] = shown
        elif offer.functions:
            messages = _told(messages, self.format.prompt(offer.functions))
        prompt = self._render(self.format.messages(messages), variables)
        thought = self.format.thought
        thinking = thought is not None and prompt.rstrip().endswith(thought[0])
        return Turn(prompt, replace(offer, thinks=self._thinks, thinking=thinking))

    def reader(self, offer: Offer) -> Reader | None:
        """What reads the answer; None where it is words and nothing else."""
        if not (offer.functions or offer.thinks or offer.thinking):
            return None
        return Reader(lambda tape: self.format.read(tape, offer))

    def grammar(self, offer: Offer) -> str:
        """Lark of the calls that an answer may hold."""
        return self.format.grammar(offer, self._spell)

    def _spell(self, marker: str) -> str:
        token = self._tokens.get(marker)
        return literal(marker) if token is None else f"<[{token}]>"

    def _with_arguments(self, message: Message) -> Message:
        """Calls of the history, with arguments as the template wants them: object or text."""
        made = message.extra.get("tool_calls")
        if not isinstance(made, list):
            return message
        calls = [self._with_argument(call) for call in made if isinstance(call, dict)]
        return msgspec.structs.replace(message, extra={**message.extra, "tool_calls": calls})

    def _with_argument(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, dict):
            return call
        given = arguments_of(function)
        if not self._objects() and not isinstance(given, str):
            given = json.dumps(given, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": given}}

    def _objects(self) -> bool:
        """Whether the template takes an object of arguments, and not their text; tried once."""
        if self._wants_objects is None:
            function = {"name": "f", "arguments": {_NEEDLE: 1}}
            calls = [{"id": "abcdefghi", "type": "function", "function": function}]
            messages = [Message("user", "x"), Message("assistant", "", {"tool_calls": calls})]
            try:
                written = self._render(messages, {})
                self._wants_objects = any(one in written for one in _OBJECTS)
            except TemplateError:
                self._wants_objects = False
        return self._wants_objects


def _told(messages: Sequence[Message], more: str) -> list[Message]:
    """The conversation whose system message also says `more`."""
    if messages and messages[0].role == "system":
        first = messages[0]
        told = msgspec.structs.replace(first, content=f"{first.content}\n\n{more}")
        return [told, *messages[1:]]
    return [Message("system", more), *messages]
