"""Writes events as those of OpenAI's Responses, numbered. Pure, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from localspec.errors import LocalSpecError
from localspec.wire.messages import Delta, Finished, Reading, Started
from localspec.wire.values import CallDelta, TokenLogprob
from localspec_daemon.api.dialect import Answer, Json, ParsedRequest, ReplyDefaults
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.api.openai_replies import figures, token_logprob
from localspec_daemon.api.responses_tools import places
from localspec_daemon.api.running import Running

Kind: TypeAlias = Literal["reasoning", "message", "function_call"]

_PREFIXES: dict[Kind, str] = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
"""Beginnings of OpenAI's item ids."""


@dataclass(slots=True)
class _Item:
    """One item of the output so far: thoughts, text, or one call."""

    kind: Kind
    place: int
    id: str
    call: CallDelta | None = None
    namespace: str = ""
    text: str = ""
    logprobs: list[Json] = field(default_factory=list)

    def shown(self, status: str) -> Json:
        """Returns the item in the API's shape."""
        head: Json = {"id": self.id, "type": self.kind, "status": status}
        match self.kind:
            case "reasoning":
                return head | {"summary": [], "content": [self.part]}
            case "message":
                content = [self.part] if self.text or status != "in_progress" else []
                return head | {"role": "assistant", "content": content}
            case "function_call":
                named = self.call or CallDelta(0)
                place = {"namespace": self.namespace} if self.namespace else {}
                fields = {"call_id": named.id, "name": named.name, "arguments": self.text}
                return head | fields | place

    @property
    def part(self) -> Json:
        """Returns its content part."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        fields = {"text": self.text, "annotations": [], "logprobs": self.logprobs}
        return {"type": "output_text", **fields}


@dataclass(slots=True)
class ResponsesReply(ReplyDefaults):
    """Writes one response of thoughts, a message and calls, each an item of its own."""

    parsed: ParsedRequest
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    _items: list[_Item] = field(default_factory=list)
    _open: bool = False
    _sent: int = 0
    _running: Running = field(default_factory=Running)
    _pending_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Logprobs of tokens whose text is still to come; thoughts and calls have none."""

    def begin(self, started: Started) -> Iterator[Json]:
        """Yields the response, still empty."""
        self._running.started = started
        empty = self._response("in_progress")
        yield self._event("response.created", response=empty)
        yield self._event("response.in_progress", response=empty)

    def waiting(self) -> Iterator[Json]:
        """Yields `in_progress` once more after the first: Codex counts events, not comments."""
        if self._sent:
            yield self._event("response.in_progress", response=self._response("in_progress"))

    def reading(self, _choice: int, reading: Reading) -> Iterator[Json]:
        """Yields `in_progress` with the progress of the prompt."""
        more = self._running.progress(reading)
        if self.parsed.body.timings_per_token:
            more["timings"] = self._running.timings(reading)
        response = self._response("in_progress")
        yield self._event("response.in_progress", response=response, **more)

    def delta(self, choice: int, delta: Delta) -> Iterator[Json]:
        """Yields pieces of thoughts, text and calls, and opens their items."""
        self._running.take(choice, delta)
        for event in self._deltas(delta):
            if self.parsed.body.timings_per_token:
                event["timings"] = self._running.timings()
            yield event

    def _deltas(self, delta: Delta) -> Iterator[Json]:
        if delta.reasoning:
            yield from self._into("reasoning")
            yield from self._more("response.reasoning_text.delta", delta.reasoning)
        self._pending_logprobs += delta.logprobs
        if delta.text:
            yield from self._into("message")
            yield from self._more("response.output_text.delta", delta.text, self._pending_logprobs)
        if delta.text or delta.reasoning or delta.calls:
            self._pending_logprobs = []
        for part in delta.calls:
            if part.name:
                yield from self._into("function_call", part)
            if part.arguments:
                yield from self._more("response.function_call_arguments.delta", part.arguments)

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """Yields the end of the last item and the whole response."""
        if not self._items:
            yield from self._into("message")
        yield from self._close(_status(finished))
        whole = self._response(_status(finished), finished) | figures(finished)
        yield self._event(f"response.{whole['status']}", response=whole) | _timed(finished)

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """Yields an event `error`."""
        inner = errors(error)["error"]
        fields = {name: inner[name] for name in ("code", "message", "param")}
        yield self._event("error", **fields, error=inner)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """Returns the response."""
        answer = answers[0]
        calls = [CallDelta(0, call.id, call.name, call.arguments) for call in answer.calls]
        delta = Delta(
            "", answer.text, [], reasoning=answer.reasoning, calls=calls, logprobs=answer.logprobs
        )
        for _ in (*self.delta(0, delta), *self.finish(0, answer.end)):
            pass  # builds the items of a stream; its events are not sent
        return self._response(_status(answer.end), answer.end) | figures(answer.end)

    def _into(self, kind: Kind, call: CallDelta | None = None) -> Iterator[Json]:
        """Opens an item, unless the open one is of this kind; each call is an item of its own."""
        if self._open and self._items[-1].kind == kind and call is None:
            return
        yield from self._close("completed")
        place = len(self._items)
        name = f"{_PREFIXES[kind]}_{self._id.removeprefix('resp_')}{place:02}"
        item = _Item(kind, place, name, call)
        known = places(self.parsed.body.tools or []) if call else {}
        if call and call.name in known:
            item.namespace, name = known[call.name]
            item.call = msgspec.structs.replace(call, name=name)
        self._items.append(item)
        self._open = True
        added = item.shown("in_progress")
        yield self._event("response.output_item.added", output_index=place, item=added)
        if kind == "message":
            yield self._event("response.content_part.added", **_where(item), part=item.part)

    def _more(self, type_: str, text: str, tokens: Sequence[TokenLogprob] = ()) -> Iterator[Json]:
        item = self._items[-1]
        item.text += text
        found = [token_logprob(token) for token in tokens]
        item.logprobs += found
        more: Json = {"logprobs": found} if item.kind == "message" else {}
        yield self._event(type_, **_where(item), delta=text, **more)

    def _close(self, status: str) -> Iterator[Json]:
        """Yields the whole text of the open item in each of the events that clients may read."""
        if not self._open:
            return
        self._open = False
        item = self._items[-1]
        match item.kind:
            case "reasoning":
                yield self._event("response.reasoning_text.done", **_where(item), text=item.text)
            case "message":
                yield self._event(
                    "response.output_text.done",
                    **_where(item),
                    text=item.text,
                    logprobs=item.logprobs,
                )
                yield self._event("response.content_part.done", **_where(item), part=item.part)
            case "function_call":
                yield self._event(
                    "response.function_call_arguments.done",
                    **_where(item),
                    name=item.call.name if item.call else "",
                    arguments=item.text,
                )
        shown = item.shown(status)
        yield self._event("response.output_item.done", output_index=item.place, item=shown)

    def _event(self, type_: str, **fields: object) -> Json:
        self._sent += 1
        return {"type": type_, "sequence_number": self._sent - 1} | fields

    @property
    def _id(self) -> str:
        return self.parsed.generates[0].id

    def _response(self, status: str, end: Finished | None = None) -> Json:
        body, one = self.parsed.body, self.parsed.generates[0]
        short = {"reason": "max_output_tokens"} if status == "incomplete" else None
        last = len(self._items) - 1
        return {
            "id": self._id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": [
                item.shown(status if item.place == last else "completed") for item in self._items
            ],
            "error": None,
            "incomplete_details": short,
            "instructions": body.instructions,
            "max_output_tokens": one.max_tokens,
            "metadata": {},
            "parallel_tool_calls": one.parallel_tool_calls,
            "previous_response_id": None,
            "reasoning": {"effort": one.reasoning_effort, "summary": None},
            "store": False,
            "temperature": one.sampling.temperature,
            "text": body.text or {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": one.sampling.top_p,
            "truncation": "disabled",
            "usage": _usage(end) if end else None,
        }


def _timed(finished: Finished) -> Json:
    """Returns llama-server's timings, which stand beside the response."""
    return {"timings": figures(finished)["timings"]}


def _where(item: _Item) -> Json:
    """Returns the place of a piece; a call has no parts."""
    place: Json = {"item_id": item.id, "output_index": item.place}
    return place if item.kind == "function_call" else place | {"content_index": 0}


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"


def _usage(finished: Finished) -> Json:
    usage = finished.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
