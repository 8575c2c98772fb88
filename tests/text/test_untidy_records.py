"""Records of untidy outputs of the families: in any pieces, a client gets the recorded result.

Calls that differ from what the templates show, marks that are only spoken of, and answers that are
cut. Every sentence, function and argument is our own; only the syntax is the families'.

`strangers.jsonl` and `outsiders.jsonl`: records written from the families' documentation before any
of them was read; `outsiders.jsonl` also has families without a template in llama.cpp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import templates
from text.test_format_records import Record, decoded, opened, read, wanted

HERE = Path(__file__).parent / "untidy"
PLAIN: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "ends": "stop"}


def records(name: str, tools: str) -> list[dict[str, Any]]:
    """The records of a file, each with the functions offered."""
    offered = json.loads((HERE / tools).read_text(encoding="utf-8"))
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    found = [PLAIN | {"tools": True} | json.loads(line) for line in lines]
    return [one | {"tools": offered if one["tools"] else []} for one in found]


RECORDS = records("records.jsonl", "tools.json")
STRANGERS = [
    *records("strangers.jsonl", "strangers-tools.json"),
    *records("outsiders.jsonl", "outsiders-tools.json"),
]


def known(one: Record) -> Record:
    """The record with its template as `opened` wants it."""
    stand_in = (templates.STAND_INS / one["template"]).exists()
    family = one["template"].removesuffix(".jinja")
    return {**one, "template": None, "family": family} if stand_in else one


@pytest.mark.parametrize("one", RECORDS, ids=[one["id"] for one in RECORDS])
def test_an_untidy_record_is_read_whole_and_in_any_pieces(one: Record) -> None:
    """By single bytes, and in pieces that cut characters and marks."""
    dialogue, offer = opened(known(one))
    cut, data = one["ends"] == "length", one["emitted"].encode()
    for sizes in ([len(data)], [1], [1, 2, 3], [7], [20]):
        reader = dialogue.reader(offer)
        assert read(reader, decoded(data, sizes, len(data)), cut=cut) == wanted(one), sizes


@pytest.mark.parametrize("one", STRANGERS, ids=[one["id"] for one in STRANGERS])
def test_a_strangers_record_is_read_and_cut_it_says_no_more(one: Record) -> None:
    """In any pieces; and cut anywhere it has no partial call, and no piece of a mark as words."""
    dialogue, offer = opened(known(one))
    cut, text, whole = one["ends"] == "length", one["emitted"], wanted(one)
    data = text.encode()
    for sizes in ([len(data)], [1], [1, 2, 3], [7], [20]):
        reader = dialogue.reader(offer)
        assert read(reader, decoded(data, sizes, len(data)), cut=cut) == whole, sizes
    for end in range(len(text)):
        said = read(dialogue.reader(offer), [text[:end]], cut=True)
        assert said.calls == whole.calls[: len(said.calls)], text[:end]
        assert whole.content.startswith(said.content), text[:end]
        assert whole.reasoning.startswith(said.reasoning), text[:end]
