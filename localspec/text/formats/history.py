"""Converts a conversation's messages into the form that a template reads.

Clients write a history in any form their API allows, and templates read less than that: some know
no system message, some no tool result, some only one call in a message. Parts that a template does
not read, by `recognise.Reads`, are moved into those that it does, so that nothing is lost.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from localspec.text.formats import writing
from localspec.text.formats.calls import meant
from localspec.text.formats.offer import Json
from localspec.text.formats.parts import Format
from localspec.text.formats.recognise import Reads
from localspec.wire.messages import Message

_ID_LETTERS = 9
_NOTHING = "…"
"""The content of an inserted message; templates refuse an empty one."""


def prepared(messages: Sequence[Message], form: Format, reads: Reads) -> list[Message]:
    """The conversation in the template's form."""
    turns = [*_paired(_asked(map(tidied, messages), reads))]
    turns = [one for turn in _answered(turns, reads) for one in _apart(turn, reads)]
    turns = [_spoken(turn, form, reads) for turn in turns]
    turns = _led(turns, reads)
    if reads.alternates:
        turns = _alternating(_merged(turns))
    return [_shaped(turn, reads) for turn in turns]


def with_system_text(messages: Sequence[Message], more: str) -> list[Message]:
    """The conversation with `more` added to its system message."""
    if messages and messages[0].role == "system":
        first = messages[0]
        text = f"{first.content}\n\n{more}" if more and first.content else first.content or more
        return [msgspec.structs.replace(first, content=text), *messages[1:]]
    return [Message("system", more), *messages]


def tidied(message: Message) -> Message:
    """A message without empty fields; calls complete, with their arguments as objects."""
    extra = {key: value for key, value in message.extra.items() if value not in (None, "", [])}
    made = extra.pop("tool_calls", None)
    if isinstance(made, list):
        calls = [one for index, call in enumerate(made) if (one := _call(call, index))]
        if calls:
            extra["tool_calls"] = calls
    return Message(message.role, message.content or "", extra)


def _call(call: Any, index: int) -> Json | None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    given = function.get("arguments")
    arguments = meant(given)
    if arguments is None:  # not JSON: it is passed on unchanged
        arguments = {"arguments": given}
    known = {key: value for key, value in call.items() if value is not None}
    id_ = str(known.get("id") or f"call_{index}")
    return {
        **known,
        "id": id_,
        "type": "function",
        "function": {**function, "arguments": arguments},
    }


def _asked(messages: Iterable[Message], reads: Reads) -> list[Message]:
    """The conversation with a user in it; results that answer no call become text.

    Clients that shorten a history cut off calls whose results they keep; templates refuse such
    results, or leave them out. Some clients send only a system message, which not every template
    shows: it becomes a user's message.
    """
    turns: list[Message] = []
    for turn in messages:
        orphan = turn.role == "tool" and not (
            turns and (turns[-1].role == "tool" or turns[-1].extra.get("tool_calls"))
        )
        said = turn.role != "assistant" or turn.content or turn.extra.get("tool_calls")
        if orphan:
            turns.append(_result_as_text(turn))
        else:
            turns.append(turn if said or reads.empty else Message(turn.role, _NOTHING, turn.extra))
    if turns and not reads.system_alone and all(turn.role == "system" for turn in turns):
        turns[-1] = msgspec.structs.replace(turns[-1], role="user")
    return turns


def _result_as_text(turn: Message) -> Message:
    return Message("user", f"<tool_response>\n{turn.content}\n</tool_response>")


class _Waiting:
    """The calls of one message without a result so far, in their order."""

    def __init__(self, calls: Sequence[Json] = ()) -> None:
        self._left = Counter(call["id"] for call in calls)
        names = {call["id"]: call["function"]["name"] for call in calls}
        self._all = deque(call["id"] for call in calls)
        self._of_name: dict[str, deque[str]] = {}
        for id_ in self._all:
            self._of_name.setdefault(names[id_], deque()).append(id_)

    def first(self, name: str | None) -> str | None:
        """The first one's id, of this function if there is one; None if no call waits."""
        for ids in (self._of_name.get(name or "", deque()), self._all):
            while ids and not self._left[ids[0]]:
                ids.popleft()
            if ids:
                return ids[0]
        return None

    def answer(self, id_: str) -> None:
        """Note a result."""
        if self._left[id_]:
            self._left[id_] -= 1


