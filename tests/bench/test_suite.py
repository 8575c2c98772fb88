"""The built-in prompts, and files in the format of Spec-Bench."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from localspec.bench import suite
from localspec.errors import RequestError

SLICES = ("chat", "code", "edit", "rag", "summarization", "json", "translation", "math", "qa")


def write(path: Path, *lines: Any) -> Path:
    """A file of JSON lines."""
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def test_the_suite_has_six_prompts_of_every_slice() -> None:
    """And no two of one name, for a report calls them by it."""
    prompts = suite.builtin()
    counts = Counter(prompt.slice for prompt in prompts)
    assert tuple(counts) == SLICES
    assert min(counts.values()) >= 6
    assert len({prompt.name for prompt in prompts}) == len(prompts)
    assert all(turn.strip() for prompt in prompts for turn in prompt.turns)


def test_the_slices_are_what_they_are_called() -> None:
    """Passages are long enough to be copied from, edits bring what is to be edited."""
    for prompt in suite.builtin():
        words = len(prompt.turns[0].split())
        if prompt.slice in ("rag", "summarization"):
            assert 200 <= words <= 400, prompt.name
        if prompt.slice == "edit":
            assert words >= 90, prompt.name
    assert any(len(prompt.turns) > 1 for prompt in suite.builtin())


def test_a_question_file_is_read_with_its_turns(tmp_path: Path) -> None:
    """A category is a slice, ids may be words; the rest is ignored."""
    path = write(
        tmp_path / "question.jsonl",
        {"question_id": 81, "category": "writing", "turns": ["One.", "Two."], "reference": []},
        "",
        {"question_id": "x", "category": "qa", "turns": ["Three?"]},
    )
    assert suite.spec_bench(path) == [
        suite.Prompt("writing/81", "writing", ("One.", "Two.")),
        suite.Prompt("qa/x", "qa", ("Three?",)),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{"], "Line 1 of"),
        ([{"question_id": 1, "category": "qa", "turns": ["a"]}, {"turns": ["a"]}], "Line 2 of"),
        ([{"question_id": 1, "category": "qa", "turns": []}], "says nothing"),
        ([{"question_id": 1, "category": "qa", "turns": [" "]}], "says nothing"),
        ([{"question_id": 1, "category": "qa", "turns": ["a"]}] * 2, "qa/1 more than once"),
        ([""], "no prompts"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, lines: list[Any], said: str) -> None:
    """Before anything is measured."""
    with pytest.raises(RequestError, match=said):
        suite.spec_bench(write(tmp_path / "q.jsonl", *lines))


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(RequestError, match="nothing-here"):
        suite.spec_bench(tmp_path / "nothing-here")
    (tmp_path / "b").write_bytes(b'\xff\xfe{"question_id"')
    with pytest.raises(RequestError, match="Line 1"):
        suite.spec_bench(tmp_path / "b")


def test_slices_and_a_limit_choose_the_first_of_each() -> None:
    """In the order of the file, whatever the order of the wish."""
    prompts = suite.builtin()
    chosen = suite.choose(prompts, ["qa", "chat"], 2)
    assert [prompt.slice for prompt in chosen] == ["chat", "chat", "qa", "qa"]
    assert chosen[0] == prompts[0]
    assert suite.choose(prompts) == prompts
    with pytest.raises(RequestError, match="'chats'") as refused:
        suite.choose(prompts, ["chats"])
    assert "chat, code" in refused.value.fix
