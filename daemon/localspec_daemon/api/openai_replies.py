"""Writes events as OpenAI's chat and completion objects. Pure, no HTTP."""

from __future__ import annotations

import codecs
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from localspec.errors import LocalSpecError
from localspec.types import PREDICTION, SourceCount
from localspec.wire.messages import Delta, Finished, Reading, Started
from localspec.wire.values import Alternative, CallDelta, TokenLogprob, Usage
from localspec_daemon.api.dialect import Answer, Json, ParsedRequest, ReplyDefaults
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.api.running import Running
from localspec_daemon.api.settings import of_request

FINGERPRINT = "b0-localspec"
"""llama-server's form, a build number and a commit, by which its clients recognise it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The differences between chats and completions: object names, the text's place, logprobs.

    `opening` is the delta before the first text, or None. `closing` holds an empty text, in the
    chunk that ends a choice.
    """

    whole: str
    chunk: str
    opening: Json | None
    closing: Json
    piece: Callable[[str], Json]
    content: Callable[[Answer], Json]
    logprobs: Callable[[Sequence[TokenLogprob], TextOffset], Json]


_BITS, _GOES_ON = 0xC0, 0x80
"""The mask of a byte's first two bits, and their value in a continuation byte of UTF-8."""


@dataclass(slots=True)
class TextOffset:
    """The offset of the next token in a text, in characters."""

    _chars: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def of(self, piece: bytes) -> int:
        """Returns the offset of a token with these bytes, or of the character that it continues."""
        if piece and piece[0] & _BITS != _GOES_ON:  # the character before stays incomplete
            self._chars += len(self._decoder.decode(b"", final=True))
        begins = self._chars
        self._chars += len(self._decoder.decode(piece))
        return begins


@dataclass(slots=True)
class OpenAIReply(ReplyDefaults):
    """A chat or a completion; `id` and `created` are the same in all chunks."""

    kind: Kind
    parsed: ParsedRequest
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    _ends: list[Finished] = field(default_factory=list)
    _places: dict[int, TextOffset] = field(default_factory=lambda: defaultdict(TextOffset))
    _running: Running = field(default_factory=Running)

    def begin(self, started: Started) -> Iterator[Json]:
        """Yields the role of each choice, for chats."""
        self._running.started = started
        if self.kind.opening:
            for choice in range(len(self.parsed.generates)):
                yield self._chunk(choice, self.kind.opening)

    def reading(self, choice: int, reading: Reading) -> Iterator[Json]:
        """Yields a chunk without text."""
        chunk = self._chunk(choice, self.kind.closing) | self._running.progress(reading)
        if self.parsed.body.timings_per_token:
            chunk["timings"] = self._running.timings(reading)
        yield chunk

    def delta(self, choice: int, delta: Delta) -> Iterator[Json]:
        """Yields thoughts, text and each call in chunks of their own: some clients expect that."""
        self._running.take(choice, delta)
        for chunk in self._chunks(choice, delta):
            if self.parsed.body.timings_per_token:
                chunk["timings"] = self._running.timings(choice=choice)
            yield chunk

    def _chunks(self, choice: int, delta: Delta) -> Iterator[Json]:
        if delta.reasoning:
            yield self._chunk(choice, {"delta": {"reasoning_content": delta.reasoning}})
        if delta.text or delta.logprobs:
            fields = self.kind.piece(delta.text)
            if delta.logprobs:
                fields["logprobs"] = self.kind.logprobs(delta.logprobs, self._places[choice])
            chunk = self._chunk(choice, fields)
            if self.parsed.body.return_origins:
                chunk["origins"] = delta.origins
            yield chunk
        for part in delta.calls:
            yield self._chunk(choice, {"delta": {"tool_calls": [_call_part(part)]}})

    def finish(self, choice: int, finished: Finished) -> Iterator[Json]:
        """Yields the chunk that ends a choice, with the figures of its run."""
        self._ends.append(finished)
        yield self._chunk(choice, self.kind.closing, reason(finished)) | figures(finished)

    def end(self) -> Iterator[Json]:
        """Yields the usage, where it was asked for; only [DONE] may follow."""
        options = self.parsed.body.stream_options
        if options and options.include_usage:
            last = {"choices": [], "usage": usage(self._ends)}
            yield self._head(self.kind.chunk) | last | figures(self._ends[0])

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """Yields the error, as it is without a stream."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """Returns all choices, the usage, and the figures of the first choice."""
        answer = self._head(self.kind.whole) | {
            "choices": [self._choice(*numbered) for numbered in enumerate(answers)],
            "usage": usage([answer.end for answer in answers]),
        }
        if self.parsed.body.return_origins:
            answer["origins"] = answers[0].origins
        if self.parsed.body.verbose:
            answer["__verbose"] = self._verbose(answers[0])
        return answer | figures(answers[0].end)

    def _verbose(self, answer: Answer) -> Json:
        """Returns llama-server's `__verbose`: the prompt and the settings."""
        one = self.parsed.generates[0]
        timed = bool(self.parsed.body.timings_per_token)
        return {
            "prompt": answer.started.text if answer.started else "",
            "content": answer.text,
            "tokens_predicted": answer.end.usage.completion_tokens,
            "tokens_evaluated": answer.end.usage.prompt_tokens,
            "truncated": answer.end.full,
            "generation_settings": of_request(
                one, stream=self.parsed.stream, timings_per_token=timed
            ),
        }

    def _choice(self, index: int, answer: Answer) -> Json:
        wanted = self.parsed.generates[index].logprobs is not None
        logprobs = self.kind.logprobs(answer.logprobs, TextOffset()) if wanted else None
        ending = {"logprobs": logprobs, "finish_reason": reason(answer.end)}
        return {"index": index} | self.kind.content(answer) | ending

    def _chunk(self, choice: int, fields: Json, reason_: str | None = None) -> Json:
        choices = [{"index": choice} | fields | {"finish_reason": reason_}]
        return self._head(self.kind.chunk) | {"choices": choices}

    def _head(self, object_: str) -> Json:
        return {
            "id": self.parsed.generates[0].id,
            "object": object_,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }


