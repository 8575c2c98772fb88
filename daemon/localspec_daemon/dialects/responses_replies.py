"""OpenAI's Responses: events into events, each with its number. Pure, no HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from localspec.errors import LocalSpecError
from localspec.protocol import Delta, Finished, Started
from localspec_daemon.dialects.dialect import Answer, Asked, Json
from localspec_daemon.dialects.openai_errors import errors
from localspec_daemon.dialects.openai_replies import figures


@dataclass(slots=True)
class ResponsesReply:
    """One response with one message of one part."""

    asked: Asked
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    _answer: Answer = field(default_factory=Answer)
    _sent: int = 0

    def begin(self, _started: Started) -> Iterator[Json]:
        """The response, its message and its part, all of them empty."""
        empty = self._response("in_progress", [])
        yield self._event("response.created", response=empty)
        yield self._event("response.in_progress", response=empty)
        item = self._item("in_progress", [])
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._event("response.content_part.added", **self._place, part=_part(""))

    def delta(self, _choice: int, delta: Delta) -> Iterator[Json]:
        """A piece of text."""
        self._answer.take(delta)
        if delta.text:
            yield self._event(
                "response.output_text.delta", **self._place, delta=delta.text, logprobs=[]
            )

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """The whole text three times, as part, message and response: clients read either."""
        self._answer.take(finished)
        text = self._answer.text
        yield self._event("response.output_text.done", **self._place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._place, part=_part(text))
        whole = self.whole([self._answer])
        item = whole["output"][0]
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{whole['status']}", response=whole)

    def end(self) -> Iterator[Json]:
        """Nothing more."""
        return iter(())

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """An event of its own."""
        inner = errors(error)["error"]
        said = {name: inner[name] for name in ("code", "message", "param")}
        yield self._event("error", **said, error=inner)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """The response."""
        answer = answers[0]
        status = "incomplete" if answer.end.reason == "length" else "completed"
        item = self._item(status, [_part(answer.text)])
        return self._response(status, [item], answer.end) | figures(answer.end)

    def _event(self, type_: str, **fields: object) -> Json:
        self._sent += 1
        return {"type": type_, "sequence_number": self._sent - 1} | fields

    @property
    def _id(self) -> str:
        return self.asked.generates[0].id

    @property
    def _place(self) -> Json:
        """Where text goes."""
        return {"item_id": f"msg-{self._id}", "output_index": 0, "content_index": 0}

    def _item(self, status: str, content: list[Json]) -> Json:
        message = {"id": f"msg-{self._id}", "type": "message", "role": "assistant"}
        return message | {"status": status, "content": content}

    def _response(self, status: str, output: list[Json], end: Finished | None = None) -> Json:
        body, one = self.asked.body, self.asked.generates[0]
        short = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
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


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(finished: Finished) -> Json:
    usage = finished.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
