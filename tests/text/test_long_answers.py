"""Answers that a client dictated: reading one takes time and memory in proportion to its length."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import SupportsIndex

import pytest
from text.test_formats import OFFER, calls, form, read, said

from localspec.text.formats import reading
from localspec.text.formats.tape import Tape

pytestmark = pytest.mark.timeout(60)
CALL = '<tool_call>{"name": "now", "arguments": {}}'


def test_what_is_left_after_a_call_is_looked_at_in_little_memory() -> None:
    """However many brackets follow it: without them it is the end of the answer."""
    text = CALL + "}" * 20_000
    tracemalloc.start()
    pieces = read(form("hermes"), [text])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (calls(pieces), said(pieces, "content")) == ([("now", {})], [])
    assert most < 200 * len(text)


@pytest.mark.parametrize("part", ['"{"k" "v", ', '"{"k": "v" "w", ', '"{"k": {"a" "v", '])
def test_quoted_objects_that_are_none_are_not_tried_without_end(part: str) -> None:
    """Each of them may begin an object that reaches to the end of the text."""
    text = CALL.replace("{}", '{"x": [' + part * 8000 + "]}") + "</tool_call>Done."
    assert "".join(said(read(form("hermes"), [text]), "content")).endswith("Done.")


@pytest.mark.parametrize("closing", ["</think>", ""])
@pytest.mark.parametrize("again", ["", "<think>"])
def test_calls_in_thoughts_are_read_twice_at_most(again: str, closing: str) -> None:
    """Once to see whether the thoughts are closed behind them, and once as what they are."""
    text = "<think>Well. " + f"{CALL}</tool_call>{again} so " * 2000 + closing
    pieces = read(form("hermes"), [text])
    assert len(calls(pieces)) == (0 if closing else 2000)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("hermes", '<tool_call>{"name": '),
        ("hermes", "<tool_call> "),
        ("llama3", '{"name":'),
        ("qwen3-coder", "<tool_call>\n<function=now>\n<parameter=a>\n2\n</par "),
    ],
)
def test_calls_without_an_end_are_not_looked_for_without_end(name: str, part: str) -> None:
    """Each of them might reach to the end of the answer."""
    text = part * (80_000 // len(part))
    pieces = read(form(name), [text])
    assert "".join(piece.raw for piece in pieces) == text


@pytest.mark.parametrize("words", ["It is ", "<think>It is "])
def test_a_call_behind_some_without_an_end_is_one(words: str) -> None:
    """Where text or thoughts speak of calls, or a large call was read before."""
    offer = replace(OFFER, thinking=False)
    large = CALL.replace("{}", '{"a": "' + "x" * 50_000 + '"}') + "</tool_call>\n"
    begun = '<tool_call>{"name": "no", "arguments": {'
    text = large + words + f"{begun} or " * 5 + "so.</think>\n\n" + CALL + "</tool_call>"
    assert [one for one, _ in calls(read(form("hermes"), [text], offer))] == ["now"] * 2


def test_blank_lines_in_a_value_are_looked_at_once() -> None:
    """In search of a next argument, where the mark that ends the value was forgotten."""
    head = "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome"
    tail = "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
    [(_, made)] = calls(read(form("qwen3-coder"), [head + "\n \n\n" + tail]))
    assert made == {"city": "Rome", "days": 2}
    lines = "\n" * 300_000
    [(_, made)] = calls(read(form("qwen3-coder"), [head + f"<parameter={lines}x\n" + tail]))
    assert made["days"] == 2


class Counted(str):
    """A text that counts the characters which are cut out of it."""

    __slots__ = ()
    cut = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = str.__getitem__(self, key)
        Counted.cut += len(found)
        return found

    def __add__(self, other: str) -> Counted:
        return Counted(str.__add__(self, other))


def test_blanks_that_come_one_by_one_are_looked_at_once() -> None:
    """They are held until words follow, as a mark may."""
    tape = Tape()
    tape.text = Counted("a")
    reader = reading(tape, form("hermes"), OFFER)
    Counted.cut = 0
    for _ in range(2000):
        next(reader)
        tape.text = Counted(tape.text + " ")
    assert Counted.cut < 300 * 2000
    tape.text, tape.ended = tape.text + "b", True
    assert [*reader] == []
    assert "".join(piece.raw for piece in tape.pieces) == "a" + " " * 2000 + "b"
