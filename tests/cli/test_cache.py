"""`localspec cache`, and what it is about: no prompt is read a second time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from user_home import UserHome

QUESTION = "Repeat this: " + "one two three four five six seven eight nine ten " * 12


class User(UserHome):
    """Asks one question again and again."""

    def ask(self) -> dict[str, Any]:
        """The answer as `--json` gives it."""
        asked = ("chat", "--json", "--max-tokens", "24", "-t", "0", QUESTION)
        answer: dict[str, Any] = json.loads(self.run(*asked).stdout)
        return answer

    def kept(self) -> dict[str, Any]:
        """The list of `localspec cache list`."""
        found: dict[str, Any] = json.loads(self.run("cache", "list", "--json").stdout)
        return found

    def until_kept(self) -> dict[str, Any]:
        """The same, once something is."""
        while not (found := self.kept())["models"]:
            pass
        return found

    def model(self) -> dict[str, Any]:
        """Its model's entry in the status."""
        models = json.loads(self.run("status", "--json").stdout)["models"]
        found: dict[str, Any] = next(each for each in models if each["name"] == "tiny")
        return found

    def files(self) -> list[Path]:
        """The files on disk."""
        return [*self.home.rglob("*.prefix")]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """One user for all tests of this file."""
    found = User(tmp_path_factory.mktemp("u"))
    tiny.build(found.models / "tiny.gguf")
    yield found
    found.run("stop")


@pytest.fixture
def answer(user: User) -> dict[str, Any]:
    """The answer of a model that has read nothing like it, with the copy on disk."""
    user.run("cache", "clear")
    found = user.ask()
    assert found["timings"]["cache_n"] == 0
    user.until_kept()
    return found


@pytest.mark.parametrize("way", ["stop", "unload", "kill"])
def test_a_prompt_is_read_once(user: User, answer: dict[str, Any], way: str) -> None:
    """Over the end of the daemon, an unload and the sudden death of the worker."""
    if way == "stop":
        user.run("stop")
    elif way == "kill":
        os.kill(user.model()["pid"], signal.SIGKILL)
    else:
        user.run("config", "set", "engine.prefill_rows", "64")
        user.run("reload")
    again = user.ask()
    tokens = again["usage"]["prompt_tokens"]
    timings = again["timings"]
    assert (timings["cache_disk_n"], timings["prompt_n"]) == (tokens - 1, 1)
    assert again["content"] == answer["content"]


def test_it_tells_what_there_is(user: User, answer: dict[str, Any]) -> None:
    """Texts and bytes by model, for people and machines, with and without a daemon."""
    user.run("stop")
    user.ask()
    kept = user.kept()
    assert [model["model"] for model in kept["models"]] == ["tiny"]
    (model,) = kept["models"]
    assert (model["texts"], model["tokens"]) == (1, answer["usage"]["prompt_tokens"] + 23)
    assert kept["bytes"] == sum(path.stat().st_size for path in user.files())
    while user.model()["prefixes"]["texts"] != 1:  # the worker tells in its pauses
        pass
    said = user.run("cache", "list").stdout
    assert "tiny: 1 text, " in said
    assert "prefixes" in user.run("status").stdout
    user.run("stop")
    assert user.kept()["saved"]["hits"] >= 1
    assert user.kept()["models"] == kept["models"]
    assert "tokens of" in user.run("cache", "list").stdout


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize("running", [True, False])
def test_cleared_is_gone(user: User, *, running: bool) -> None:
    """Files, copies in memory, and what slots remember: the next question is read anew."""
    if not running:
        user.run("stop")
    count = len(user.files())
    cleared = json.loads(user.run("cache", "clear", "--json").stdout)
    assert cleared["files"] == count > 0
    assert user.files() == []
    assert user.ask()["timings"]["cache_n"] == 0
    assert "cleared: " in user.run("cache", "clear").stdout


def test_files_that_are_damaged_are_not_used(user: User, answer: dict[str, Any]) -> None:
    """A flipped bit, and a file that was cut: read anew, said the same, told in the log."""
    damages: list[Callable[[bytes], bytes]] = [
        lambda bits: bits[:-100],
        lambda bits: bits[:-200] + bytes([bits[-200] ^ 1]) + bits[-199:],
    ]
    for damage in damages:
        user.run("stop")
        files = user.files()
        assert files
        for path in files:
            path.write_bytes(damage(path.read_bytes()))
        again = user.ask()
        assert again["timings"]["cache_n"] == 0
        assert again["content"] == answer["content"]
        assert "prefix dropped" in user.run("logs").stdout
        user.until_kept()
