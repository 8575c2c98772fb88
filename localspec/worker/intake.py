"""A request becomes what the engine takes: text rendered, tokenized, checked and bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.errors import ContextOverflow, RequestError, TemplateError
from localspec.protocol import Generate, Message
from localspec.text.constraint import GrammarConstraint, Vocabulary
from localspec.text.template import CHATML, Conversation
from localspec.types import Token
from localspec.worker import limits
from localspec.worker.grammars import Grammars
from localspec.worker.sandbox import Died, Sandbox

if TYPE_CHECKING:
    from localspec.engine.model import Model


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
        if request.suffix is not None:
            raise RequestError(
                "suffix (filling in the middle) is not supported.",
                fix="Put the model's own fill-in-the-middle tokens into prompt.",
                param="suffix",
            )
        prompt = self._tokens(request)
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
        constraint, relaxed = self._grammars.constraint(request.response_format)
        return Order(
            request=request,
            prompt=prompt,
            prediction=self._prediction(request.prediction)[:room],
            max_tokens=room if request.max_tokens is None else min(request.max_tokens, room),
            constraint=constraint,
            relaxed=relaxed,
            echo=self._echo(request, prompt),
        )

    def _tokens(self, request: Generate) -> list[Token]:
        """The prompt. A template writes its own BOS; plain text gets the model's."""
        if request.prompt_tokens is not None:
            return request.prompt_tokens
        if request.messages is not None:
            text = self._rendered(request.messages, request.template_kwargs) + request.prefill
            add_special, parse_special = self._model.chat_template is None, True
        else:
            text = request.prompt or ""
            add_special, parse_special = True, False
        limits.check_text(text, _prompt_field(request))
        return self._model.tokenize(text, add_special=add_special, parse_special=parse_special)

    def _rendered(self, messages: list[Message], variables: dict[str, Any]) -> str:
        """The prompt by the file's own template, or by ChatML where it has none."""
        conversation = Conversation(
            source=CHATML if self._model.chat_template is None else self._model.chat_template,
            bos=self._bos,
            eos=self._eos,
            messages=[
                {**message.extra, "role": message.role, "content": message.content}
                for message in messages
            ],
            variables=variables,
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


def _prompt_field(request: Generate) -> str:
    """The field of the request that its prompt came in."""
    return "prompt" if request.messages is None else "messages"
