"""A model's chat format: messages into a prompt, functions offered to it, and its answer parsed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from localspec.errors import TemplateError
from localspec.text.formats import Offer, Reader, history, lark, shown, thinking, writing
from localspec.text.formats.choice import offered
from localspec.text.formats.offer import Json
from localspec.text.formats.parts import Format, Maybe, Pair, Way
from localspec.text.formats.reading import reading, words_alone
from localspec.text.formats.recognise import Recognised, Render, recognised
from localspec.text.formats.table import FORMATS, GENERIC
from localspec.types import Token
from localspec.wire.messages import Generate, Message

_MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_ALONE = re.compile(r"[<\[][^<>\[\]]+[>\]]")
_NINE = 9
_NOT = "/no_think"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's prompt, and what its answer may contain."""

    prompt: str
    offer: Offer


class Dialogue:
    """The chat format of one model. Model lifetime.

    Args:
        template: The source of its chat template.
        render: Renders messages and variables with this template; raises TemplateError.
        control: The control token with this text, such as "<|im_end|>"; None where the
            vocabulary has none.
        quoted: Makes special tokens in functions plain text, where a message describes the
            functions; see `Markers`.
    """

    def __init__(
        self,
        template: str,
        render: Render,
        control: Callable[[str], Token | None],
        quoted: Callable[[Sequence[Json]], Sequence[Json]] = lambda functions: functions,
    ) -> None:
        self._template = template
        self._render = render
        self._quoted = quoted
        self.recognised: Recognised = recognised(template, render)
        self.format: Format = self.recognised.form
        marks = [mark for pair in self.format.thoughts for mark in (pair.opening, pair.closing)]
        marked = self.format.thinks or any(mark.strip() in template for mark in marks)
        self._thinks = marked or (not self.recognised.warning and self._opens())
        tokens = {mark: control(mark) for mark in marks_of(self.format)}
        self._tokens = {mark: token for mark, token in tokens.items() if token is not None}
        self.shown: dict[Token, bytes] = {
            token: mark.encode() for mark, token in self._tokens.items()
        }
        """Control tokens that are marks of the format, with the bytes that a reader sees."""

    def turn(self, request: Generate) -> Turn:
        """The prompt of a chat request, and its offer. Raises TemplateError, RequestError."""
        offer = offered(request.tools, request.tool_choice, parallel=request.parallel_tool_calls)
        reads = self.recognised.reads
        messages = list(request.messages or ())
        given = dict(request.template_kwargs)
        if request.max_thoughts == 0:
            given["enable_thinking"] = False
        variables = thinking.variables(self._template, given, request.reasoning_effort)
        if offer.functions and reads.tools:
            variables["tools"] = shown.tools(offer.functions)
            if reads.needs_system and not any(one.role == "system" for one in messages):
                messages = history.with_system_text(messages, "")
        elif offer.functions:
            told = writing.tool_instructions(self.format, self._quoted(offer.functions))
            messages = history.with_system_text(messages, told)
        messages = history.prepared(messages, self.format, reads)
        prompt = self._rendered(messages, variables)
        begun = self._begun(prompt)
        if begun and variables.get("enable_thinking") is False and _NOT in self._template:
            asked = history.prepared(history.with_system_text(messages, _NOT), self.format, reads)
            quiet = self._render(asked, variables)
            if not self._begun(quiet):  # the template looks for this word in the system message
                prompt, begun = quiet, False
        if request.max_thoughts == 0 and self.thoughts:
            prompt, begun = self._unthinking(prompt, begun=begun), False
        return Turn(prompt, replace(offer, thinks=self._thinks, thinking=begun))

    def _rendered(self, messages: Sequence[Message], variables: Json) -> str:
        """The prompt; if the template raises on functions, plainer ones go into `variables`."""
        try:
            return self._render(messages, variables)
        except TemplateError as error:
            given = variables.get("tools")
            plainer = shown.plainer(given) if given else given
            if plainer == given:
                raise
            variables["tools"] = plainer
            try:
                return self._render(messages, variables)
            except TemplateError:
                raise error from None

    @property
    def thoughts(self) -> Pair | None:
        """The marks around thoughts; None for a model without thoughts or a format with heads."""
        marked = self._thinks and not self.format.heads
        return self.format.thoughts[0] if marked else None

    def _unthinking(self, prompt: str, *, begun: bool) -> str:
        """The prompt for an answer without thoughts.

        Thoughts that the prompt has begun are closed. If it has begun none, and the template has no
        variable that turns them off, empty thoughts are added.
        """
        pair = self.format.thoughts[0]
        if begun:
            return prompt + pair.closing.strip()
        obeys = thinking.switches(self._template)
        return prompt if obeys else prompt + pair.opening.strip() + pair.closing.strip()

    def _opens(self) -> bool:
        """Whether a prompt that asks for thoughts ends inside of them.

        Some templates build the mark from parts, so that their source does not hold it (Hunyuan 3).
        """
        asked = thinking.variables(self._template, {"enable_thinking": True}, None)
        try:
            return self._begun(self._render([Message("user", "?")], asked))
        except TemplateError:
            return False

    def _begun(self, prompt: str) -> bool:
        """Whether a prompt ends inside of thoughts."""
        end = prompt.rstrip()
        return any(end.endswith(pair.opening.rstrip()) for pair in self.format.thoughts)

    def reader(self, offer: Offer) -> Reader | None:
        """The reader of the answer; None if the answer can only be text."""
        own = self.format.heads or self.format.words or self.format.dropped
        if offer.functions or offer.thinks or offer.thinking or own:
            return Reader(lambda tape: reading(tape, self.format, offer))
        if self.format.thoughts:
            return Reader(lambda tape: words_alone(tape, self.format, offer))
        return None

    def grammar(self, offer: Offer) -> str:
        """The Lark grammar of the answers that the offer allows."""
        return lark.grammar(self.format, offer, self._tokens)

    def call_id(self) -> str:
        """A new id for a call."""
        if self.format.ids == "nine":
            return secrets.token_hex(_NINE)[:_NINE]
        return f"call_{secrets.token_hex(12)}"


def marks_of(form: Format) -> list[str]:
    """The marks of a format that may be single tokens of a vocabulary."""
    pairs: Sequence[Pair] = (*form.thoughts, *form.words)
    alone = [*form.dropped, *chain.from_iterable((one.opening, one.closing) for one in pairs)]
    if form.heads:
        alone += (*form.heads.begins, form.heads.ends, *form.heads.closings)
    found = dict.fromkeys(form.marks)
    found |= dict.fromkeys(text for text in alone if _ALONE.fullmatch(text))
    for text in (*alone, *chain.from_iterable(map(_texts, form.ways))):
        found |= dict.fromkeys(_MARK.findall(text))
    return list(found)


@cache
def known_marks() -> tuple[frozenset[str], frozenset[str]]:
    """The marks of all formats, and those among them that no format with heads has."""
    every = {mark for form in (*FORMATS, GENERIC) for mark in marks_of(form)}
    heads = {mark for form in FORMATS if form.heads for mark in marks_of(form)}
    return frozenset(every), frozenset(every - heads)


def _texts(way: Way) -> Iterator[str]:
    yield from (way.opening, way.between, way.closing)
    parts = [*way.call, *(way.element.parts if way.element else ())]
    for part in parts:
        inner = part.parts if isinstance(part, Maybe) else (part,)
        yield from (text for text in inner if isinstance(text, str))


__all__ = ["Dialogue", "Message", "Turn", "known_marks", "marks_of"]
