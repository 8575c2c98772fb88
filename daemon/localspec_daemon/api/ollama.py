"""Ollama's chat and generate: bodies into `Generate`, events into lines of JSON. Pure, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.errors import LocalSpecError, RequestError
from localspec.wire.messages import Delta, Finished, Message
from localspec.wire.values import Image, TokenLogprob
from localspec_daemon.api.bodies import Count, decode, generate, prefilled
from localspec_daemon.api.chain import Chain, refuse_unless
from localspec_daemon.api.dialect import (
    Answer,
    Call,
    Caller,
    Dialect,
    Json,
    ParsedRequest,
    ReplyDefaults,
)
from localspec_daemon.api.framing import LINES
from localspec_daemon.api.openai_replies import token_logprob
from localspec_daemon.api.openai_types import MAX_ALTERNATIVES
from localspec_daemon.api.parts import SHOWING, image, no_image


class Options(Chain):
    """The options of sampling and of length."""

    num_predict: Count | None = None
    stop: str | list[str] | None = None


class OllamaMessage(msgspec.Struct):
    """One message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    images: list[Any] | None = None


class OllamaRequest(msgspec.Struct):
    """The fields of both endpoints. The answer is a stream unless `stream` is false."""

    model: str
    stream: bool | None = None
    options: Options | None = None
    format: str | dict[str, Any] | None = None
    keep_alive: Any = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None


class OllamaChatRequest(OllamaRequest):
    """A body of POST /api/chat. Without messages it only loads the model."""

    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None


class OllamaGenerateRequest(OllamaRequest):
    """A body of POST /api/generate; without a prompt it only loads. `raw`: no template."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: list[Any] | None = None
    context: Any = None
    template: Any = None


NEUTRAL: dict[str, tuple[Any, ...]] = {"context": (None, []), "template": (None, "")}
"""Fields that would change an answer and are not served, with the values that change nothing."""


def chat(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /api/chat. Raises RequestError."""
    request = decode(data, OllamaChatRequest)
    messages = [_message(index, one) for index, one in enumerate(request.messages or ())]
    messages, prefill = prefilled(messages)
    return _asked(
        request,
        config,
        caller,
        endpoint="chat",
        messages=messages or None,
        prefill=prefill,
        tools=request.tools,
    )


def completion(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /api/generate. Raises RequestError.

    As in Ollama, the prompt is a user's message, unless it is raw or has a suffix.
    """
    request = decode(data, OllamaGenerateRequest)
    refuse_unless(NEUTRAL, request)
    prompt, suffix = request.prompt or "", request.suffix or None
    images = _images(request.images, "images")
    if images and (request.raw or suffix):
        raise no_image("images")
    if not (prompt or suffix or images):
        return _asked(request, config, caller, endpoint="completion")
    if request.raw or suffix:
        return _asked(request, config, caller, endpoint="completion", prompt=prompt, suffix=suffix)
    system = [Message("system", request.system)] if request.system else []
    messages = [*system, Message("user", _shown(images, prompt), {}, images)]
    return _asked(request, config, caller, endpoint="chat", messages=messages)


def errors(error: LocalSpecError) -> Json:
    """Returns the error as one sentence, which clients show unchanged."""
    return {"error": str(error)}


def stamp(seconds: float | None = None) -> str:
    """Returns a time in Ollama's format; now by default."""
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC)
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class OllamaReply(ReplyDefaults):
    """Writes lines; the last one has the reason and the times."""

    wrap: Callable[[Json], Json]
    parsed: ParsedRequest
    model: str
    _began_at: float = field(default_factory=time.monotonic)
    _answer: Answer = field(default_factory=Answer)

    def waiting(self) -> Iterator[Json]:
        """Yields a line without text: lines of JSON have no comments."""
        yield self._line(_content(""), done=False)

    def delta(self, _choice: int, delta: Delta) -> Iterator[Json]:
        """Yields a line of text or thoughts; whole calls come before the last line."""
        self._answer.take(delta)
        if delta.text or delta.reasoning or delta.logprobs:
            line = self._line(_content(delta.text, delta.reasoning), done=False)
            yield line | self._logprobs(delta.logprobs)

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """Yields a line with the calls, if any, and the last line."""
        if any(one.parsed is not None for one in self._answer.calls):
            yield self._line(_content("", "", self._answer.calls), done=False)
        yield self._last(_content(""), finished)

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """Yields a line with the error."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """Returns the last line, with all text in it."""
        answer = answers[0]
        last = self._last(_content(answer.text, answer.reasoning, answer.calls), answer.end)
        return last | self._logprobs(answer.logprobs)

    def loaded(self, reason: str) -> Json:
        """Returns the answer to a request without text; its reason is "load" or "unload"."""
        return self._line(_content(""), done=True) | {"done_reason": reason}

    def _line(self, content: Json, *, done: bool) -> Json:
        # The name as the request has it: clients compare it with the name that they sent.
        head = {"model": self.parsed.body.model, "created_at": stamp()}
        return head | self.wrap(content) | {"done": done}

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> Json:
        """Returns the logprobs of a line's tokens, where they were asked for."""
        wanted = self.parsed.body.logprobs
        return {"logprobs": [token_logprob(token) for token in tokens]} if wanted else {}

    def _last(self, content: Json, finished: Finished) -> Json:
        timings, usage = finished.timings, finished.usage
        return self._line(content, done=True) | {
            "done_reason": "length" if finished.reason == "length" else "stop",
            "total_duration": _nanoseconds(1000 * (time.monotonic() - self._began_at)),
            "load_duration": 0,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(timings.prompt_ms),
            "eval_count": usage.completion_tokens,
            "eval_duration": _nanoseconds(timings.predicted_ms),
        }


