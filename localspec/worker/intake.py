"""A request becomes what the engine takes: text rendered, tokenized, checked and bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localspec.errors import ContextOverflow, RequestError, TemplateError
from localspec.protocol import Generate, Message
from localspec.text import grammar, infill
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.dialogue import Dialogue, Turn
from localspec.text.template import CHATML, Conversation
from localspec.text.tools import Offer
from localspec.types import Token
from localspec.worker import limits
from localspec.worker.grammars import Grammars
from localspec.worker.said import Said
from localspec.worker.sandbox import Died, Sandbox

if TYPE_CHECKING:
    from localspec.engine.model import Model

_INFILL_TOKENS = 512
"""Room that is kept for a middle, where the context is short."""
_MARKS = 16
"""Tokens of a prompt that stand for no text, and names around other files."""


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request: prompt and prediction in tokens, its room, and its grammar."""

    request: Generate
    prompt: list[Token]
    prediction: list[Token]
    max_tokens: int
    constraint: GrammarConstraint | None
    relaxed: list[str]
    """Keys of the schema that the constraint does not keep."""
    echo: str
    """The prompt as text, for a completion that asked for it; else empty."""
    said: Said
    """Makes words, thoughts and calls of the answer's text."""


class Intake:
    """Turns requests into orders. Model lifetime; the engine's thread.

    Args:
        model: Vocabulary and template.
        context: Tokens that one session may hold now.
        drafters: Names of the sources that a request may choose from.
        vocabulary: The model's tokens for grammars.
        sandbox: Where templates and grammars are tried.
    """

    def __init__(
        self,
        model: Model,
        context: Callable[[], int],
        drafters: Collection[str],
        vocabulary: Vocabulary,
        sandbox: Sandbox,
    ) -> None:
        self._model = model
        self._context = context
        self._drafters = frozenset(drafters)
        self._bos, self._eos = model.special_text(model.bos), model.special_text(model.eos)
        self._source = CHATML if model.chat_template is None else model.chat_template
        self._marks = _marks(model)
        self._dialogue = Dialogue(self._source, self._rendered, model.control)
        self._grammars = Grammars(vocabulary, sandbox)
        self._sandbox = sandbox

    def order(self, request: Generate) -> Order:
        """The request in the engine's terms.

        Raises:
            RequestError: Something in it is out of range, or its grammar cannot be served.
            TemplateError: The chat template refused or failed.
            ContextOverflow: The prompt leaves no room for an answer.
            TooLarge: A text in it is over a cap.
        """
        limits.check(request, n_vocab=self._model.n_vocab, drafters=self._drafters)
        turn = None if request.messages is None else self._dialogue.turn(request)
        prompt = request.so_far.prompt if request.so_far else self._tokens(request, turn)
        if not prompt:
            raise RequestError("The prompt is empty.", fix="Send some text.", param="prompt")
        context = self._context()
        room = context - len(prompt)
        if room < 1:
            raise ContextOverflow(
                f"The prompt has {len(prompt)} tokens; the context holds {context}, "
                "the answer included.",
                fix="Shorten the conversation, or raise engine.context in config.toml.",
                param=_prompt_field(request),
                details={"n_prompt_tokens": len(prompt), "n_ctx": context},
            )
        constraint, relaxed = self._constraint(request, turn)
        if constraint and request.so_far:
            constraint.commit(request.so_far.tokens)
        return Order(
            request=request,
            prompt=prompt,
            prediction=self._prediction(request.prediction)[:room],
            max_tokens=room if request.max_tokens is None else min(request.max_tokens, room),
            constraint=constraint,
            relaxed=relaxed,
            echo=self._echo(request, prompt),
            said=self._said(request, turn),
        )

    def _said(self, request: Generate, turn: Turn | None) -> Said:
        dialogue = self._dialogue
        reader = dialogue.reader(turn.offer) if turn and request.reasoning_apart else None
        return Said(request.id, reader, dialogue.format.call_id, dialogue.shown if reader else {})

    def _constraint(
        self, request: Generate, turn: Turn | None
    ) -> tuple[GrammarConstraint | None, list[str]]:
        """The grammar of the answer: of its words alone, or of thoughts, words and calls."""
        wanted = request.response_format
        alone, relaxed = self._grammars.constraint(wanted)
        offer = turn.offer if turn else Offer()
        if offer.functions or offer.thinks or offer.thinking:
            offer = replace(offer, said=grammar.rule(wanted) if wanted else "")
        if not offer.constrains:
            return alone, relaxed
        return self._grammars.calls(self._dialogue.grammar(offer), offer.callable), relaxed

    def prompt(self, request: Generate) -> tuple[str, list[Token]]:
        """The prompt of a request as text and as tokens. Raises TooLarge, TemplateError."""
        turn = None if request.messages is None else self._dialogue.turn(request)
        return self._text(request, turn), self._tokens(request, turn)

    def _text(self, request: Generate, turn: Turn | None) -> str:
        return turn.prompt + request.prefill if turn else request.prompt or ""

    def _tokens(self, request: Generate, turn: Turn | None) -> list[Token]:
        """The prompt. A template writes its own BOS; plain text gets the model's."""
        if request.prompt_tokens is not None:
            return request.prompt_tokens
        if turn is None and request.suffix is not None:
            return self._infill(request, request.suffix)
        text = self._text(request, turn)
        limits.check_text(text, _prompt_field(request))
        rendered = turn is not None
        return self._model.tokenize(
            text,
            add_special=not rendered or self._model.chat_template is None,
            parse_special=rendered,
        )

    def _infill(self, request: Generate, suffix: str) -> list[Token]:
        """The prompt around a middle. Raises RequestError for a model that cannot fill one in."""
        if self._marks is None:
            raise RequestError(
                "This model cannot fill in a middle: its file names no tokens for that.",
                fix="Take a model of code, such as Qwen2.5-Coder.",
                param="suffix",
            )
        texts = [request.prompt or "", suffix, request.begun, *(one.text for one in request.extra)]
        for text in texts:
            limits.check_text(text)
        answer = _INFILL_TOKENS if request.max_tokens is None else request.max_tokens
        return infill.prompt(
            self._marks,
            self._model.plain_tokens,
            prefix=texts[0],
            suffix=suffix,
            begun=request.begun,
            extra=request.extra,
            most=max(0, self._context() - min(answer, _INFILL_TOKENS) - _MARKS),
        )

    def _rendered(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        """The prompt by the file's own template, or by ChatML where it has none."""
        conversation = Conversation(
            source=self._source,
            bos=self._bos,
            eos=self._eos,
            messages=[
                {**message.extra, "role": message.role, "content": message.content}
                for message in messages
            ],
            variables=dict(variables),
        )
        try:
            return self._sandbox.render(conversation)
        except Died as died:
            raise TemplateError(
                f"The model's chat template was stopped: it {died}.",
                fix="Use /v1/completions with a prompt of your own.",
                param="messages",
            ) from died

    def _prediction(self, text: str) -> list[Token]:
        """The prediction's tokens; words of a template in it are words, as in an answer."""
        if not text:
            return []
        limits.check_text(text, "prediction")
        return self._model.tokenize(text, add_special=False, parse_special=False)

    def _echo(self, request: Generate, prompt: list[Token]) -> str:
        if not request.echo or request.messages is not None:
            return ""
        if request.prompt is not None:
            return request.prompt
        return b"".join(map(self._model.piece, prompt)).decode("utf-8", errors="replace")


def _marks(model: Model) -> infill.Marks | None:
    """The model's tokens for filling in a middle; None where it has none."""
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


def _prompt_field(request: Generate) -> str:
    """The field of the request that its prompt came in."""
    return "prompt" if request.messages is None else "messages"
