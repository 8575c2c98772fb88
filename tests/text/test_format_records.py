"""Records of model outputs: in any pieces, a client gets the recorded result."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest
import templates

from localspec.text.detokenize import Detokenizer
from localspec.text.dialogue import Dialogue, marks_of
from localspec.text.formats import Offer, Reader
from localspec.wire.messages import Message

RECORDS = templates.records()
record = pytest.mark.parametrize("one", RECORDS, ids=[one["id"] for one in RECORDS])
Record = Mapping[str, Any]


class Reply(NamedTuple):
    """The result for a client, without blanks at both ends of texts."""

    content: str
    reasoning: str
    calls: list[tuple[str, str]]


def opened(one: Record) -> tuple[Dialogue, Offer]:
    """The dialogue of a record's template, and what its prompt offers."""
    dialogue = templates.dialogue(templates.template_of(one))
    request = templates.chat(
        [Message("user", "Please help.")],
        one["tools"],
        template_kwargs=one.get("variables") or {},
        tool_choice=one.get("choice"),
        parallel_tool_calls=one.get("parallel", True),
    )
    return dialogue, dialogue.turn(request).offer


def read(reader: Reader | None, parts: Iterable[str], *, cut: bool) -> Reply:
    """The result of reading an answer in parts."""
    texts = list(parts)
    if reader is None:
        return Reply("".join(texts).strip(), "", [])
    pieces = [piece for text in texts for piece in reader.push(text)] + reader.finish(cut=cut)
    assert "".join(piece.raw for piece in pieces) == "".join(texts)
    said: dict[str, str] = {"content": "", "reasoning": ""}
    calls: list[tuple[str, str]] = []
    for kind, text, _ in pieces:
        if kind == "call":
            calls.append((text, ""))
        elif kind == "arguments":
            calls[-1] = (calls[-1][0], calls[-1][1] + text)
        elif kind in said:
            said[kind] += text
    exact = [(name, json.dumps(json.loads(text), sort_keys=True)) for name, text in calls]
    return Reply(said["content"].strip(), said["reasoning"].strip(), exact)


def wanted(one: Record) -> Reply:
    """The record's result."""
    calls = [(call["name"], json.dumps(call["arguments"], sort_keys=True)) for call in one["calls"]]
    return Reply(one["content"].strip(), one["reasoning"].strip(), calls)


def decoded(data: bytes, sizes: list[int], seed: int) -> list[str]:
    """The text of bytes that come in random pieces."""
    drawn, texts, place = random.Random(seed), Detokenizer(), 0  # noqa: S311 - no secret
    parts = []
    while place < len(data):
        size = drawn.choice(sizes)
        parts.append(texts.push(data[place : place + size]))
        place += size
    return parts


@record
def test_a_record_is_read_whole_and_in_any_pieces(one: Record) -> None:
    """By single bytes, and in pieces that cut characters and marks."""
    dialogue, offer = opened(one)
    cut, data = one["ends"] == "length", one["emitted"].encode()
    for sizes in ([len(data)], [1], [1, 2, 3], [7], [20]):
        reader = dialogue.reader(offer)
        assert read(reader, decoded(data, sizes, len(data)), cut=cut) == wanted(one), sizes


@record
@pytest.mark.parametrize("control", [True, False])
def test_a_record_is_read_by_the_tokens_of_a_vocabulary(one: Record, control: bool) -> None:
    """Each mark is one token, which prints nothing if it is a control token."""
    source = templates.template_of(one)
    known = templates.dialogue(source)
    marks = [mark for mark in marks_of(known.format) if re.match(r"[<\[\]｜]", mark)]  # noqa: RUF001
    numbers = {mark: index for index, mark in enumerate(marks)} if control else {}
    dialogue = templates.dialogue(source, control=tuple(numbers.items()))
    _, offer = opened(one)
    pattern = "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))
    tokens = re.findall(
        rf"{pattern}|\w{{1,5}}|(?s:.)" if marks else r"\w{1,5}|(?s:.)", one["emitted"]
    )
    parts = []
    for token in tokens:
        piece = b"" if token in numbers else token.encode()
        parts.append(dialogue.shown.get(numbers.get(token, -1), piece).decode())
    assert read(dialogue.reader(offer), parts, cut=one["ends"] == "length") == wanted(one)


@record
def test_an_answer_that_is_cut_says_no_more_than_the_whole(one: Record) -> None:
    """A cut answer has no partial call, and no piece of a mark in its text."""
    dialogue, offer = opened(one)
    text, whole = one["emitted"], wanted(one)
    for end in range(len(text)):
        said = read(dialogue.reader(offer), [text[:end]], cut=True)
        assert said.calls == whole.calls[: len(said.calls)], text[:end]
        assert whole.content.startswith(said.content), text[:end]
        assert whole.reasoning.startswith(said.reasoning), text[:end]
