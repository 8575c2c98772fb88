"""Blocks that grow long: what is left of them on the screen, and what one more piece costs.

`pytest -m terminal -s` says how much of a core drawing each of them takes.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from fake_terminal import FakeTerminal
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from localspec.cli import highlight
from localspec.cli.live import MarkdownSink
from localspec.cli.screen import Screen
from localspec.cli.theme import theme
from localspec.client import Piece

TOKENS = 4000
TOKENS_PER_SECOND = 20
CODE = "def f{n}(x):\n    '''What {n} is.'''\n    return x + {n}  # of {n}\n\n"
PAGE = "<p class='a'>{n} words, not code</p>\n"
LONG = {
    "paragraph": ("", "The *quick* brown **fox {n}** jumps over `the` 2 * 3 lazy do_gs and ", ""),
    "unclosed": ("**", "The quick brown fox {n} jumps over the lazy dog and 2*{n} ", ""),
    "lines": ("", "The quick brown fox {n} jumps\n", ""),
    "paragraphs": ("", "The quick brown **fox** {n} jumps over the lazy dog. It sits.\n\n", ""),
    "code": ("Here:\n\n```python\n", CODE, "```\nDone."),
    "text in code": ("```python\nPAGE = '''\n", PAGE, "'''\n```\n"),
    "code in a list": ("1. Do:\n\n   ```python\n", "   x[{n}] = 'word'  # {n}\n\n", "   ```\n"),
    "list": ("", "- item {n} with some words and `code`\n", ""),
    "list in a list": ("- top\n", "  - item {n} with some words and `code`\n", "\nDone.\n"),
    "table": ("| a | b |\n|---|--:|\n", "| cell {n} | value {n} |\n", "\nDone.\n"),
    "quote": ("", "> row {n} of a quote with words\n", "\nDone.\n"),
    "thinking": ("<think>", "so what may {n} be, and then ", "</think>\nDone."),
}
KINDS = pytest.mark.parametrize("kind", LONG)


class Seconds:
    """A clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The present time in seconds."""
        return self.now


def long(kind: str, characters: int) -> str:
    """A text of that kind."""
    before, repeated, after = LONG[kind]
    text = before
    number = 0
    while len(text) < characters:
        text += repeated.replace("{n}", str(number))
        number += 1
    return text + after


def pieces(text: str, count: int = TOKENS) -> Iterator[str]:
    """`text` in so many."""
    edges = [len(text) * number // count for number in range(count + 1)]
    return (text[start:end] for start, end in pairwise(edges))


def sink(terminal: FakeTerminal, clock: Any, processor: Any = lambda: 0.0) -> MarkdownSink:
    """A sink that draws on `terminal`, as often as the clock allows; it uses no processor time."""
    console = Console(
        file=terminal,
        width=terminal.width,
        height=terminal.height,
        force_terminal=True,
        highlight=False,
    )
    return MarkdownSink(Screen(console), clock=clock, processor=processor)


@KINDS
def test_a_long_block_in_pieces_ends_as_the_whole_text_would(kind: str) -> None:
    """The text printed above while it grew and the text printed at its end make up the whole."""
    text, clock = long(kind, 3000), Seconds()
    whole, grown = FakeTerminal(60, 30), FakeTerminal(60, 30)
    for terminal, parts in ((whole, [text]), (grown, pieces(text, 30))):
        drawing = sink(terminal, clock)
        for part in parts:
            clock.now += 1
            drawing.write(Piece(part))
        drawing.close(None)
    assert grown.lines() == whole.lines()


@KINDS
def test_the_end_of_a_long_block_is_on_the_screen_while_it_grows(kind: str) -> None:
    """The latest text is always on the screen."""
    clock, terminal = Seconds(), FakeTerminal(60, 30)
    drawing = sink(terminal, clock)
    for number in range(60):
        clock.now += 1
        before, repeated, _ = LONG[kind]
        drawing.write(Piece((before if not number else "") + repeated.replace("{n}", f"n{number}")))
        assert f"n{number}" in "".join(terminal.screen()).replace(" ", "")


@KINDS
def test_another_piece_costs_what_the_ones_before_did(kind: str) -> None:
    """Counted in calls of functions: a block that is three times as long is no more work."""
    clock = Seconds()
    drawing = sink(FakeTerminal(100, 40), clock)
    early, late = [], []
    for number, piece in enumerate(pieces(long(kind, 8000), 80)):
        clock.now += 1
        if number in range(20, 30):
            early.append(calls(drawing, piece))
        elif number in range(65, 75):
            late.append(calls(drawing, piece))
        else:
            drawing.write(Piece(piece))
    assert sum(late) < 1.3 * sum(early)


def calls(drawing: MarkdownSink, piece: str) -> int:
    """How many functions were called to draw one more piece."""
    counted = [0]

    def count(_frame: Any, event: str, _argument: Any) -> None:
        counted[0] += event in {"call", "c_call"}

    sys.setprofile(count)
    drawing.write(Piece(piece))
    sys.setprofile(None)
    return counted[0]


@given(
    st.lists(st.sampled_from(["x = 1\n", "'''\n", '"""\n', "def f():\n", "# a\n", "\n", "b(\n"])),
    st.sampled_from(["python", "javascript", "html", "c", "nosuch", ""]),
)
@settings(deadline=None, max_examples=100)
def test_no_more_than_the_rows_that_decide_colours_are_kept(rows: list[str], language: str) -> None:
    """They give the last rows of the code the colours that all of it gives them."""
    code, look = "".join(rows) + "end = 1\n", theme("dark")
    kept = highlight.recent(code, language)
    assert (
        highlight.highlighted(kept, language, look)[-10:]
        == (highlight.highlighted(code, language, look)[-len(kept.splitlines()) :][-10:])
    )


