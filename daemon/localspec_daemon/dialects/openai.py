"""OpenAI's dialect: bodies into `Generate`, events into chunks and answers. Pure, no HTTP."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from localspec.config import Config
from localspec.errors import LocalSpecError, RequestError
from localspec.protocol import Delta, Finished, Generate, Message
from localspec.ranges import check_stops
from localspec.types import PREDICTION, SamplingParams, SourceCount, SpeculationParams
from localspec_daemon.dialects.openai_types import (
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Part,
    Request,
)

Json: TypeAlias = dict[str, Any]
Body = TypeVar("Body", bound=msgspec.Struct)

SEED_BITS = 53
"""A seed that is drawn here is reported, and JavaScript's numbers must be able to repeat it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was understood. `generate` lacks nothing but the model, which is a name."""

    model: str
    generate: Generate
    stream: bool
    include_usage: bool
    return_origins: bool


def chat(data: bytes, config: Config, client: str) -> Asked:
    """A body of POST /v1/chat/completions. Raises RequestError."""
    request = decode(data, ChatRequest)
    if not request.messages:
        raise RequestError("messages is empty.", fix="Send at least one message.", param="messages")
    generate = Generate(
        messages=[_message(index, message) for index, message in enumerate(request.messages)],
        template_kwargs=request.chat_template_kwargs or {},
        prediction=_text("prediction.content", request.prediction.content)
        if request.prediction
        else "",
        **_common(request, config, client, "chat"),
    )
    if request.max_completion_tokens is not None:
        generate = msgspec.structs.replace(generate, max_tokens=request.max_completion_tokens)
    return _asked(request, generate)


def completion(data: bytes, config: Config, client: str) -> Asked:
    """A body of POST /v1/completions. Raises RequestError."""
    request = decode(data, CompletionRequest)
    if request.suffix:
        raise RequestError(
            "suffix (filling in the middle) is not supported.",
            fix="Put the model's own fill-in-the-middle tokens into prompt.",
            param="suffix",
        )
    text, tokens = _prompt(request.prompt)
    generate = Generate(
        prompt=text,
        prompt_tokens=tokens,
        echo=bool(request.echo),
        **_common(request, config, client, "completion"),
    )
    return _asked(request, generate)


