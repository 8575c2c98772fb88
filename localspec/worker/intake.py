"""A request becomes what the engine takes: text rendered, tokenized, checked and bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.errors import ContextOverflow, RequestError
from localspec.protocol import Generate
from localspec.text.grammar import Grammars
from localspec.text.template import ChatTemplate
from localspec.types import Constraint, Token
from localspec.worker import limits

if TYPE_CHECKING:
    from localspec.engine.model import Model


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request: prompt and prediction in tokens, its room, and its grammar."""

    request: Generate
    prompt: list[Token]
    prediction: list[Token]
    max_tokens: int
    constraint: Constraint | None
    echo: str
    """The prompt as text, for a completion that asked for it; else empty."""


class Intake:
    """Turns requests into orders. Model lifetime; the engine's thread.

    Args:
        model: Vocabulary and template.
        context: Tokens that one session may hold now.
        drafters: Names of the sources that a request may choose from.
    """

    def __init__(self, model: Model, context: Callable[[], int], drafters: Collection[str]) -> None:
        self._model = model
        self._context = context
        self._drafters = frozenset(drafters)
        self._template = ChatTemplate(
            model.chat_template,
            bos=model.special_text(model.bos),
            eos=model.special_text(model.eos),
        )
        self._grammars = Grammars(model.n_vocab, model.piece, model.eog)

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
        return Order(
            request=request,
            prompt=prompt,
            prediction=self._prediction(request.prediction)[:room],
            max_tokens=room if request.max_tokens is None else min(request.max_tokens, room),
            constraint=self._grammars.constraint(request.response_format),
            echo=self._echo(request, prompt),
        )

    def _tokens(self, request: Generate) -> list[Token]:
        """The prompt. A template writes its own BOS; plain text gets the model's."""
        if request.prompt_tokens is not None:
            return request.prompt_tokens
        if request.messages is not None:
            text = self._template.render(request.messages, request.template_kwargs)
            text += request.prefill
            add_special, parse_special = self._template.built_in, True
        else:
            text = request.prompt or ""
            add_special, parse_special = True, False
        limits.check_text(text, _prompt_field(request))
        return self._model.tokenize(text, add_special=add_special, parse_special=parse_special)

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