def _paired(messages: Iterable[Message]) -> Iterator[Message]:
    """Results with the id and the name of their call where these are missing."""
    names: dict[str, str] = {}
    waiting = _Waiting()
    for message in messages:
        if calls := message.extra.get("tool_calls", ()):
            waiting = _Waiting(calls)
            names |= {call["id"]: call["function"]["name"] for call in calls}
        if message.role != "tool":
            yield message
            continue
        extra = dict(message.extra)
        id_ = extra.get("tool_call_id") or waiting.first(extra.get("name"))
        if id_ is not None:
            extra["tool_call_id"] = id_
            waiting.answer(id_)
        if id_ in names:
            extra.setdefault("name", names[id_])
        yield Message("tool", message.content, extra)


def _answered(turns: Sequence[Message], reads: Reads) -> Iterator[Message]:
    """For templates with one call per message: each call, with its result right after it."""
    taken: set[int] = set()
    for index, turn in enumerate(turns):
        if index in taken:
            continue
        calls = turn.extra.get("tool_calls", ())
        if reads.several or not reads.calls or len(calls) < 2:  # noqa: PLR2004 - one is enough
            yield turn
            continue
        results = _results_behind(turns, index)
        for number, call in enumerate(calls):
            extra = {**turn.extra, "tool_calls": [call]}
            if number:
                extra.pop(reads.thought or "reasoning_content", None)
                extra.pop("reasoning_content", None)
            yield Message("assistant", "" if number else turn.content, extra)
            for place in results.pop(call["id"], ()):
                taken.add(place)
                yield turns[place]


def _results_behind(turns: Sequence[Message], index: int) -> dict[str | None, list[int]]:
    """The places of the results right behind a message, by the id of their call."""
    places: dict[str | None, list[int]] = {}
    for place in range(index + 1, len(turns)):
        if turns[place].role != "tool":
            break
        places.setdefault(turns[place].extra.get("tool_call_id"), []).append(place)
    return places


def _apart(turn: Message, reads: Reads) -> list[Message]:
    """Text and calls in separate messages, where a template shows only one of them.

    Where it shows either thoughts or text beside a call, both become one text.
    """
    if not (turn.extra.get("tool_calls") and turn.content and reads.calls):
        return [turn]
    thought = turn.extra.get("reasoning_content")
    if reads.one_text and thought:
        return [
            msgspec.structs.replace(
                turn,
                content=f"{thought}\n\n{turn.content}",
                extra={
                    key: value for key, value in turn.extra.items() if key != "reasoning_content"
                },
            )
        ]
    if reads.beside:
        return [turn]
    calls = {"tool_calls": turn.extra["tool_calls"]}
    rest = {key: value for key, value in turn.extra.items() if key != "tool_calls"}
    return [Message("assistant", turn.content, rest), Message("assistant", "", calls)]


def _spoken(turn: Message, form: Format, reads: Reads) -> Message:
    """Calls and results written as text, where the template has no place for them."""
    if turn.role == "tool" and not reads.results:
        return _result_as_text(turn)
    calls = turn.extra.get("tool_calls")
    if not calls or reads.calls:
        return turn
    made = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    text = "\n".join([*([turn.content] if turn.content else []), writing.calls(form, made)])
    extra = {key: value for key, value in turn.extra.items() if key != "tool_calls"}
    return Message(turn.role, text, extra)