def test_a_text_inside_of_code_stays_a_text() -> None:
    """A string that began hundreds of rows above is known by the row on which it began."""
    code, look = "PAGE = '''\n" + PAGE * 300, theme("dark")
    kept = highlight.recent(code, "python")
    assert len(kept.splitlines()) < 30
    end = "'''\ndef f():\n"
    assert (
        highlight.highlighted(kept + end, "python", look)[-12:]
        == highlight.highlighted(code + end, "python", look)[-12:]
    )


@pytest.mark.terminal
def test_what_drawing_costs() -> None:
    """Each kind of block, 4,000 tokens of it at 20 a second in a window of 100 columns.

    How often the screen moves, and how long it does not, is said of the last thousand.
    """
    gc.freeze()  # a chat's process has not what a test's has
    said = [f"{'block':16} {'of a core':>9} {'longest':>9} {'moves':>8} {'longest gap':>12}"]
    for kind in LONG:
        terminal, clock = FakeTerminal(100, 40), Seconds()
        drawing = sink(terminal, clock, time.process_time)
        took, moved = [], []
        for number, piece in enumerate(pieces(long(kind, 4 * TOKENS))):
            clock.now += 1 / TOKENS_PER_SECOND
            position, began = terminal.tell(), time.process_time()
            drawing.write(Piece(piece))
            took.append(time.process_time() - began)
            moved += [number] if terminal.tell() != position else []
        share = sum(took) * TOKENS_PER_SECOND / TOKENS
        last = [number for number in moved if number >= TOKENS * 3 / 4]
        moves = len(last) * TOKENS_PER_SECOND / (TOKENS / 4)
        gap = max(after - before for before, after in pairwise(last)) / TOKENS_PER_SECOND
        said.append(
            f"{kind:16} {share:9.1%} {1e3 * max(took):6.1f} ms {moves:6.1f}/s {gap:10.2f} s"
        )
    gc.unfreeze()
    sys.stdout.write("\n" + "\n".join(said) + "\n")
