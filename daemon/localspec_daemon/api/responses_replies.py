"""OpenAI's Responses: events into events, each with its number. Pure, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from localspec.errors import LocalSpecError
from localspec.wire.messages import Delta, Finished, Reading, Started
from localspec.wire.values import CallDelta, TokenLogprob
from localspec_daemon.api.dialect import Answer, Asked, Json, Quiet
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.api.openai_replies import figures, token_logprob
from localspec_daemon.api.responses_tools import places
from localspec_daemon.api.running import Running

Kind: TypeAlias = Literal["reasoning", "message", "function_call"]

_PREFIXES: dict[Kind, str] = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
"""What OpenAI's ids of items begin with."""


@dataclass(slots=True)
class _Item:
    """One item of the output as far as it has come: thoughts, words, or one call."""

    kind: Kind
    place: int
    id: str
    call: CallDelta | None = None
    namespace: str = ""
    text: str = ""
    logprobs: list[Json] = field(default_factory=list)

    def shown(self, status: str) -> Json:
        """The item as clients see it."""
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
                said = {"call_id": named.id, "name": named.name, "arguments": self.text}
                return head | said | place

    @property
    def part(self) -> Json:
        """Its text."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        said = {"text": self.text, "annotations": [], "logprobs": self.logprobs}
        return {"type": "output_text", **said}


@dataclass(slots=True)
class ResponsesReply(Quiet):
    """One response: thoughts, a message and calls, each an item that ends where the next begins."""

    asked: Asked
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    _items: list[_Item] = field(default_factory=list)
    _open: bool = False
    _sent: int = 0
    _running: Running = field(default_factory=Running)
    _unsaid: list[TokenLogprob] = field(default_factory=list)
    """Of tokens whose text is still to come; those of thoughts and calls are told nowhere."""

    def begin(self, started: Started) -> Iterator[Json]:
        """The response, empty."""
        self._running.started = started
        empty = self._response("in_progress")
        yield self._event("response.created", response=empty)
        yield self._event("response.in_progress", response=empty)

    def waiting(self) -> Iterator[Json]:
        """Once more that it is in progress, once it was said: Codex counts events, not comments."""
        if self._sent:
            yield self._event("response.in_progress", response=self._response("in_progress"))

    def reading(self, _choice: int, reading: Reading) -> Iterator[Json]:
        """Once more that it is in progress, and how far the prompt is read."""
        more = self._running.progress(reading)
        if self.asked.body.timings_per_token:
            more["timings"] = self._running.timings(reading)
        response = self._response("in_progress")
        yield self._event("response.in_progress", response=response, **more)

    def delta(self, choice: int, delta: Delta) -> Iterator[Json]:
        """A piece of what is being said, and its item if it is the first."""
        self._running.take(choice, delta)
        for event in self._deltas(delta):
            if self.asked.body.timings_per_token:
                event["timings"] = self._running.timings()
            yield event

    def _deltas(self, delta: Delta) -> Iterator[Json]:
        if delta.reasoning:
            yield from self._into("reasoning")
            yield from self._more("response.reasoning_text.delta", delta.reasoning)
        self._unsaid += delta.logprobs
        if delta.text:
            yield from self._into("message")
            yield from self._more("response.output_text.delta", delta.text, self._unsaid)
        if delta.text or delta.reasoning or delta.calls:
            self._unsaid = []
        for part in delta.calls:
            if part.name:
                yield from self._into("function_call", part)
            if part.arguments:
                yield from self._more("response.function_call_arguments.delta", part.arguments)

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """The end of the last item, and the whole response once more."""
        if not self._items:
            yield from self._into("message")
        yield from self._close(_status(finished))
        whole = self._response(_status(finished), finished) | figures(finished)
        yield self._event(f"response.{whole['status']}", response=whole) | _timed(finished)

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """An event of its own."""
        inner = errors(error)["error"]
        said = {name: inner[name] for name in ("code", "message", "param")}
        yield self._event("error", **said, error=inner)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """The response."""
        answer = answers[0]
        calls = [CallDelta(0, call.id, call.name, call.arguments) for call in answer.calls]
        said = Delta(
            "", answer.text, [], reasoning=answer.reasoning, calls=calls, logprobs=answer.logprobs
        )
        for _ in (*self.delta(0, said), *self.finish(0, answer.end)):
            pass  # the same items, and no listener
        return self._response(_status(answer.end), answer.end) | figures(answer.end)

    def _into(self, kind: Kind, call: CallDelta | None = None) -> Iterator[Json]:
        """Be in an item of that kind; each call is one of its own."""
        if self._open and self._items[-1].kind == kind and call is None:
            return
        yield from self._close("completed")
        place = len(self._items)
        name = f"{_PREFIXES[kind]}_{self._id.removeprefix('resp_')}{place:02}"
        item = _Item(kind, place, name, call)
        known = places(self.asked.body.tools or []) if call else {}
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
        """The whole text of the open item, as often as clients may read it."""
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
        return self.asked.generates[0].id

    def _response(self, status: str, end: Finished | None = None) -> Json:
        body, one = self.asked.body, self.asked.generates[0]
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
    """llama-server's place for timings: beside the response."""
    return {"timings": figures(finished)["timings"]}


def _where(item: _Item) -> Json:
    """Where a piece belongs; a call has no parts."""
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
