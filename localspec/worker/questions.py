"""Answers questions that need no slot: tokenize, detokenize, render, and the end of thoughts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from localspec.errors import RequestError, TooLarge, no_embeddings
from localspec.text.thought_limit import ThoughtLimit
from localspec.types import Token
from localspec.wire.messages import (
    Detokenize,
    Embed,
    EndThoughts,
    Generate,
    Question,
    QuestionAnswer,
    Render,
    Tokenize,
)
from localspec.wire.questions import NOT_RUNNING
from localspec.worker.limits import MAX_PROMPT_BYTES

if TYPE_CHECKING:
    from localspec.engine.llama.model import Model
    from localspec.worker.preparation import PreparedRequest

MAX_TOKENS = 1 << 18
"""Tokens of one answer: it must fit a frame, which the supervisor reads between streams' tokens."""


class Reader(Protocol):
    """Reads texts and requests with the model's vocabulary; `RequestPreparer` is one."""

    def tokenized(self, question: Tokenize) -> list[Token]:
        """The tokens of a text. Raises TooLarge."""

    def prompt(self, request: Generate) -> tuple[str, list[Token]]:
        """The prompt of a request as text and as tokens. Raises RequestError."""


def answer_question(question: Question, model: Model, preparer: Reader) -> QuestionAnswer:
    """Answer a question. Raises RequestError, TooLarge, TemplateError."""
    match question:
        case Tokenize():
            tokens = preparer.tokenized(question)
            if len(tokens) > MAX_TOKENS:
                raise _too_much(f"content has {len(tokens)} tokens; {MAX_TOKENS} are", "content")
            pieces = [model.spelled(token) for token in tokens]
            if (size := sum(map(len, pieces))) > MAX_PROMPT_BYTES:
                text = f"The pieces of content have {size} bytes; {MAX_PROMPT_BYTES} are"
                raise _too_much(text, "content")
            return QuestionAnswer(question.id, question.text, tokens, pieces)
        case Detokenize():
            for token in question.tokens:
                if not 0 <= token < model.n_vocab:
                    raise RequestError(f"The model has no token {token}.", param="tokens")
            size = sum(len(model.spelled(token)) for token in question.tokens)
            if size > MAX_PROMPT_BYTES:
                text = f"These tokens write {size} bytes; {MAX_PROMPT_BYTES} are"
                raise _too_much(text, "tokens")
            spelled = b"".join(map(model.spelled, question.tokens))
            return QuestionAnswer(question.id, spelled.decode("utf-8", "replace"), question.tokens)
        case Embed():
            raise no_embeddings("This model")
        case Render():
            text, tokens = preparer.prompt(question.request)
            return QuestionAnswer(question.id, text, tokens)


def end_thoughts(asked: EndThoughts, running: Iterable[PreparedRequest]) -> QuestionAnswer:
    """End the thoughts of a running request; if that fails, the answer's text says why."""
    found = next((each for each in running if each.request.id == asked.request), None)
    if found is None:
        why = NOT_RUNNING
    elif not isinstance(found.constraint, ThoughtLimit):
        why = "the format of this completion marks no thoughts that could be ended"
    else:
        found.constraint.end()
        why = ""
    return QuestionAnswer(asked.id, why)


def _too_much(what: str, param: str) -> TooLarge:
    return TooLarge(f"{what} the most that is told at once.", fix="Ask in parts.", param=param)