def _led(turns: Sequence[Message], reads: Reads) -> list[Message]:
    """System messages moved to the beginning, or into the first user message."""
    leading = [turn for turn in turns if turn.role == "system"]
    first = bool(turns) and turns[0].role == "system"
    if not leading or (reads.system and reads.late_system):
        return [*turns]
    if reads.system and first and len(leading) == 1:
        return [*turns]
    text = "\n\n".join(turn.content for turn in leading if turn.content)
    rest = [turn for turn in turns if turn.role != "system"]
    if reads.system:
        return [Message("system", text), *rest]
    place = next((index for index, turn in enumerate(rest) if turn.role == "user"), None)
    if place is None:
        return [Message("user", text), *rest]
    first_user = rest[place]
    rest[place] = msgspec.structs.replace(
        first_user, content=f"{text}\n\n{first_user.content}".strip()
    )
    return rest


def _merged(turns: Sequence[Message]) -> list[Message]:
    """The conversation without two messages of one role in a row, except results and calls."""
    runs: list[list[Message]] = []
    for turn in turns:
        if runs and _speaks(turn) and _speaks(runs[-1][-1]) and turn.role == runs[-1][-1].role:
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return [_joined(run) if len(run) > 1 else run[0] for run in runs]


def _joined(run: Sequence[Message]) -> Message:
    text = "\n\n".join(turn.content for turn in run if turn.content)
    extra = {key: value for turn in run for key, value in turn.extra.items()}
    return Message(run[0].role, text, extra)


def _speaks(turn: Message) -> bool:
    """Whether it is a message of a user or of the assistant, neither a result nor calls."""
    return turn.role in ("user", "assistant") and "tool_calls" not in turn.extra


def _alternating(turns: Sequence[Message]) -> list[Message]:
    """The conversation in which users and the assistant alternate; calls and results do not count.

    It begins with a user's message. If two users' messages stand around a call, an assistant's is
    inserted between them. If several of the assistant's do, they are moved into the last.
    """
    words = [place for place, turn in enumerate(turns) if _speaks(turn)]
    moved: dict[int, Message | None] = {}
    for role, run in groupby(words, lambda place: turns[place].role):
        *earlier, last = run
        if role == "assistant" and earlier:
            moved |= dict.fromkeys(earlier)
            text = "\n\n".join(turns[place].content for place in (*earlier, last))
            moved[last] = Message(role, text, turns[last].extra)
    found: list[Message] = []
    before = ""
    for place, turn in enumerate(turns):
        if _speaks(turn):
            if turn.role == "user" == before:
                found.append(Message("assistant", _NOTHING))
            if turn.role == "assistant" and not before:
                found.append(Message("user", _NOTHING))
            before = turn.role
        if (one := moved.get(place, turn)) is not None:
            found.append(one)
    return found


def _shaped(turn: Message, reads: Reads) -> Message:
    """Arguments, ids, thoughts and contents in the template's form."""
    extra = dict(turn.extra)
    if thought := extra.pop("reasoning_content", None):
        extra[reads.thought or "reasoning_content"] = thought
    if reads.short_ids and isinstance(extra.get("tool_call_id"), str):
        extra["tool_call_id"] = _nine(extra["tool_call_id"])
    if calls := extra.get("tool_calls"):
        extra["tool_calls"] = [_shaped_call(call, reads) for call in calls]
    content: Any = turn.content
    if reads.null and calls and not content:
        content = None
    elif turn.role in reads.parts:
        content = [{"type": "text", "text": turn.content}]
    return Message(turn.role, content, extra)


def _shaped_call(call: Json, reads: Reads) -> Json:
    function = call["function"]
    if not reads.objects:
        text = json.dumps(function["arguments"], ensure_ascii=False)
        function = {**function, "arguments": text}
    id_ = _nine(call["id"]) if reads.short_ids else call["id"]
    return {**call, "id": id_, "function": function}


def _nine(given: str) -> str:
    """The id if it is nine letters and digits, else nine digits made of it."""
    fits = len(given) == _ID_LETTERS and given.isascii() and given.isalnum()
    return given if fits else f"{zlib.crc32(given.encode()) % 10**_ID_LETTERS:0{_ID_LETTERS}d}"
