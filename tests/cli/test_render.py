"""How answers look while they grow: the law of the Markdown sink, and what may reach a terminal."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import pytest
from fake_terminal import FakeTerminal
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from localspec import drafters
from localspec.cli.live import MarkdownSink
from localspec.cli.origins import OriginSink, origin_style
from localspec.cli.render import Notice, PlainSink, printable
from localspec.cli.screen import Screen
from localspec.cli.theme import theme
from localspec.client import End, Piece

DOCUMENT = """\
Title
=====

A paragraph with `code`
that goes on, and *ends*.

```python
def f(x):

    return x  # a blank line above

# not a title
```
1. first

   its paragraph

2. second
   - nested
3. third

> quoted
continued

| a | b |
|---|---|
| 1 | 2 |

    indented code

- - -
Last words without an end"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def shown(pieces: list[str]) -> list[str]:
    """The lines on the screen after an answer in `pieces`, blank ones left out."""
    console = Console(file=io.StringIO(), width=60, force_terminal=False, highlight=False)
    sink = MarkdownSink(Screen(console))
    for piece in pieces:
        sink.write(Piece(piece))
    sink.close(End("stop"))
    return lines(console)


def lines(console: Console) -> list[str]:
    """The printed lines, without blank lines and padding."""
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def cut(text: str, places: list[int]) -> list[str]:
    """`text` in pieces."""
    edges = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(st.lists(st.integers(0, len(DOCUMENT)), max_size=40))
@settings(deadline=None, max_examples=40)
def test_an_answer_in_pieces_ends_as_the_whole_text_would(places: list[int]) -> None:
    """However tokens cut the text, every block is printed once, in order, as one parse has it."""
    assert shown(cut(DOCUMENT, places)) == shown([DOCUMENT])


@given(st.text(alphabet="ab `*#>-1.\n|\t", max_size=200), st.lists(st.integers(0, 200)))
@settings(deadline=None, max_examples=100)
def test_no_text_is_lost_or_doubled(text: str, places: list[int]) -> None:
    """Letters on the screen are the letters of the answer, whatever half-written Markdown it is."""
    places = [min(place, len(text)) for place in places]
    letters = [c for line in shown(cut(text, places)) for c in line if c in "ab"]
    expected = [c for line in shown([text]) for c in line if c in "ab"]
    assert letters == expected


def test_only_what_is_open_is_redrawn_and_never_more_than_the_screen() -> None:
    """Finished text is never written again; of a long paragraph the last lines are shown."""
    terminal = FakeTerminal(60, 10)
    console = Console(file=terminal, width=60, height=10, force_terminal=True, highlight=False)
    seconds = [0.0]
    sink = MarkdownSink(Screen(console), clock=lambda: seconds[0], processor=lambda: 0.0)
    sink.write(Piece("Finished block.\n\n- item 0\n- item 1\n\nwords"))
    for number in range(1, 200):
        start, seconds[0] = terminal.tell(), number
        sink.write(Piece(f" and {number}"))
        frame = terminal.getvalue()[start:]
        assert "Finished" not in frame
        assert "item" not in frame
        assert terminal.screen()[-1].endswith(str(number))
    sink.close(None)
    text = " ".join(terminal.lines())
    assert [text.count(f" {number} ") for number in (3, 100, 198)] == [1, 1, 1]


@pytest.mark.parametrize(("busy", "pause"), [(1.0, 25.0), (0.0, 3.0)])
def test_drawing_takes_a_small_share_of_the_time(busy: float, pause: float) -> None:
    """A drawing that took a second is not followed by another for 25; nothing is lost by it.

    Where the second went into waiting for a slow terminal and not into the processor: for 3.
    """
    screen = Terminal()
    console = Console(file=screen, width=60, force_terminal=True, highlight=False)
    seconds = iter([0.0, 0.0, 0.0, 1.0, pause - 0.1, pause, pause, pause])
    processor = iter([0.0, busy, busy, busy])
    sink = MarkdownSink(
        Screen(console), clock=lambda: next(seconds), processor=lambda: next(processor)
    )
    frames = []
    for word in ("one", "two", "three"):
        start = screen.tell()
        sink.write(Piece(f"{word} "))
        frames.append("".join(w for w in ("one", "two", "three") if w in screen.getvalue()[start:]))
    assert frames == ["one", "", "onetwothree"]
    sink.close(None)


