"""A paste without marks is one text: it is not sent line by line, and it does not take minutes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from scripted import Peer, answer
from typist import ENTER, Typist

from localspec.cli import pasting

LONG = "".join(f"line {number} of what somebody had in the clipboard\r" for number in range(16))


def keys(pieces: list[tuple[float, str]]) -> list[KeyPress]:
    """The keys that the pieces are read as, each sent so many seconds behind the one before."""
    now = 0.0
    with create_pipe_input() as pipe:
        pasting.notice(pipe, lambda: now)
        found = []
        for later, piece in pieces:
            now += later
            pipe.send_text(piece)
            found += pipe.read_keys()
    return found


@given(st.lists(st.integers(1, 900), max_size=5))
def test_a_paste_is_one_text_however_the_terminal_cuts_it(cuts: list[int]) -> None:
    """Its Enters are part of it, also in a piece that is short."""
    places = [0, *sorted({201 + cut for cut in cuts if 201 + cut < len(LONG)}), len(LONG)]
    pieces = [(0.01, LONG[a:b]) for a, b in pairwise(places)]
    found = keys(pieces)
    assert {one.key for one in found} == {Keys.BracketedPaste}
    assert "".join(one.data for one in found) == LONG


@pytest.mark.parametrize("typed", ["hello\r", "a" * 200, "\x1b[A" * 100, "\x03", LONG + "\x03"])
def test_keys_stay_keys(typed: str) -> None:
    """Those of a short piece, and of one that has others than text in it."""
    assert not {one.key for one in keys([(0.0, typed)])} & {Keys.BracketedPaste}


@given(st.integers(1, 900))
def test_a_marked_paste_ends_by_its_mark(cut: int) -> None:
    """However long its pieces are, and however late they come."""
    begun, rest = f"\x1b[200~{LONG[:cut]}", f"{LONG[cut:]}\x1b[201~"
    (found,) = keys([(0.0, begun), (5.0, rest[:300]), (5.0, rest[300:])])
    assert (found.key, found.data) == (Keys.BracketedPaste, LONG)


def test_an_enter_behind_a_paste_is_an_enter() -> None:
    """Once the paste is over."""
    *_, last = keys([(0.0, LONG), (1.0, "\r")])
    assert last.key == Keys.ControlM


def test_it_is_sent_as_one_question(peer: Peer, talk: Typist) -> None:
    """By an Enter of its own; the lines of it are no questions."""
    pasted = (LONG * 9)[: 4 * 1024]  # whole pieces, as a pipe hands them over
    peer.streams = [answer("ok")]
    talk.type(pasted + ENTER)
    assert peer.question["messages"] == [{"role": "user", "content": pasted.replace("\r", "\n")}]
