"""`localspec bench`, `verify` and `tune` against the real daemon with a tiny pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner
from scripted import Peer, answer
from user_home import UserHome

from localspec.cli.main import cli

QUESTIONS = [
    {"question_id": 1, "category": "copy", "turns": ["Say again: one two three four " * 6]},
    {"question_id": 2, "category": "copy", "turns": ["abc abc abc abc", "and once more"]},
    {"question_id": 3, "category": "long", "turns": ["too long " * 1000]},
    {"question_id": 4, "category": "talk", "turns": ["hello"]},
]


class User(UserHome):
    """Measures with a file of questions."""

    @property
    def questions(self) -> Path:
        """The file."""
        return self.home / "question.jsonl"

    def measure(self, command: str, *arguments: str) -> Any:
        """The JSON of a short measurement with the file of questions."""
        fixed = ("--prompts", str(self.questions), "--tokens", "40", "--json")
        return json.loads(self.run(command, *fixed, *arguments).stdout)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """One user and one daemon for all tests of this file; the first command starts it."""
    found = User(tmp_path_factory.mktemp("u"))
    tiny.build(found.models / "tiny.gguf")
    tiny.build(found.models / "little.gguf", like=0, noise=0.02)
    (found.models / "drafts.json").write_text('{"tiny":"little"}')
    found.questions.write_text("\n".join(map(json.dumps, QUESTIONS)))
    yield found
    found.run("stop")


def test_bench_compares_all_arms_and_writes_its_report(user: User) -> None:
    """Every arm on every prompt that fits, with equal texts; another server is an arm as well."""
    socket = user.run("socket").stdout.strip()
    user.run("start")
    output = user.home / "report"
    told = user.measure(
        "bench", "--repeats", "2", "--against", f"unix://{socket}", "--output", str(output)
    )
    summary = told["summary"]
    assert summary["arms"] == ["plain", "auto", "lookup", "model", f"unix://{socket}"]
    assert summary["slices"] == ["copy", "talk", "all"]
    for arm in ("auto", "lookup", "model"):
        cell = summary["cells"]["all"][arm]
        assert cell["equal"] == cell["compared"] == 8
        assert cell["ratio"]["low"] <= cell["ratio"]["mean"] <= cell["ratio"]["high"]
    assert summary["cells"]["all"]["plain"]["sources"] == {}
    assert any("left out: long/3" in line for line in told["heading"])
    for arm in ("auto", "lookup", "model"):
        assert summary["cells"]["all"][arm]["bound"]["mean"] >= 1 - 1e-9  # a mean of ones may round
        assert summary["cells"]["all"][arm]["bound"]["prompts"] == 3
    assert summary["cells"]["all"][f"unix://{socket}"]["bound"] is None
    assert set(summary["reliability"]) == {"lookup", "model"}

    written = json.loads((output / "results.json").read_text())
    answers = [one for batch in written["results"]["batches"] for one in batch["answers"]]
    assert len([one for one in answers if one["arm"] == "plain"]) == 8
    assert {one["kind"] for one in answers} >= {"conversation", "replay"}
    assert written["summary"] == summary
    assert (output / "report.md").read_text().startswith("# LocalSpec bench")
    assert "<svg" in (output / "report.html").read_text()


def test_bench_prints_tables_for_people(user: User) -> None:
    """On stdout, without being asked for JSON; several prompts at a time are possible."""
    done = user.run(
        "bench", "--prompts", str(user.questions), "--slices", "copy, talk", "--arms", "lookup",
        "--tokens", "8", "--repeats", "1", "--concurrency", "2", "--temperature", "0.7",
    )  # fmt: skip
    assert "Decode speed as a ratio to plain" in done.stdout
    assert "what was possible" not in done.stdout
    assert "T = 0.7, seed 0, 2 at a time" in done.stdout
    assert "auto" not in done.stdout.split("Decode tokens per second")[0].split("slice")[1]


def test_verify_finds_no_difference_in_strict_mode(user: User) -> None:
    """Greedy and seeded, for each drafter; and drafts were really verified, or it says nothing."""
    told = user.measure("verify", "--slices", "copy,talk")
    assert told["exactness"] == "strict"
    assert told["differences"] == []
    tallies = {(one["way"], one["arm"]): one for one in told["tallies"]}
    assert len(tallies) == 6
    assert all(one["equal"] == one["compared"] == 4 for one in tallies.values())
    for source in ("lookup", "model"):
        assert tallies["greedy", source]["drafted"] > tallies["greedy", source]["accepted"] > 0


def test_verify_prints_its_counts(user: User) -> None:
    """One line per way and arm."""
    done = user.run("verify", "--prompts", str(user.questions), "--slices", "talk", "--tokens", "4")
    assert "tiny, exactness strict" in done.stdout
    assert done.stdout.count("1 of 1") >= 6


def test_tune_tells_the_staircase(user: User) -> None:
    """As measured in idle time, relative to one row, from one row up."""
    told = json.loads(user.run("tune", "--json").stdout)
    assert told["stairs"][0]["rows"] == 1
    assert told["stairs"][0]["relative"] == 1
    assert len(told["stairs"]) > 5
    assert told["far_tokens"] > 0
    assert told["prompt_tokens_per_second"] == pytest.approx(
        max(1000 * stair["rows"] / stair["ms"] for stair in told["stairs"])
    )
    assert "Cost of one forward" in user.run("tune").stdout


def test_in_a_narrow_window_no_row_and_no_sentence_is_folded_by_the_terminal(user: User) -> None:
    """It would be anywhere, and a row that is folded is no row."""
    asked = ("--prompts", str(user.questions), "--slices", "talk", "--tokens", "8")
    for command in (("bench", *asked, "--repeats", "1"), ("verify", *asked), ("tune",)):
        lines = user.look(*command, columns=60)
        assert len(lines) > 5
        assert [line for line in lines if len(line) > 60] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("bench", "--slices", "nothing"), "nothing"),
        (("bench", "--arms", "eagle"), "eagle"),
        (("bench", "--against", "ftp://x"), "ftp://x"),
        (("bench", "--output", "/dev/null/x"), "/dev/null/x"),
        (("bench", "--against-key", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (("bench", "--repeats", "0"), "repeats"),
        (("verify", "--prompts", "/nowhere"), "/nowhere"),
        (("tune", "--model", "no-such-model"), "no-such-model"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(
    user: User, arguments: tuple[str, ...], word: str
) -> None:
    """With exit code 2 and the word at fault."""
    assert word in user.run(*arguments, exit_code=2).stderr


def test_a_prompt_file_that_fits_nowhere_is_an_error(user: User) -> None:
    """A report about nothing would look like a result."""
    done = user.run("bench", "--prompts", str(user.questions), "--slices", "long", exit_code=2)
    assert "No prompt was taken by every server" in done.stderr


@pytest.mark.parametrize(("exactness", "exit_code"), [("strict", 1), ("standard", 0)])
def test_a_broken_promise_is_an_exit_code(
    peer: Peer, tmp_path: Path, exactness: str, exit_code: int
) -> None:
    """A difference is shown in either mode; only strict mode has promised that there is none."""
    peer.status = {
        "models": [{"name": "tiny", "drafters": ["lookup"], "exactness": exactness}],
    }
    figures: dict[str, Any] = dict.fromkeys(("prompt_tokens", "cached_tokens", "max_draft"), 0)
    figures |= {"id": "r", "tokens": 0, "gaps": [], "margins": [], "drafters": {}}
    parted = 200, figures | {"after": {"pieces": ["cat", "dog"], "gap": 0.03125}}
    peer.streams = [answer(text) for text in ("loaded", "a cat", "a cat", "a dog")]
    peer.streams += [parted, *(answer("same") for _ in range(3))]
    question = tmp_path / "q.jsonl"
    question.write_text(json.dumps(QUESTIONS[3]))
    done = CliRunner().invoke(cli, ["verify", "--prompts", str(question)])
    assert done.exit_code == exit_code
    assert "talk/4, turn 1, greedy, lookup: first difference at character 2" in done.stdout
    assert "'dog'" in done.stdout
    assert "logit gap 0.03: 'cat' before 'dog'" in done.stdout
    assert ('"strict" does not' in done.stdout) is (exactness == "standard")
