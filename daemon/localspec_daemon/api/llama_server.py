"""llama-server's POST /completion, for editors that write their own prompts. Pure, no HTTP."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.errors import LocalSpecError
from localspec.ranges import SAMPLING
from localspec.wire.messages import Delta, Finished, Reading, Started
from localspec.wire.values import Alternative, TokenLogprob
from localspec_daemon.api.bodies import decode
from localspec_daemon.api.chain import Unbounded, whole
from localspec_daemon.api.dialect import Answer, Caller, Dialect, Json, ParsedRequest, ReplyDefaults
from localspec_daemon.api.framing import UNENDING_EVENTS
from localspec_daemon.api.openai import continued, shared
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.api.openai_types import Continuation
from localspec_daemon.api.running import Running
from localspec_daemon.api.settings import of_request

MAX_PROBABILITIES = 256
"""The most alternatives to each token: as many as people look at; they take 10 kB a token."""


class LlamaRequest(Continuation):
    """The fields that POST /completion and POST /infill share.

    `response_fields` selects fields of the answer; a slash leads into an object. A number out of
    range becomes the nearest one in it, where llama-server does the same.
    """

    clamps = True

    temperature: Unbounded = None
    top_k: whole(-(2**31), 2**31 - 1) | None = None  # type: ignore[valid-type]
    top_p: Unbounded = None
    min_p: Unbounded = None
    typical_p: Unbounded = None
    top_n_sigma: Unbounded = None
    xtc_probability: Unbounded = None
    xtc_threshold: Unbounded = None
    mirostat: int | None = None
    dry_base: Annotated[float, SAMPLING["dry_base"].at_most] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=MAX_PROBABILITIES)] | None = None
    return_tokens: bool | None = None
    response_fields: list[str] | None = None


class LlamaCompletionRequest(LlamaRequest):
    """A body of POST /completion."""


def completion(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /completion. Raises RequestError."""
    request = decode(data, LlamaCompletionRequest)
    return continued(request, config, caller, **own(request, config))


def own(request: LlamaRequest, config: Config) -> Json:
    """Returns the arguments of `generate` that both endpoints share. Raises RequestError."""
    fields = request.response_fields
    return shared(request, config) | {
        "logprobs": request.n_probs or None,
        "tells_prompt": not fields or "prompt" in fields,
    }


@dataclass(slots=True)
class CompletionReply(ReplyDefaults):
    """Writes pieces with `content`, and the figures with the last one."""

    parsed: ParsedRequest
    model: str
    _running: Running = field(default_factory=Running)

    def begin(self, started: Started) -> Iterable[Json]:
        """Keeps the event: each piece has the prompt's length."""
        self._running.started = started
        return ()

    def reading(self, choice: int, reading: Reading) -> Iterator[Json]:
        """Yields a piece without text."""
        piece = self._piece(choice, Delta("", "", [])) | self._running.progress(reading)
        if self.parsed.body.timings_per_token:
            piece["timings"] = self._running.timings(reading)
        yield piece

    def delta(self, choice: int, delta: Delta) -> Iterator[Json]:
        """Yields a piece of text."""
        self._running.take(choice, delta)
        if not (delta.text or delta.tokens):
            return
        piece = self._piece(choice, delta)
        if self.parsed.body.timings_per_token:
            piece["timings"] = self._running.timings(choice=choice)
        if delta.logprobs:
            piece["completion_probabilities"] = self._probabilities(choice, delta.logprobs)
        yield piece

    def _piece(self, choice: int, delta: Delta) -> Json:
        started = self._running.started
        return {
            "index": choice,
            "content": delta.text,
            "tokens": delta.tokens,
            "stop": False,
            "id_slot": self._slot(started),
            "tokens_predicted": self._running.counts[choice],
            "tokens_evaluated": started.prompt_tokens if started else 0,
        }

    def _slot(self, started: Started | None) -> int:
        """Returns the `id_slot` of the request, or else the number of its slot in the engine."""
        asked = self.parsed.body.id_slot
        if asked is not None and asked >= 0:
            return int(asked)
        return started.slot if started else -1

    def finish(self, choice: int, finished: Finished) -> Iterator[Json]:
        """Yields the last piece: no text, all figures."""
        answer = Answer(finished=finished, started=self._running.started)
        result = self._result(choice, answer) | {"tokens": []}
        result["has_new_line"] = self._running.lines[choice] > 0
        yield self._chosen(result) | {"stop": True}

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """Yields the error, as it is without a stream."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Any:
        """Returns one result, or a list of several."""
        results = [self._chosen(self._result(*numbered)) for numbered in enumerate(answers)]
        return results[0] if len(results) == 1 else results

    def _result(self, choice: int, answer: Answer) -> Json:
        one, end, started = self.parsed.generates[choice], answer.end, answer.started
        result: Json = {
            "index": choice,
            "content": answer.text,
            "tokens": answer.tokens if self.parsed.body.return_tokens else [],
            "id_slot": self._slot(started),
            "stop": True,
            "model": self.model,
            "tokens_predicted": end.usage.completion_tokens,
            "tokens_evaluated": end.usage.prompt_tokens,
            "generation_settings": of_request(
                one,
                stream=self.parsed.stream,
                timings_per_token=bool(self.parsed.body.timings_per_token),
            ),
            "prompt": started.text if started else "",
            "has_new_line": "\n" in answer.text,
            "truncated": end.full,
            "stop_type": "word" if end.stop else "limit" if end.reason == "length" else "eos",
            "stopping_word": end.stop,
            "tokens_cached": end.usage.prompt_tokens + end.usage.completion_tokens,
            "timings": msgspec.to_builtins(end.timings),
        }
        if answer.logprobs:
            result["completion_probabilities"] = self._probabilities(choice, answer.logprobs)
        return result

    def _probabilities(self, choice: int, tokens: Sequence[TokenLogprob]) -> list[Json]:
        """Returns the tokens' logprobs, or probabilities after the sampler chain if requested."""
        if not self.parsed.generates[choice].after_sampling:
            return [
                _spelled(token.chosen) | {"top_logprobs": [*map(_spelled, token.top)]}
                for token in tokens
            ]
        return [
            _likely(token.chosen) | {"top_probs": [_likely(one) for one in token.top]}
            for token in tokens
        ]

    def _chosen(self, result: Json) -> Json:
        """Returns the fields that `response_fields` names; a slash leads into an object."""
        wanted = self.parsed.body.response_fields
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


def _spelled(one: Alternative) -> Json:
    return {
        "id": one.token,
        "token": one.piece.decode("utf-8", "replace"),
        "bytes": list(one.piece),
        "logprob": one.logprob,
    }


def _likely(one: Alternative) -> Json:
    spelled = _spelled(one)
    spelled["prob"] = math.exp(spelled.pop("logprob"))
    return spelled


COMPLETION = Dialect(completion, CompletionReply, UNENDING_EVENTS)
