"""Questions that need no slot: tokens of a text, the text of tokens, the prompt of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.errors import RequestError
from localspec.protocol import Detokenize, Question, Render, Tokenize, Told
from localspec.worker.intake import Intake

if TYPE_CHECKING:
    from localspec.engine.model import Model


def told(question: Question, model: Model, intake: Intake) -> Told:
    """The answer. Raises RequestError, TooLarge, TemplateError."""
    match question:
        case Tokenize():
            tokens = intake.tokenized(question)
            pieces = [model.spelled(token) for token in tokens]
            return Told(question.id, question.text, tokens, pieces)
        case Detokenize():
            for token in question.tokens:
                if not 0 <= token < model.n_vocab:
                    raise RequestError(f"The model has no token {token}.", param="tokens")
            spelled = b"".join(map(model.spelled, question.tokens))
            return Told(question.id, spelled.decode("utf-8", "replace"), question.tokens)
        case Render():
            text, tokens = intake.prompt(question.request)
            return Told(question.id, text, tokens)
