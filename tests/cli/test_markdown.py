"""Markdown on a terminal: every word of it is there, and code is as it was written."""

from __future__ import annotations

import re
import textwrap
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.cli import markdown
from localspec.cli.theme import theme

HABITS = st.sampled_from(
    [
        *("vector<int>", "<div>", "</p>", "<!-- note -->", "&lt;", "[a](b 'c')", "![d](e)"),
        *("<http://f.g>", "[h]: i", "__init__", "`code`", "```", "```py", "~~~", "    indented"),
        *("# ", "## ", "- ", "* ", "3. ", "7) ", "> ", "| a | b |", "|---|---|", "| 1 | 2 | 3 |"),
        *("|", "===", "---", "***", "**bold**", "*em*", r"\(x\)", r"\*", "word", "$x$", "[^1]"),
        *("supercalifragilistic" * 4, " ", "  ", "\n", "\n\n", "\t", "0", "é", "漢字", "\u2028"),
        *("<think>", "</think>", "- [ ] todo", "<details>"),
    ]
)


def drawn(text: str, width: int) -> list[str]:
    """The lines of an answer."""
    look = theme("dark")
    found = [
        line.plain
        for unit in markdown.units(text)
        for line in markdown.lines(unit.source, width, look)
    ]
    return [line for shown in found for line in shown.split("\n")]


@given(st.lists(HABITS, max_size=40).map("".join), st.sampled_from([20, 60, 160]))
@settings(max_examples=200)
def test_every_word_of_an_answer_is_visible(text: str, width: int) -> None:
    """No letter and no digit of the source is left out, at any width."""
    shown = Counter(re.sub(r"[\W_]", "", "".join(drawn(text, width))))
    said = Counter(re.sub(r"[\W_]", "", text))
    assert not said - shown


@pytest.mark.parametrize(
    "words",
    [
        "vector<int>",
        "<div class='x'>",
        "<think>",
        "[text](http://a.b)",
        "__init__",
        r"\(x^2\)",
        "&lt;",
    ],
)
def test_what_markdown_hides_elsewhere_is_shown_as_it_was_said(words: str) -> None:
    """In a sentence, in a list, in a table and in a heading."""
    for text in (f"Use {words} here", f"- a {words}", f"# {words}", f"|a|\n|-|\n|{words}|"):
        assert words in " ".join(drawn(text, 60)), text


def test_code_is_neither_padded_nor_wrapped_nor_set_in() -> None:
    """Code copied from the screen is the code of the answer, also below a list."""
    code = "def f(a):\n    return '" + "x" * 200 + "'\n\n\nprint(f(1))"
    for text in (
        f"```python\n{code}\n```",
        "1. Do:\n" + textwrap.indent(f"```python\n{code}\n```", "   "),
    ):
        lines = drawn(text, 60)
        assert "\n".join(lines[lines.index("def f(a):") :]) == code


def test_a_table_folds_its_cells() -> None:
    """At 60 columns no letter of a long cell is cut off, and no line is longer."""
    long = "a cell with many words in it and averyveryveryverylongwordthatfitsnowhere"
    lines = drawn(f"| one | two |\n|---|---|\n| {long} | {long} |\n", 60)
    assert max(map(len, lines)) <= 60
    assert Counter("".join(lines).replace(" ", ""))["v"] >= 2 * long.count("v")


def test_blocks_of_code_are_found_in_order() -> None:
    """For /copy N; what a fence in a list holds is without the list's indentation."""
    assert markdown.fences("```\na\n```\n- x\n  ```py\n  b\n  ```\n") == ["a\n", "b\n"]