@given(
    st.lists(st.integers(0, len(DOCUMENT)), max_size=40),
    st.lists(st.sampled_from([30, 60, 61, 100]), min_size=40, max_size=40),
)
@settings(deadline=None, max_examples=20)
def test_a_terminal_that_is_resized_in_mid_answer_stays_clean(
    places: list[int], widths: list[int]
) -> None:
    """No old frame stays and no line is lost, whatever the window did between two drawings."""
    terminal = FakeTerminal(60, 50)
    console = Console(file=terminal, width=60, height=50, force_terminal=True, highlight=False)
    seconds = [0.0]
    look, idle = theme("none"), lambda: 0.0
    sink = MarkdownSink(Screen(console), look, clock=lambda: seconds[0], processor=idle)
    for piece, width in zip(cut(DOCUMENT, places), [*widths, 60], strict=False):
        terminal.width = console.width = width
        seconds[0] += 1
        sink.write(Piece(piece))
    sink.close(None)
    assert words(" ".join(terminal.lines())) == words(" ".join(shown([DOCUMENT])))


def words(text: str) -> list[str]:
    """Words and numbers, without what lines and columns do to the rest."""
    return re.findall(r"\w+", text)


def test_a_pipe_gets_bytes_as_they_are_and_a_terminal_gets_text() -> None:
    """Escape sequences stop at the terminal, newlines and tabs do not."""
    evil = "a\x1b[2J\tb\x9b\x07\n"
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        sink = PlainSink(stream)
        sink.write(Piece(evil))
        sink.close(None)
    assert pipe.getvalue() == evil
    assert terminal.getvalue() == printable(evil) == "a[2J\tb\n"


def test_each_source_of_drafts_has_a_colour_of_its_own() -> None:
    """Also one that is newer than this program; the target's own tokens are plain."""
    sources = [*drafters.kinds(), "prediction", "new"]
    colours = {origin_style(each) for each in sources}
    assert len(colours) == len(sources)
    assert not colours & {"blue", "white", "black", "red"}  # cannot be read, or are trouble
    assert origin_style("target") == ""


def test_origins_that_do_not_cover_the_text_lose_nothing() -> None:
    """A newer daemon may say less than we expect; the text comes first."""
    console = Console(file=io.StringIO(), width=60)
    sink = OriginSink(Screen(console))
    sink.write(Piece("abc", ((1, "lookup"),)))
    sink.write(Piece("d", ((0, "model"), (9, "target"))))
    sink.close(None)
    assert lines(console)[0] == "abcd"


def test_a_notice_is_replaced_on_a_terminal_and_gone_before_the_answer() -> None:
    """The last thing written is the code that clears the line."""
    terminal = Terminal()
    notice = Notice(terminal)
    notice.show("loading target 1%")
    notice.show("loading target 2%")
    notice.clear()
    assert terminal.getvalue().endswith("loading target 2%\r\x1b[K")


def test_a_notice_is_never_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second row of it could not be taken back."""
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    Notice(terminal).show("a notice that is longer than the terminal")
    assert terminal.getvalue() == "\r\x1b[Ka notice that is lo"


def test_lines_of_code_with_wide_characters_and_tabs_are_replaced_whole() -> None:
    """A character of two columns that does not fit goes to the next row; a tab is many columns."""
    terminal = FakeTerminal(21, 40)
    console = Console(file=terminal, width=21, height=40, force_terminal=True, highlight=False)
    screen = Screen(console)
    for text in ("漢" * 31, "\tx" * 9, "é" * 43, "漢a" * 14):
        screen.draw([Text("above"), Text(text)])
        assert len(terminal.lines()) == 2
    screen.print([Text("end")])
    assert terminal.lines() == ["end"]
