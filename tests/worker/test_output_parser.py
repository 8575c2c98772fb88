"""The thought part of an answer is measured in characters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.text.formats import Offer, Reader, reading
from localspec.text.formats.table import GENERIC
from localspec.text.stream import Part
from localspec.worker.output_parser import OutputParser

ANSWER = "<think>" + "a" * 30 + "</think>" + "b" * 62


def said(parts: list[str]) -> OutputParser:
    """An answer in these parts."""
    reader = Reader(lambda tape: reading(tape, GENERIC, Offer(thinks=True)))
    found = OutputParser("r", reader, lambda: "call", {})
    for place, part in enumerate(parts):
        found.delta(Part(part, [1], [(len(part), "target")]), [], ended=place == len(parts) - 1)
    return found


@given(st.lists(st.integers(0, len(ANSWER)), max_size=6))
def test_any_cut_has_the_same_share_of_thoughts(cuts: list[int]) -> None:
    """Marks are no thoughts."""
    places = sorted({0, *cuts, len(ANSWER)})
    parts = [ANSWER[a:b] for a, b in pairwise(places)]
    share = said(parts).thought_share
    assert share == pytest.approx(30 / len(ANSWER), abs=0.01)


def test_an_answer_without_thoughts_has_no_share_of_them() -> None:
    """With a parser or none, with text or none."""
    assert said(["hello"]).thought_share == 0
    assert OutputParser("r", None, lambda: "call", {}).thought_share == 0