def reason(finished: Finished) -> str:
    """Returns OpenAI's finish reason."""
    if finished.reason == "length":
        return "length"
    return "tool_calls" if finished.tool_calls else "stop"


def usage(ends: Sequence[Finished]) -> Json:
    """Returns OpenAI's token counts of all choices together."""
    counts = [end.usage for end in ends]
    predictions = [end.speculation.sources.get(PREDICTION, SourceCount()) for end in ends]
    total = Usage(
        sum(count.prompt_tokens for count in counts),
        sum(count.completion_tokens for count in counts),
        sum(count.cached_tokens for count in counts),
        sum(count.predicted_tokens for count in counts),
        sum(count.reasoning_tokens for count in counts),
    )
    return {
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "total_tokens": total.prompt_tokens + total.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": total.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": total.reasoning_tokens,
            "accepted_prediction_tokens": total.predicted_tokens,
            "rejected_prediction_tokens": sum(one.drafted - one.accepted for one in predictions),
        },
    }


def figures(finished: Finished) -> Json:
    """Returns the timings of the run and the report of speculation."""
    report = msgspec.to_builtins(finished.speculation) | {"seed": finished.seed}
    return {"timings": msgspec.to_builtins(finished.timings), "speculation": report}


def _message(answer: Answer) -> Json:
    """Returns a chat's whole answer; content is null for tool calls without text."""
    content = answer.text or (None if answer.calls else "")
    message: Json = {"role": "assistant", "content": content}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    return {"message": message}


def _call_part(part: CallDelta) -> Json:
    """Returns a part of a call: the name begins a call, and is never sent twice."""
    if not part.name:
        return {"index": part.index, "function": {"arguments": part.arguments}}
    function = {"name": part.name, "arguments": part.arguments}
    return {"index": part.index, "id": part.id, "type": "function", "function": function}


def _chat_logprobs(tokens: Sequence[TokenLogprob], _place: TextOffset) -> Json:
    return {"content": [token_logprob(token) for token in tokens], "refusal": None}


def token_logprob(token: TokenLogprob) -> Json:
    """Returns one token of an answer, with the alternatives to it."""
    return {**_alternative(token.chosen), "top_logprobs": [*map(_alternative, token.top)]}


def _alternative(one: Alternative) -> Json:
    return {
        "token": _shown(one),
        "logprob": one.logprob,
        "bytes": list(one.piece),
    }


def _text_logprobs(tokens: Sequence[TokenLogprob], place: TextOffset) -> Json:
    """Returns the legacy shape: parallel lists; offsets are characters of the text.

    A token that continues a character has the character's offset. The logprob of a first token is
    null: it is NaN, which JSON does not have.
    """
    shown = [_shown(token.chosen) for token in tokens]
    offsets = [place.of(token.chosen.piece) for token in tokens]
    return {
        "tokens": shown,
        "token_logprobs": [token.chosen.logprob for token in tokens],
        "top_logprobs": [
            None
            if math.isnan(token.chosen.logprob)
            else {_shown(one): one.logprob for one in reversed(token.top)}
            for token in tokens
        ],
        "text_offset": offsets,
    }


def _shown(one: Alternative) -> str:
    return one.piece.decode("utf-8", "replace")


CHAT_KIND = Kind(
    whole="chat.completion",
    chunk="chat.completion.chunk",
    opening={"delta": {"role": "assistant", "content": ""}},
    closing={"delta": {}},
    piece=lambda text: {"delta": {"content": text}},
    content=_message,
    logprobs=_chat_logprobs,
)
COMPLETION_KIND = Kind(
    whole="text_completion",
    chunk="text_completion",
    opening=None,
    closing={"text": ""},
    piece=lambda text: {"text": text},
    content=lambda answer: {"text": answer.text},
    logprobs=_text_logprobs,
)
# Mistral's kind: its clients read a content from every delta, the last one too.
FIM_KIND = replace(CHAT_KIND, closing={"delta": {"content": ""}})
ChatReply = partial(OpenAIReply, CHAT_KIND)
CompletionReply = partial(OpenAIReply, COMPLETION_KIND)
FimReply = partial(OpenAIReply, FIM_KIND)
