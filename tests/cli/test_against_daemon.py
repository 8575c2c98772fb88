"""The whole way: `localspec chat` against the real daemon with a tiny model run by llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from user_home import UserHome

QUESTION = "Repeat this: " + "one two three four five six seven eight nine ten " * 4


class User(UserHome):
    """Asks questions and reads answers."""

    def ask(self, *arguments: str, stdin: str = "") -> dict[str, Any]:
        """The answer to one question as `--json` gives it."""
        answer: dict[str, Any] = json.loads(
            self.run("chat", "--json", "--max-tokens", "48", *arguments, stdin=stdin).stdout
        )
        return answer


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """One user and one daemon for all tests of this file; the first question starts it."""
    found = User(tmp_path_factory.mktemp("u"))
    tiny.build(found.models / "tiny.gguf")
    yield found
    found.run("stop")


def test_speculation_changes_the_speed_and_not_the_text(user: User) -> None:
    """The same seed gives the same text with drafts and without, and drafts were accepted."""
    options = ("-t", "0", "--seed", "7", QUESTION)
    plain = user.ask("--draft", "off", *options)
    drafted = user.ask("--draft", "on", *options)
    assert plain["content"] == drafted["content"]
    assert plain["timings"]["draft_n"] == 0
    assert drafted["timings"]["draft_n_accepted"] > 0
    assert plain["usage"]["completion_tokens"] == drafted["usage"]["completion_tokens"]


def test_a_pipe_is_answered_in_pieces_that_add_up(user: User) -> None:
    """Streamed and whole answers are the same text, and origins cover every character of it."""
    options = ("-t", "0", "--draft", "on", "--colour-origins")
    whole = user.ask(*options, stdin=QUESTION)
    told = user.run(
        "chat", "--json", "--stream", "--max-tokens", "48", *options, stdin=QUESTION
    ).stdout
    *pieces, end = [json.loads(line) for line in told.splitlines()]
    assert "".join(piece["text"] for piece in pieces) == whole["content"]
    assert end["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    for piece in pieces:
        assert sum(length for length, _ in piece["origins"]) == len(piece["text"])
    kept = {name for name, each in end["speculation"]["sources"].items() if each["accepted"]}
    told_of = {source for piece in pieces for _, source in piece["origins"]}
    # Half a character is told with its other half.
    assert {"target"} <= told_of <= {"target"} | kept <= {"target", "lookup"}


def test_the_speed_is_the_daemons_own_figure(user: User) -> None:
    """In a terminal, behind the answer, where it is asked for; a pipe has the answer alone."""
    asked = ("chat", "--temperature", "0", "--max-tokens", "5", "hello", "there")
    assert user.run(*asked).stderr == ""
    shown = user.look(*asked, "--verbose", columns=200, errors=True)
    assert "5 tokens at " in shown[-2]
    assert "cut at the token limit" in shown[-2]


def test_status_shows_the_model_that_answered(user: User) -> None:
    """Loaded, with its drafters and the routes that requests took."""
    user.ask("hello")
    report = json.loads(user.run("status", "--json").stdout)
    (model,) = [model for model in report["models"] if model["name"] == "tiny"]
    assert model["state"] == "ready"
    assert "lookup" in model["drafters"]
    assert "tiny (default): ready" in user.run("status").stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (("-m", "no-such-model", "hi"), 2, "no-such-model"),
        (("--max-tokens", "5", "long " * 3000), 2, "context"),
        (("--temperature", "100", "--seed", "-99999999999999999999999", "hi"), 2, "seed"),
    ],
)
def test_a_request_that_cannot_be_served_is_explained(
    user: User, arguments: tuple[str, ...], exit_code: int, word: str
) -> None:
    """With the exit code of a wrong request, and the next request is answered."""
    said = user.run("chat", *arguments, exit_code=exit_code).stderr
    assert said.startswith("error: ")
    assert word in said
    assert user.ask("still there?")["finish_reason"] in {"stop", "length"}
