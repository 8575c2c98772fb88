"""Laws of infill prompts: the order of parts, what is cut, and what stays during typing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.kv.slots import common_prefix
from localspec.text.infill import Marks, parted, prompt
from localspec.text.lines import IndentLimit
from localspec.wire.values import Snippet

PRE, SUF, MID, REP, SEP, BOS = range(1000, 1006)
FULL = Marks(PRE, SUF, MID, REP, SEP)
texts = st.text(alphabet="ab\n ", max_size=40)


def tokens(text: str) -> list[int]:
    """One token for each character."""
    return [*map(ord, text)]


def test_the_parts_stand_as_models_were_trained_on_them() -> None:
    """Other files, prefix, suffix, middle; without a middle token the suffix is first."""
    said = prompt(FULL, tokens, prefix="a", suffix="b", begun="c", most=100)
    assert said == [PRE, ord("a"), SUF, ord("b"), MID, ord("c")]
    bare = Marks(PRE, SUF, first=BOS)
    assert prompt(bare, tokens, prefix="a", suffix="b", begun="c", most=100) == [
        BOS, SUF, ord("b"), PRE, ord("a"), ord("c"),
    ]  # fmt: skip
    extra = [Snippet("x", "f.py"), Snippet("y")]
    with_files = prompt(FULL, tokens, prefix="a", suffix="b", extra=extra, most=200)
    assert with_files[:1] == [REP]
    assert [token for token in with_files if token >= 1000] == [REP, SEP, SEP, SEP, PRE, SUF, MID]
    without_marks = prompt(
        Marks(PRE, SUF, MID), tokens, prefix="a", suffix="b", extra=extra, most=200
    )
    assert without_marks.count(PRE) == 1
    assert "--- snippet ---" in "".join(map(chr, without_marks[: without_marks.index(PRE)]))


@given(texts, texts, texts, st.lists(texts, max_size=4), st.integers(0, 120))
def test_a_prompt_fits_and_keeps_what_is_near_the_middle(
    prefix: str, suffix: str, begun: str, extra: list[str], most: int
) -> None:
    """Kept are the end of the prefix, the beginning of the suffix, and the begun middle."""
    snippets = [Snippet(text) for text in extra]
    said = prompt(
        FULL, tokens, prefix=prefix, suffix=suffix, begun=begun, extra=snippets, most=most
    )
    assert len(said) <= max(most, len(begun)) + 16 + len("myproject\nfilename\n")
    before = said[said.index(PRE) + 1 : said.index(SUF)]
    after = said[said.index(SUF) + 1 : said.index(MID)]
    assert tokens(prefix)[len(prefix) - len(before) :] == before
    assert tokens(suffix)[: len(after)] == after
    assert said[said.index(MID) + 1 :] == tokens(begun)


def test_typing_moves_the_beginning_of_a_long_prefix_rarely() -> None:
    """Of a prefix that is too long, most KV can be reused after another letter."""
    moved = 0
    for length in range(3000, 3600):
        one, other = (
            prompt(FULL, tokens, prefix="ab" * (size // 2), suffix="c", most=2000)
            for size in (length, length + 2)
        )
        moved += common_prefix(one, other) < len(one) - 3
    assert moved <= 2 * (600 // 256 + 1)


@given(texts, st.text(alphabet="ab ", max_size=40), st.text(alphabet="ab ", max_size=9))
def test_the_line_that_is_typed_begins_the_middle(lines: str, typed: str, more: str) -> None:
    """The line may be sent with the prefix or separately; longer lines only extend the prompt."""
    whole, line = parted(lines + typed, more)
    assert whole + line == lines + typed + more
    assert whole == lines[: lines.rfind("\n") + 1]
    assert parted(lines + typed + more, "") == parted(whole, line) == (whole, line)


def test_of_an_endless_line_the_end_is_moved_in_steps() -> None:
    """The text before it changes rarely, and is bounded."""
    parts = [parted("x" * length, "") for length in range(3000, 3600)]
    assert len({whole for whole, _ in parts}) <= 600 // 256 + 2
    assert max(len(line) for _, line in parts) < 256


def test_text_that_goes_on_is_tokenized_as_such() -> None:
    """Some tokenizers add a blank at a beginning; there is none before the typed line."""
    said = prompt(
        FULL, tokens, prefix="a", suffix="", begun="bc", most=100, behind=lambda it: [-len(it)]
    )
    assert said == [PRE, ord("a"), SUF, MID, -2]


@given(st.lists(texts, max_size=5), st.integers(0, 3))
def test_lines_end_before_the_first_that_is_indented_less(parts: list[str], indent: int) -> None:
    """The text may be cut anywhere; blank lines have no indentation."""
    text = "".join(parts)
    lines = text.split("\n")
    kept = len(lines)
    for index, line in enumerate(lines[1:], 1):
        blanks = len(line) - len(line.lstrip(" "))
        if blanks < indent and line.strip(" ") and kept == len(lines):
            kept = index
    cut = IndentLimit(indent)
    said = "".join(map(cut.push, parts)) + cut.flush()
    assert said == "\n".join(lines[:kept])
    assert cut.stopped == (kept < len(lines))
