"""`localspec config`: show, check, path."""

from __future__ import annotations

import json
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from localspec.cli import config_edit
from localspec.cli.main import cli
from localspec.config import Config


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file, not yet written."""
    path = home / "my.toml"
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(path))
    return path


def config(*arguments: str) -> Result:
    """`localspec config ARGUMENTS`."""
    return CliRunner().invoke(cli, ["config", *arguments])


def test_path_is_printed_whether_or_not_it_exists(file: Path) -> None:
    """For `$EDITOR "$(localspec config path)"`."""
    assert config("path").stdout == f"{file}\n"


def test_show_marks_what_the_file_sets(file: Path) -> None:
    """Every key is there once; only those of the file carry its name."""
    file.write_text("[engine]\nslots = 2\n[sampling.logit_bias]\n1 = 2.0\n")
    lines = config("show").stdout.splitlines()
    assert f"engine.slots = 2  # {file}" in lines
    assert "engine.context = 0" in lines
    assert len([line for line in lines if str(file) in line]) == 2
    keys = [line.split(" = ")[0] for line in lines]
    assert len(keys) == len(set(keys))


def test_show_without_a_file_is_the_defaults(file: Path) -> None:
    """As one JSON object that programs can read."""
    assert not file.exists()
    assert json.loads(config("show", "--json").stdout) == json.loads(msgspec.json.encode(Config()))


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("server.log_level", "debug", "debug"),
        ("engine.slots", "2", 2),
        ("chat.keep", "no", False),
        ("chat.keep", "TRUE", True),
        ("server.tcp", "127.0.0.1:8080", "127.0.0.1:8080"),
        ("server.keep_alive", "-1", "-1"),
        ("server.socket", "~/with 'quotes'", "~/with 'quotes'"),
        ("speculation.drafters", "lookup, model", ["lookup", "model"]),
        ("speculation.drafters", '["lookup"]', ["lookup"]),
        ("engine.target.tensor_split", "3,1", [3, 1]),
        ("sampling.temperature", "0.5", 0.5),
        ("models.aliases.gpt-4.1", "", ""),
        ('models.aliases."gpt-4.1"', "", ""),
        ("sampling.logit_bias.17", "2", 2),
    ],
)
def test_a_key_is_set_and_taken_back(file: Path, key: str, value: str, kept: object) -> None:
    """Comments, order and everything else of the file stay to the letter."""
    before = "# mine\n[engine]\ncontext = 4096  # enough\n"
    file.write_text(before)
    assert config("set", key, value).exit_code == 0
    text = file.read_text()
    assert all(line in text for line in before.splitlines())
    found = tomllib.loads(text)
    for name in config_edit.parts(key):
        found = found[name]
    assert found == kept
    assert config("unset", key).exit_code == 0
    assert file.read_text().rstrip("\n") == before.rstrip("\n")
    assert config("unset", key).exit_code == 0


def test_items_of_a_list_that_stay_keep_their_comments(file: Path) -> None:
    """Also their lines; one that leaves takes its own comment along."""
    file.write_text("""[speculation]
drafters = [
    # quick
    "lookup",  # copies
    "model",
    "grammar",  # for JSON
]  # three
""")
    config("set", "speculation.drafters", "lookup,corpus,model")
    assert (
        file.read_text()
        == """[speculation]