def _asked(
    request: OllamaRequest, config: Config, caller: Caller, *, endpoint: str, **more: Any
) -> ParsedRequest:
    """Returns the request; without messages or a prompt it generates nothing."""
    options = request.options or Options()
    one = generate(
        config,
        caller,
        prefix="ollama",
        endpoint=endpoint,
        chain=options,
        max_tokens=options.num_predict,
        stop=options.stop,
        response_format=_format(request.format),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        reasoning_effort=request.think if isinstance(request.think, str) else None,
        template_kwargs={"enable_thinking": request.think}
        if isinstance(request.think, bool)
        else None,
        **more,
    )
    wants = one.messages or one.prompt or one.suffix
    streams = request.stream is not False
    name = request.model.removesuffix(":latest")
    return ParsedRequest(name, (one,) if wants else (), streams, request)


def _format(given: str | dict[str, Any] | None) -> Json | None:
    if not given:
        return None
    if isinstance(given, dict):
        return {"type": "json_schema", "json_schema": {"schema": given}}
    if given != "json":
        raise RequestError('format is "json" or a schema.', param="format")
    return {"type": "json_object"}


def _message(index: int, one: OllamaMessage) -> Message:
    """Returns one message, with calls in OpenAI's shape. Raises RequestError."""
    images = _images(one.images, f"messages[{index}].images")
    if images and one.role not in SHOWING:
        raise no_image(f"messages[{index}].images")
    extra: Json = {}
    if one.tool_calls:
        extra["tool_calls"] = [{"type": "function", **call} for call in one.tool_calls]
    if one.tool_name:
        extra["name"] = one.tool_name
    if one.thinking:
        extra["reasoning_content"] = one.thinking
    return Message(one.role, _shown(images, one.content or ""), extra, images)


def _images(images: list[Any] | None, param: str) -> list[Image]:
    """Returns the images of a list, each base64 or a data URL. Raises RequestError."""
    return [image(f"{param}[{index}]", one) for index, one in enumerate(images or ())]


def _shown(images: Sequence[Image], text: str) -> str:
    """Returns the images' marks and then the text, in Ollama's order."""
    return "".join(one.mark for one in images) + text


def _content(text: str, thoughts: str = "", calls: Sequence[Call] = ()) -> Json:
    """Returns the fields of a line: always the text, and thoughts and calls if there are any."""
    content: Json = {"content": text}
    if thoughts:
        content["thinking"] = thoughts
    whole = [(one.name, given) for one in calls if (given := one.parsed) is not None]
    if whole:
        content["tool_calls"] = [
            {"function": {"name": name, "arguments": given}} for name, given in whole
        ]
    return content


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)


ChatReply = partial(OllamaReply, lambda content: {"message": {"role": "assistant"} | content})
GenerateReply = partial(
    OllamaReply,
    lambda content: {
        "response" if name == "content" else name: one for name, one in content.items()
    },
)
CHAT = Dialect(chat, ChatReply, LINES)
GENERATE = Dialect(completion, GenerateReply, LINES)