def decode(data: bytes, kind: type[Body]) -> Body:
    """A JSON body of that type. Raises RequestError, which names the field at fault."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at ")
        found = re.search(r"`\$\.?([^`]*)`$", where)
        param = found[1] if found and found[1] else None
        raise RequestError(f"{param or 'The body'}: {problem}.", param=param) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise RequestError("The body is nested too deeply.") from error


def error_body(error: LocalSpecError) -> Json:
    """The error object; `{"error"` comes first, because a client recognises errors by it."""
    fields: Json = {
        "message": str(error),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
    }
    if error.fix:
        fields |= {"message": error.message, "fix": error.fix}
    return {"error": fields | error.details}


@dataclass(frozen=True, slots=True)
class Reply:
    """The shapes of one answer, whole or in chunks; `id` and `created` are the same in all."""

    asked: Asked
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def _chat(self) -> bool:
        return self.asked.generate.endpoint == "chat"

    def first(self) -> Json | None:
        """The chunk that begins a chat: whose turn it is."""
        if not self._chat:
            return None
        return self._chunk({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})

    def delta(self, delta: Delta) -> Json:
        """A chunk of text."""
        text = {"delta": {"content": delta.text}} if self._chat else {"text": delta.text}
        chunk = self._chunk(text | {"finish_reason": None})
        if self.asked.return_origins:
            chunk["origins"] = delta.origins
        return chunk

    def last(self, finished: Finished) -> Json:
        """The chunk that ends the text and carries the figures of the run."""
        empty: Json = {"delta": {}} if self._chat else {"text": ""}
        chunk = self._chunk(empty | {"finish_reason": _reason(finished)})
        return chunk | _figures(finished)

    def usage(self, finished: Finished) -> Json:
        """The chunk after the last, for those who asked; nothing but [DONE] may follow it."""
        return self._head(".chunk") | {"choices": [], "usage": _usage(finished)}

    def whole(self, text: str, finished: Finished, origins: list[tuple[int, str]]) -> Json:
        """The answer to a request that did not ask for a stream."""
        content: Json = (
            {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        )
        choice = {"index": 0} | content | {"logprobs": None, "finish_reason": _reason(finished)}
        answer = self._head("") | {"choices": [choice], "usage": _usage(finished)}
        if self.asked.return_origins:
            answer["origins"] = origins
        return answer | _figures(finished)

    def _chunk(self, choice: Json) -> Json:
        return self._head(".chunk") | {"choices": [{"index": 0} | choice]}

    def _head(self, suffix: str) -> Json:
        return {
            "id": self.asked.generate.id,
            "object": f"chat.completion{suffix}" if self._chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": "localspec",
        }


def _asked(request: Request, generate: Generate) -> Asked:
    options = request.stream_options
    return Asked(
        model=request.model or "",
        generate=generate,
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        return_origins=bool(request.return_origins),
    )


def _common(request: Request, config: Config, client: str, endpoint: str) -> Json:
    prefix = "chatcmpl" if endpoint == "chat" else "cmpl"
    given = request.response_format
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "endpoint": endpoint,
        "client": client,
        "sampling": _sampling(request, config.sampling),
        "speculation": _speculation(request, config),
        "max_tokens": request.max_tokens,
        "stop": _stops(request.stop),
        "ignore_eos": bool(request.ignore_eos),
        "response_format": (
            {
                key: value
                for key, value in msgspec.structs.asdict(given).items()
                if value is not None
            }
            if given and given.type != "text"
            else None
        ),
    }


def _sampling(request: Request, defaults: SamplingParams) -> SamplingParams:
    """The configured chain with what the request says instead; both use the same names."""
    chosen = _given(request, SamplingParams)
    if request.repeat_penalty is not None:
        chosen.setdefault("repetition_penalty", request.repeat_penalty)
    if request.top_k is not None:
        chosen["top_k"] = max(request.top_k, 0)  # -1 is how others write "no limit"
    chosen["seed"] = _seed(request.seed)
    return msgspec.structs.replace(defaults, **chosen)


def _seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(SEED_BITS)
    if not -(2**63) <= seed < 2**64:
        raise RequestError(f"seed = {seed} does not fit 64 bits.", param="seed")
    return seed % 2**64


def _speculation(request: Request, config: Config) -> SpeculationParams:
    """The configured defaults; which drafters they mean is known where they are loaded."""
    defaults = SpeculationParams(
        mode=config.speculation.mode,
        max_draft=config.speculation.max_draft,
        verify=config.speculation.verify,
    )
    if not request.speculation:
        return defaults
    return msgspec.structs.replace(defaults, **_given(request.speculation, SpeculationParams))


def _given(source: msgspec.Struct, target: type[msgspec.Struct]) -> Json:
    """The fields of `target` that `source` sets."""
    values = ((name, getattr(source, name, None)) for name in target.__struct_fields__)
    return {name: value for name, value in values if value is not None}


def _stops(stop: str | list[str] | None) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop or []
    check_stops(stops)
    return stops


def _message(index: int, message: ChatMessage) -> Message:
    extra = {
        name: value
        for name in ("name", "tool_calls", "tool_call_id", "reasoning_content")
        if (value := getattr(message, name)) is not None
    }
    role = "system" if message.role == "developer" else message.role
    return Message(role, _content(f"messages[{index}].content", message), extra)


def _content(param: str, message: ChatMessage) -> str:
    if message.content is None:
        if message.role != "assistant":
            raise RequestError(f"{param} is missing.", param=param)
        return ""  # an assistant that only called tools
    return _text(param, message.content)


def _text(param: str, content: str | list[Part]) -> str:
    """The text of a content, its parts joined. Raises RequestError, which names the part."""
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        if part.type not in {"text", "input_text"} or part.text is None:
            raise RequestError(
                f"{param}[{index}] is of type {part.type[:40]!r}; only text can be read.",
                fix="Send text parts alone.",
                param=f"{param}[{index}]",
            )
        texts.append(part.text)
    return "".join(texts)


def _prompt(prompt: str | list[Any] | None) -> tuple[str | None, list[int] | None]:
    """(text, None) or (None, tokens). Raises RequestError."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = cast("str | list[Any]", prompt[0])
    if not prompt:
        raise RequestError("prompt is empty.", fix="Send some text or tokens.", param="prompt")
    if isinstance(prompt, str):
        return prompt, None
    if not all(isinstance(token, int) for token in prompt):
        raise RequestError(
            "prompt has several prompts; one request is one prompt.",
            fix="Send them one by one.",
            param="prompt",
        )
    return None, prompt


def _reason(finished: Finished) -> str:
    return "length" if finished.reason == "length" else "stop"


def _usage(finished: Finished) -> Json:
    usage = finished.usage
    predicted = finished.speculation.sources.get(PREDICTION, SourceCount())
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.predicted_tokens,
            "rejected_prediction_tokens": predicted.drafted - predicted.accepted,
        },
    }


def _figures(finished: Finished) -> Json:
    report = msgspec.to_builtins(finished.speculation) | {"seed": finished.seed}
    return {"timings": msgspec.to_builtins(finished.timings), "speculation": report}
