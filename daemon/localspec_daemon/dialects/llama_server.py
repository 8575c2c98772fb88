"""llama-server's own completion, for editors that write their prompts themselves. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.errors import LocalSpecError
from localspec.protocol import Delta, Finished, Started
from localspec.types import Alternative, TokenLogprob
from localspec_daemon.dialects.bodies import decode
from localspec_daemon.dialects.dialect import Answer, Asked, Caller, Dialect, Json, Quiet
from localspec_daemon.dialects.framing import UNENDING_EVENTS
from localspec_daemon.dialects.openai import continued
from localspec_daemon.dialects.openai_errors import errors
from localspec_daemon.dialects.openai_types import MAX_ALTERNATIVES, PromptRequest


class LlamaCompletionRequest(PromptRequest):
    """POST /completion. `response_fields` choose what comes back; a slash leads into an object."""

    n_probs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
    response_fields: list[str] | None = None


def completion(data: bytes, config: Config, caller: Caller) -> Asked:
    """A body of POST /completion. Raises RequestError."""
    request = decode(data, LlamaCompletionRequest)
    return continued(request, config, caller, logprobs=request.n_probs or None)


@dataclass(slots=True)
class CompletionReply(Quiet):
    """Pieces of `content`, and the figures with the last one."""

    asked: Asked
    model: str
    _prompt_tokens: int = 0

    def begin(self, started: Started) -> Iterable[Json]:
        """Nothing yet; pieces tell how long the prompt is."""
        self._prompt_tokens = started.prompt_tokens
        return ()

    def delta(self, choice: int, delta: Delta) -> Iterator[Json]:
        """A piece of text."""
        if not (delta.text or delta.tokens):
            return
        piece: Json = {
            "index": choice,
            "content": delta.text,
            "tokens": delta.tokens,
            "stop": False,
            "id_slot": -1,
            "tokens_evaluated": self._prompt_tokens,
        }
        if delta.logprobs:
            piece["completion_probabilities"] = [*map(_probabilities, delta.logprobs)]
        yield piece

    def finish(self, choice: int, finished: Finished) -> Iterator[Json]:
        """The last piece: no text, all figures."""
        answer = Answer(finished=finished)
        yield self._result(choice, answer) | {"tokens": []}

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """The error, as it would have been without a stream."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Any:
        """One result, or a list of them where several were asked for."""
        results = [self._chosen(self._result(*numbered)) for numbered in enumerate(answers)]
        return results[0] if len(results) == 1 else results

    def _result(self, choice: int, answer: Answer) -> Json:
        one, end = self.asked.generates[choice], answer.end
        result: Json = {
            "index": choice,
            "content": answer.text,
            "tokens": [token.chosen.token for token in answer.logprobs],
            "id_slot": -1,
            "stop": True,
            "model": self.model,
            "tokens_predicted": end.usage.completion_tokens,
            "tokens_evaluated": end.usage.prompt_tokens,
            "generation_settings": msgspec.to_builtins(one.sampling)
            | {"n_predict": -1 if one.max_tokens is None else one.max_tokens, "stop": one.stop},
            "prompt": one.prompt or "",
            "has_new_line": "\n" in answer.text,
            "truncated": False,
            "stop_type": "word" if end.stop else "limit" if end.reason == "length" else "eos",
            "stopping_word": end.stop,
            "tokens_cached": end.usage.prompt_tokens + end.usage.completion_tokens,
            "timings": msgspec.to_builtins(end.timings),
        }
        if answer.logprobs:
            result["completion_probabilities"] = [*map(_probabilities, answer.logprobs)]
        return result

    def _chosen(self, result: Json) -> Json:
        """The fields that `response_fields` names, under these names, out of objects too."""
        wanted = self.asked.body.response_fields
        if not wanted:
            return result
        found: Json = {}
        for path in wanted:
            value: Any = result
            for name in path.split("/"):
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                found[path] = value
        return found


def _probabilities(token: TokenLogprob) -> Json:
    return _spelled(token.chosen) | {"top_logprobs": [*map(_spelled, token.top)]}


def _spelled(one: Alternative) -> Json:
    return {
        "id": one.token,
        "token": one.piece.decode("utf-8", "replace"),
        "bytes": list(one.piece),
        "logprob": one.logprob,
    }


COMPLETION = Dialect(completion, CompletionReply, errors, UNENDING_EVENTS)
