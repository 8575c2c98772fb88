"""Writes events as Anthropic's blocks, and errors in its shape. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.errors import LocalSpecError
from localspec.wire.messages import Delta, Finished, Started
from localspec_daemon.api.dialect import Answer, Json, ParsedRequest, ReplyDefaults

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
CLIENT_ERRORS = range(400, 500)
PING: Json = {"type": "ping"}


def errors(error: LocalSpecError) -> Json:
    """Returns the error object, with LocalSpec's own fields besides."""
    fallback = "invalid_request_error" if error.status in CLIENT_ERRORS else "api_error"
    fields: Json = {"type": KINDS.get(error.status, fallback), "message": _message(error)}
    fields |= {"code": error.code, "param": error.param}
    return {"error": fields, "type": "error"}


def _message(error: LocalSpecError) -> str:
    """Returns the message; agents recognise by Anthropic's own words that a prompt is too long."""
    match error.details:
        case {"n_prompt_tokens": tokens, "n_ctx": most}:
            return f"prompt is too long: {tokens} tokens > {most} maximum"
    return str(error)


@dataclass(slots=True)
class MessagesReply(ReplyDefaults):
    """Writes one message of thoughts, text and calls; each block ends where the next begins."""

    parsed: ParsedRequest
    model: str
    _blocks: int = 0
    _kind: str = ""

    def begin(self, started: Started) -> Iterator[Json]:
        """Yields the message, still without a block."""
        usage = _usage(started.prompt_tokens, started.cached_tokens, 0)
        yield {"type": "message_start", "message": self._message([], None, usage)}
        yield PING

    def waiting(self) -> Iterator[Json]:
        """Yields a ping, as Anthropic's server does."""
        yield PING

    def delta(self, _choice: int, delta: Delta) -> Iterator[Json]:
        """Yields pieces of thoughts, text and calls, and opens their blocks."""
        if delta.reasoning:
            yield from self._into({"type": "thinking", "thinking": "", "signature": ""})
            yield self._more({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.text:
            yield from self._into({"type": "text", "text": ""})
            yield self._more({"type": "text_delta", "text": delta.text})
        for part in delta.calls:
            if part.name:
                yield from self._close()
                call = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
                yield from self._into(call)
            if part.arguments:
                yield self._more({"type": "input_json_delta", "partial_json": part.arguments})

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """Yields the end of the last block, the stop reason, and the end of the message."""
        if not self._blocks:
            yield from self._into({"type": "text", "text": ""})
        yield from self._close()
        ending = {"stop_reason": _reason(finished), "stop_sequence": finished.stop or None}
        yield {"type": "message_delta", "delta": ending, "usage": _counted(finished)}
        yield {"type": "message_stop"}

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """Yields an event `error`."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """Returns the message."""
        answer = answers[0]
        content: list[Json] = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
        called = any(one.parsed is not None for one in answer.calls)
        if answer.text or not (content or called):
            content.append({"type": "text", "text": answer.text})
        content += [
            {"type": "tool_use", "id": one.id, "name": one.name, "input": given}
            for one in answer.calls
            if (given := one.parsed) is not None
        ]
        message = self._message(content, _reason(answer.end), _counted(answer.end))
        return message | {"stop_sequence": answer.end.stop or None}

    def _into(self, block: Json) -> Iterator[Json]:
        """Opens a block, unless the open block is of the same kind."""
        if self._kind != block["type"]:
            yield from self._close()
            self._kind = block["type"]
            self._blocks += 1
            place = self._blocks - 1
            yield {"type": "content_block_start", "index": place, "content_block": block}

    def _more(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> Iterator[Json]:
        if self._kind:
            self._kind = ""
            yield {"type": "content_block_stop", "index": self._blocks - 1}

    def _message(self, content: list[Json], reason: str | None, usage: Json) -> Json:
        return {
            "id": self.parsed.generates[0].id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }


def _reason(finished: Finished) -> str:
    if finished.reason == "length":
        return "max_tokens"
    if finished.stop:
        return "stop_sequence"
    return "tool_use" if finished.tool_calls else "end_turn"


def _counted(finished: Finished) -> Json:
    usage = finished.usage
    return _usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def _usage(prompt: int, cached: int, completion: int) -> Json:
    """Returns the token counts; Anthropic counts cached ones apart."""
    return {
        "input_tokens": prompt - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": completion,
    }
