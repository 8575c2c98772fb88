"""Tokenizes prompts: messages by the model's template, raw text as it stands, both bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.errors import ContextOverflow, RequestError, TemplateError
from localspec.text import healing, infill
from localspec.text.formats import history
from localspec.text.formats.offer import Json
from localspec.text.markers import Markers, Part
from localspec.text.template import RAW, Conversation
from localspec.types import Token
from localspec.wire.messages import Generate, Message, Tokenize
from localspec.worker import limits
from localspec.worker.sandbox import Sandbox, SandboxDied

if TYPE_CHECKING:
    from localspec.engine.llama.model import Model


GENERATION = "add_generation_prompt"
"""The template variable by which a prompt ends where the assistant's answer begins."""
_INFILL_TOKENS = 512
"""Tokens kept for a middle, where the context is short."""
_MARKS = 16
"""Tokens kept for the marks of an infill prompt and the names of other files."""


class Prompts:
    """Tokenizes the prompts of requests. Model lifetime; any thread.

    Args:
        model: Vocabulary and template.
        markers: The model's special tokens.
        longest_bytes: The most bytes that one token writes.
        sandbox: Runs templates.
        words: The model's tokens by their bytes; without them a half-typed word is read as it is.
    """

    def __init__(
        self,
        model: Model,
        markers: Markers,
        longest_bytes: int,
        sandbox: Sandbox,
        words: healing.SortedVocabulary | None = None,
    ) -> None:
        self._model = model
        self._markers = markers
        self._longest_bytes = longest_bytes
        self._sandbox = sandbox
        self._words = words
        self.template = model.chat_template or RAW
        """The source of the chat template."""
        self._marks = _marks(model)
        self._bos, self._eos = model.special_text(model.bos), model.special_text(model.eos)

    def quoted(self, request: Generate) -> Generate:
        """The request with stand-ins for special tokens in its messages; see `Markers`."""
        return msgspec.structs.replace(
            request,
            messages=[
                self._quoted(one, own=one.role == "assistant") for one in request.messages or ()
            ],
            template_kwargs=self._markers.quoted(request.template_kwargs),
        )

    def _quoted(self, one: Message, *, own: bool) -> Message:
        told = history.tidied(one)  # parse arguments first: JSON may hide a mark in escapes
        content = self._markers.quoted(told.content, own=own, words=not own)
        extra = {
            key: self._markers.quoted(value, own=own and key != "tool_calls")
            for key, value in told.extra.items()
        }
        return Message(told.role, content, extra)

    def quoted_functions(self, functions: Sequence[Json]) -> Sequence[Json]:
        """The functions that a message describes, with stand-ins for special tokens."""
        return self._markers.quoted([*functions], words=True)

    def render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        """The prompt that the template renders; without one, the messages one after the other.

        Messages are `quoted`, and so is the result. Raises TemplateError.
        """
        variables = {**variables, "tools": self._markers.quoted(variables.get("tools"))}
        generation = variables.pop(GENERATION, True)
        if not isinstance(generation, bool):
            raise RequestError(f"{GENERATION} is neither true nor false.", param=GENERATION)
        conversation = Conversation(
            source=self.template,
            bos=self._bos,
            eos=self._eos,
            messages=[
                {**message.extra, "role": message.role, "content": message.content}
                for message in messages
            ],
            variables=variables,
            generation=generation,
        )
        try:
            return self._sandbox.render(conversation)
        except SandboxDied as died:
            raise TemplateError(
                f"The model's chat template was stopped: it {died}.",
                fix="Use /v1/completions with a prompt of your own.",
                param="messages",
            ) from died

    def tokens(
        self,
        request: Generate,
        rendered: str | None,
        context: int,
        images: Mapping[str, list[Token]] = MappingProxyType({}),
    ) -> list[Token]:
        """The prompt's tokens; a template writes its own BOS, plain text gets the model's.

        A special token's name stands for that token in a raw prompt, as in llama-server, and is
        plain text in messages, which come `rendered`. Marks of `images` become the images' tokens.

        Raises:
            RequestError: The model cannot fill in a middle.
            ContextOverflow: The prompt has too many bytes to fit into `context`.
            TooLarge: It is over a cap.
        """
        if request.prompt_tokens is not None:
            return request.prompt_tokens
        if request.prompt_pieces is not None:
            return self.joined(request.prompt_pieces, "prompt", context)
        if rendered is not None:
            text = rendered + self._markers.quoted(request.prefill, own=True)
            self._check(text, "messages", context)
            return self._chat(text, images)
        if request.suffix is not None:
            return self._infill(request, request.suffix, context)
        text = request.prompt or ""
        self._check(text, "prompt", context)
        return self._tokenized(self._markers.parts(text), add_special=True)

    def _chat(self, text: str, images: Mapping[str, list[Token]]) -> list[Token]:
        """The tokens of a rendered chat, tokenized between its images as llama.cpp does."""
        marks = "|".join(map(re.escape, images))
        tokens: list[Token] = []
        for piece in re.split(f"({marks})", text) if marks else [text]:
            if piece in images:
                tokens += images[piece]
                continue
            first = not tokens and not self._model.chat_template
            tokens += self._tokenized(self._markers.parts(piece, quoted=True), add_special=first)
        return tokens

    def joined(self, pieces: Sequence[int | str], param: str, context: int) -> list[Token]:
        """The tokens of a list of texts and tokens; a text at the beginning gets the model's BOS.

        Raises ContextOverflow, TooLarge.
        """
        tokens: list[Token] = []
        for place, piece in enumerate(pieces):
            if isinstance(piece, str):
                self._check(piece, param, context)
                parts = self._markers.parts(piece)
                tokens += self._tokenized(parts, add_special=not place)
            else:
                tokens.append(piece)
        return tokens

    def text(self, rendered: str, prefill: str) -> str:
        """A chat's prompt as text, without stand-ins."""
        whole = rendered + self._markers.quoted(prefill, own=True)
        return "".join(part.text for part in self._markers.parts(whole, quoted=True))

    def tokenized(self, question: Tokenize) -> list[Token]:
        """The tokens of a text. Raises TooLarge."""
        limits.check_text(question.text, "content")
        if question.parse_special:
            parts = self._markers.parts(question.text)
        else:
            parts = [Part(question.text, special=False)]
        return self._tokenized(parts, add_special=question.add_special)

    def words(self, text: str, param: str, most: int) -> list[Token]:
        """The first `most` tokens of a text; special tokens in it are read as plain text.

        Raises TooLarge.
        """
        limits.check_text(text, param)
        enough = text[: most * self._longest_bytes]
        return self._tokenized([Part(enough, special=False)], add_special=False)[:most]

    def typed(self, request: Generate) -> str:
        """The half-typed word that an infill's prompt leaves out; empty without one."""
        if self._words is None or request.suffix is None:
            return ""
        _, begun = infill.parted(request.prompt or "", request.begun)
        return healing.half_typed(begun, self._behind, self._words)

    def held(self, typed: str) -> healing.TokenHealing | None:
        """The constraint that an answer begins with `typed`; None where that is empty."""
        return healing.TokenHealing(typed, self._words) if typed and self._words else None

    def _infill(self, request: Generate, suffix: str, context: int) -> list[Token]:
        """The prompt of an infill. Raises RequestError for a model without tokens for that."""
        if self._marks is None:
            raise RequestError(
                "This model cannot fill in a middle: its file names no tokens for that.",
                fix="Take a model of code, such as Qwen2.5-Coder.",
                param="suffix",
            )
        texts = [request.prompt or "", suffix, request.begun, *(one.text for one in request.extra)]
        for text in texts:
            limits.check_text(text)
        prefix, begun = infill.parted(texts[0], request.begun)
        answer = _INFILL_TOKENS if request.max_tokens is None else request.max_tokens
        return infill.prompt(
            self._marks,
            self._model.plain_tokens,
            prefix=prefix,
            suffix=suffix,
            begun=begun.removesuffix(self.typed(request)),
            extra=request.extra,
            most=max(0, context - min(answer, _INFILL_TOKENS) - _MARKS),
            behind=self._behind,
        )

    def _check(self, text: str, param: str, context: int) -> None:
        """Refuse a text too long to fit: tokenizing some megabytes would take seconds."""
        least = -(-len(text.encode()) // self._longest_bytes)
        if least < context:
            limits.check_text(text, param)
            least = max(least, self._markers.count(text))
        if least >= context:
            raise overflow(least, context, param, "at least ")

    def _tokenized(self, parts: list[Part], *, add_special: bool) -> list[Token]:
        tokens: list[Token] = []
        for text, special, joined in parts:
            if joined:
                tokens += self._behind(text)
            else:
                first = add_special and not tokens
                tokens += self._model.tokenize(text, add_special=first, parse_special=special)
        return tokens

    def _behind(self, text: str) -> list[Token]:
        """The tokens of a text that continues another one.

        It is tokenized behind a line's end: some tokenizers put a blank before a text's first word.
        """
        line = self._model.plain_tokens("\n")
        tokens = self._model.plain_tokens("\n" + text)
        return (
            tokens[len(line) :] if tokens[: len(line)] == line else self._model.plain_tokens(text)
        )


def _marks(model: Model) -> infill.Marks | None:
    """The model's tokens for an infill; None where it has none."""
    prefix, suffix = model.infill("pre"), model.infill("suf")
    if prefix is None or suffix is None:
        return None
    return infill.Marks(
        prefix,
        suffix,
        middle=model.infill("mid"),
        repository=model.infill("rep"),
        file=model.infill("sep"),
        first=model.bos if model.adds_bos else None,
    )


def overflow(tokens: int, context: int, param: str, how: str = "") -> ContextOverflow:
    """The error for a prompt that leaves no room for an answer."""
    return ContextOverflow(
        # Clients know an overflow by these words, which are llama-server's.
        f"The prompt has {how}{tokens} tokens and exceeds the available context size of {context}, "
        "the answer included.",
        fix="Shorten the conversation, or raise engine.context in config.toml.",
        param=param,
        details={"n_prompt_tokens": tokens, "n_ctx": context},
    )
