"""`localspec corpus`: add, list and drop folders."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from corpus.making import tokenize, write

from localspec.cli.main import cli
from localspec.corpus import building, contents


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file, not yet written."""
    path = home / "my.toml"
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(path))
    return path


def corpus(*arguments: str) -> Result:
    """`localspec corpus ARGUMENTS`."""
    return CliRunner().invoke(cli, ["corpus", *arguments])


def configured(file: Path) -> list[str]:
    """The folders in the configuration."""
    found: list[str] = tomllib.loads(file.read_text()).get("draft", {}).get("corpus", [])
    return found


def indexed(*folders: str) -> None:
    """Write an index of these folders, as a worker does."""
    for _ in building.build(folders, tokenize, contents.file_of("test"), None, "a-model"):
        pass


def test_folders_are_added_listed_and_dropped(file: Path, home: Path) -> None:
    """By any of their names; comments of the file stay."""
    write(home / "src", a="alpha", b="sk-" + "aB3dE5" * 5)
    write(home / "docs", a="alpha")
    file.write_text("# mine\n[engine]\nslots = 2  # two\n")
    assert corpus("add", str(home / "src"), f"{home}/src/../docs").exit_code == 0
    assert configured(file) == ["~/src", "~/docs"]
    assert "is there already" in corpus("add", "~/src").output
    assert configured(file) == ["~/src", "~/docs"]
    assert "not read yet" in corpus("list").output
    indexed("~/src", "~/docs")
    listed = corpus("list").output
    assert "1 files, 5 tokens of a-model; left out: 1 secret" in listed
    assert corpus("drop", str(home / "src")).exit_code == 0
    assert configured(file) == ["~/docs"]
    assert not contents.every()
    assert corpus("drop", "~/docs").exit_code == 0
    assert configured(file) == []
    assert file.read_text() == "# mine\n[engine]\nslots = 2  # two\n"
    assert "There are no folders" in corpus("list").output


def test_comments_between_the_folders_stay(file: Path, home: Path) -> None:
    """And each folder its line."""
    write(home / "new", a="alpha")
    before = '[draft]\ncorpus = [\n  # work\n  "~/src",  # mine\n  "~/docs",\n]\n'
    file.write_text(before)
    assert corpus("add", "~/new").exit_code == 0
    assert file.read_text() == before.replace("\n]", '\n  "~/new",\n]')
    assert corpus("drop", "~/docs").exit_code == 0
    assert file.read_text() == before.replace("docs", "new")


def test_the_folder_that_one_is_in_can_be_added(
    file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `localspec corpus add .`."""
    write(home / "src", a="alpha")
    monkeypatch.chdir(home / "src")
    assert corpus("add", ".").exit_code == 0
    assert configured(file) == ["~/src"]


@pytest.mark.parametrize(("name", "says"), [
    ("~/gone", "is not there"), ("~/out", "leads out of your home"), ("~/a.txt", "not a folder"),
    ("~", "holds all of your home"), ("/", "holds all of your home"),
    ("~/caf\udce9", "not UTF-8"),
])  # fmt: skip
def test_a_folder_that_cannot_be_used_is_not_added(
    file: Path, home: Path, name: str, says: str
) -> None:
    """With a sentence, and the file stays as it was."""
    (home / "out").symlink_to(os.sep)
    (home / "a.txt").write_text("a")
    result = corpus("add", name)
    assert result.exit_code != 0
    assert says in str(result.exception) + result.output
    assert not file.exists()


def test_dropping_what_is_not_there_changes_nothing(file: Path) -> None:
    """And says what to look at."""
    result = corpus("drop", "/nowhere")
    assert "none of the folders" in str(result.exception) + result.output
    assert not file.exists()


def test_a_folder_that_has_gone_can_be_dropped(file: Path, home: Path) -> None:
    """It is listed with what is wrong."""
    write(home / "src", a="alpha")
    corpus("add", "~/src")
    (home / "src" / "a").unlink()
    (home / "src").rmdir()
    assert "~/src is not there" in corpus("list").output
    assert corpus("drop", "~/src").exit_code == 0
    assert configured(file) == []


def test_json_has_folders_and_indexes(file: Path, home: Path) -> None:
    """For programs."""
    write(home / "src", a="alpha")
    corpus("add", "~/src")
    assert file.exists()
    indexed("~/src")
    found = json.loads(corpus("list", "--json").output)
    assert found["folders"] == [{"folder": "~/src", "why": ""}]
    (index,) = found["indexes"]
    assert (index["model"], index["files"]) == ("a-model", 1)
    assert index["folders"][0]["tokens"] == 5


def test_an_empty_name_is_no_folder(file: Path) -> None:
    """As of a variable that is not set; the current folder is a dot."""
    assert "is empty" in corpus("add", "").output
    assert not file.exists()
