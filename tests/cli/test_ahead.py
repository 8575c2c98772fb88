"""Lines typed while an answer is drawn: keys in a real terminal, answers of a scripted peer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_terminal import FakeTerminal
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from scripted import PATIENCE_SECONDS, Peer, answer, chunk
from terminal import Terminal
from typist import PASTE, PASTED

from localspec.cli.screen import Screen, clipped

PROMPT = ">>>"
STOP, LEFT, END_OF_TEXT = "\x03", "\x1b[D", "\x05"


@contextmanager
def opened(peer: Peer) -> Iterator[Terminal]:
    """A chat with `peer` in a terminal, at its first prompt."""
    found = Terminal(os.environ | {"PROMPT_TOOLKIT_NO_CPR": "1", "LOCALSPEC_HOST": peer.host})
    found.until(PROMPT)
    yield found
    found.leave()


@pytest.fixture
def terminal(peer: Peer) -> Iterator[Terminal]:
    """The same for a test that begins with it."""
    with opened(peer) as found:
        yield found


def asking(terminal: Terminal, peer: Peer) -> None:
    """Ask something that is answered by "one" and then by nothing more, until it is stopped."""
    terminal.type("first\r")
    assert peer.held.wait(PATIENCE_SECONDS)
    terminal.until("one")


def test_a_draft_that_was_left_out_is_told_above_what_is_typed(peer: Peer) -> None:
    """Once, when the model is there; the line that is typed stays whole."""
    model = {"name": "tiny", "draft_path": "/d.gguf", "speculation_off": "The draft is larger."}
    loading = model | {"loading": {"stage": "target", "fraction": 0.5}}
    peer.statuses = [{"models": [loading]}] * 3
    peer.status["models"] = [model]
    peer.streams = [answer("two")]
    with opened(peer) as terminal:
        terminal.type("hel")
        terminal.until(r"no draft: The draft is larger\.")
        terminal.until(">>> hel")
        terminal.type("lo\r")
        terminal.until("two")
        assert peer.question["messages"][-1]["content"] == "hello"


def test_what_is_typed_stands_below_the_answer_and_in_the_next_prompt(
    peer: Peer, terminal: Terminal
) -> None:
    """Typed text is visible before any word comes; Ctrl-C stops the answer and loses nothing."""
    peer.streams = [[chunk("one")], answer("two")]
    asking(terminal, peer)
    terminal.type("secnd")
    terminal.until("secnd")
    terminal.type(f"{LEFT}{LEFT}o{END_OF_TEXT}")
    terminal.until("second")
    terminal.type(STOP)
    terminal.until("stopped")
    terminal.until("second")
    assert peer.left.wait(PATIENCE_SECONDS)
    terminal.type("\r")
    terminal.until("two")
    assert peer.question["messages"][-1]["content"] == "second"


class Paused(list[bytes]):
    """An answer whose first piece comes at once, and the others when the test releases them."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(pieces)
        self.more = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield self[0]
        assert self.more.wait(PATIENCE_SECONDS)
        yield from self[1:]


def test_enter_queues_lines_and_what_is_begun_waits_in_the_prompt(
    peer: Peer, terminal: Terminal
) -> None:
    """They are asked in order when the answer is over; the begun one, when Enter is typed."""
    first = Paused(answer("one", " whole"))
    peer.streams = [first, answer("two"), answer("three"), answer("four")]
    terminal.type("first\r")
    terminal.until("one")
    terminal.type("second\rthird\rfourth")
    terminal.until("fourth")
    first.more.set()
    for word in ("whole", "two", "three", "fourth"):
        terminal.until(word)
    assert [turn["content"] for turn in peer.question["messages"][::2]] == [
        "first", "second", "third",
    ]  # fmt: skip
    terminal.type("\r")
    terminal.until("four\r")


def test_ctrl_c_takes_queued_lines_back(peer: Peer, terminal: Terminal) -> None:
    """After Ctrl-C queued lines return to the prompt: nothing is sent by itself."""
    peer.streams = [[chunk("one")], answer("two")]
    asking(terminal, peer)
    terminal.type("second\rthird")
    terminal.until("third")
    terminal.type(STOP)
    terminal.until("stopped(?s:.*)second(?s:.*)third")
    assert len([asked for asked in peer.asked if "messages" in asked.body]) == 1
    terminal.type("\r")
    terminal.until("two")
    assert peer.question["messages"][-1]["content"] == "second\nthird"


def test_a_pasted_text_of_several_lines_waits_whole(peer: Peer, terminal: Terminal) -> None:
    """It is no Enter, and the row in which it stands is one."""
    first = Paused(answer("one"))
    peer.streams = [first, answer("two")]
    terminal.type("first\r")
    terminal.until("one")
    terminal.type(f"{PASTE}def f():\r    return 1{PASTED}")
    terminal.until("def f\\(\\):↵    return 1")
    first.more.set()
    terminal.until("return")
    terminal.type("\r")
    terminal.until("two")
    assert peer.question["messages"][-1]["content"] == "def f():\n    return 1"


@pytest.mark.parametrize("text", ["a line of it\n" * 8000, " ".join(map(str, range(20_000)))])
def test_a_long_pasted_text_is_one_question(peer: Peer, text: str) -> None:
    """A hundred thousand characters, at a prompt and beside an answer, in one line or in many."""
    first = Paused(answer("one"))
    peer.streams = [answer("zero"), first, answer("two")]
    with opened(peer) as terminal:
        pasted = f"{PASTE}{text}end".replace("\n", "\r") + PASTED
        terminal.type(f"{pasted}\r")
        terminal.until("zero")
        assert peer.question["messages"][-1]["content"] == f"{text}end"
        terminal.type("next\r")
        terminal.until("one")
        terminal.type(pasted)
        first.more.set()
        terminal.type("\r")
        terminal.until("two")
        assert peer.question["messages"][-1]["content"] == f"{text}end"


def test_typing_leaves_no_trace_in_the_answer() -> None:
    """Lines that are drawn, printed and typed among each other leave only what was printed."""
    terminal = FakeTerminal(30, 20)
    screen = Screen(Console(file=terminal, width=30, height=20, force_terminal=True))
    screen.draw([Text("open")])
    screen.type("what")
    assert terminal.screen() == ["open", ">>> what"]
    screen.print([Text("whole")])
    screen.draw([Text("open"), Text("more")])
    screen.type("what else", " is", ["waits"])
    assert terminal.screen() == ["whole", "open", "more", ">>> waits", ">>> what else is"]
    screen.print([Text("open, whole")])
    assert terminal.screen() == ["whole", "open, whole", ">>> waits", ">>> what else is"]
    screen.type("")
    assert terminal.screen() == ["whole", "open, whole"]


@settings(max_examples=40)
@given(st.text(), st.text(), st.integers(1, 40))
def test_the_typed_row_fits_and_shows_what_is_at_the_cursor(
    before: str, after: str, room: int
) -> None:
    """One row, whatever was typed."""
    left, right = clipped(before, after, room)
    assert cell_len(left) + cell_len(right) <= room
    assert "\n" not in left + right
    if (before + after).isascii() and (before + after).isprintable():
        assert before.endswith(left)
        assert after.startswith(right)
        assert len(left) == min(len(before), room)