drafters = [
    # quick
    "lookup",  # copies
    "corpus",
    "model",
]  # three
"""
    )


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("engine.slot", "2", "Did you mean engine.slots?"),
        ("engine", "2", "a table"),
        ("nonsense", "2", "no key nonsense"),
        ("engine.slots.deep", "2", "no key engine.slots.deep"),
        ("a = 1\nb", "2", "no key"),
        ("engine.slots", "two", "must be a whole number, not text"),
        ("engine.slots", "0", "out of range"),
        ("engine.slots", "1.5", "a whole number, not a number with a fraction"),
        ("chat.keep", "perhaps", "true or false"),
        ("server.log_level", "loud", "debug, info, warning, error"),
        ("engine.target.split", "layers", "layer, row, none"),
        ("speculation.verify", "fast", "coupled, rejection"),
        ("server.tcp", "0.0.0.0:80", "not a loopback address"),
        ("models.default", "nope", 'no model "nope"'),
        ("models.aliases.gpt", "nope", 'no model "nope"'),
    ],
)
def test_what_the_daemon_would_not_take_is_not_written(
    file: Path, key: str, value: str, says: str
) -> None:
    """The key, the reason and the values that there are; the file stays as it was."""
    file.write_text("# mine\n")
    result = config("set", key, value)
    assert result.exit_code == 78
    assert says in result.stderr
    assert file.read_text() == "# mine\n"


def test_a_file_is_made_private_and_a_link_stays_one(file: Path, home: Path) -> None:
    """Configurations often lie in a repository of their own."""
    config("set", "chat.keep", "false")
    assert file.stat().st_mode & 0o777 == 0o600
    real = home / "dotfiles.toml"
    file.rename(real)
    real.chmod(0o644)
    file.symlink_to(real)
    config("set", "chat.theme", "none")
    assert file.is_symlink()
    assert tomllib.loads(real.read_text()) == {"chat": {"keep": False, "theme": "none"}}
    assert real.stat().st_mode & 0o777 == 0o644


def test_of_changes_at_once_none_is_lost(file: Path) -> None:
    """Each reads, changes and replaces the file alone."""
    start = threading.Barrier(8)

    def change(place: int) -> None:
        start.wait()
        config_edit.apply(file, config_edit.set_to(f"sampling.logit_bias.{place}", "1"))

    with ThreadPoolExecutor(start.parties) as pool:
        list(pool.map(change, range(start.parties)))
    assert len(tomllib.loads(file.read_text())["sampling"]["logit_bias"]) == start.parties


def test_get_prints_a_value_for_scripts() -> None:
    """Text without quotes, the keys of a table each in a line."""
    assert config("get", "chat.theme").stdout == "auto\n"
    assert config("get", "speculation.max_draft").stdout == "31\n"
    assert "chat.keep = true" in config("get", "chat").stdout
    assert config("get", "chat.colour").exit_code == 78


@pytest.mark.parametrize(
    "text",
    [
        '[models]\ndefault = "nope"',
        '[models]\naliases = {gpt = "nope"}',
        '[models]\ndirectory = "/nowhere"',
        '[engine]\nmachine = "/nowhere.toml"',
        '[upstream.a]\nurl = "http://h/v1"\nmodels = ["m"]\ntoken_file = "/nowhere"',
    ],
)
def test_check_finds_names_of_what_is_not_there(file: Path, text: str) -> None:
    """The daemon would take them, and fail with the first question."""
    file.write_text(text)
    result = config("check")
    assert result.exit_code == 78
    assert "nope" in result.stderr or "/nowhere" in result.stderr


@pytest.mark.parametrize("model", ["qwen2.5-coder-1.5b-instruct", "yeti"])
def test_check_takes_models_that_can_be_had(file: Path, model: str) -> None:
    """Of the catalog, pulled or not, and of an upstream."""
    upstream = '[upstream.rack]\nurl = "http://10.0.0.3:8000/v1"\nmodels = ["yeti"]\n'
    file.write_text(f'[models]\ndefault = "{model}"\n{upstream}')
    assert config("check").exit_code == 0


def test_check_refuses_what_the_daemon_would_refuse(file: Path) -> None:
    """Exit code 78, the key and the nearest right one."""
    assert config("check").exit_code == 0
    file.write_text("[engine]\nslot = 2\n")
    result = config("check")
    assert result.exit_code == 78
    assert "engine.slot" in result.stderr
    assert "Did you mean engine.slots?" in result.stderr
    assert config("show").exit_code == 78
