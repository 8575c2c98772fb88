"""`localspec connect`: what is written can be undone, and nothing of the user's is ever lost."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from scripted import Peer, answer

from localspec import paths
from localspec.cli.connect import RECIPES
from localspec.cli.connections import edit
from localspec.cli.connections.recipe import Daemon
from localspec.cli.main import cli
from localspec.errors import ConfigError

DAEMON = Daemon("some-model", "/run/x.sock", "http://127.0.0.1:8080", "secret")
objects = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda found: isinstance(found, dict))


def test_the_help_names_every_tool() -> None:
    """In words: a list between braces cannot be folded, and is a third of the help."""
    shown = CliRunner().invoke(cli, ["connect", "--help"]).stdout
    assert "[OPTIONS] TOOL\n" in shown
    assert [tool for tool in RECIPES if tool not in shown] == []


@pytest.fixture
def door(home: Path) -> Path:
    """A configuration with a TCP address, and a token; the home."""
    config = paths.config_file()
    config.parent.mkdir(parents=True)
    config.write_text('[server]\ntcp = "127.0.0.1:8080"\n')
    paths.make_private(paths.state_dir())
    (paths.state_dir() / "token").write_text("secret\n")
    return home


def connect(*arguments: str) -> Result:
    """`localspec connect ARGUMENTS`, without a request."""
    return CliRunner().invoke(cli, ["connect", "--no-check", *arguments])


def file_of(tool: str) -> Path:
    """Where the configuration of a tool belongs for this user."""
    path = RECIPES[tool].path(Path.home(), os.environ)
    assert path is not None
    return path


@given(objects, objects)
def test_merging_can_be_undone(theirs: Any, ours: Any) -> None:
    """Our values are there, and without them the file says what it said."""
    after, before = edit.merged(json.dumps(theirs), ours)
    again, _ = edit.merged(after, ours)
    assert again == after
    left = edit.unmerged(after, ours, before)
    assert (json.loads(left) if left else {}) == theirs


@given(st.text(max_size=30), st.text(alphabet="xy\n", max_size=9))
def test_a_block_can_be_undone(theirs: str, ours: str) -> None:
    """However often it was written; only a line break at the end of the file may be new."""
    once = edit.blocked(theirs, ours + "\n", "#")
    assert edit.blocked(once, ours + "\n", "#") == once
    left = edit.unblocked(once, "#")
    assert left in (theirs, theirs + "\n")


def test_half_a_block_is_not_guessed_at() -> None:
    """A block cut in two is an error: its owner cannot be known."""
    half = edit.blocked("", "x\n", "#").replace(f"# {edit.END}\n", "")
    with pytest.raises(ConfigError, match="only a part"):
        edit.unblocked(half, "#")


@pytest.mark.parametrize("tool", RECIPES)
def test_a_recipe_names_the_model_and_the_door(tool: str) -> None:
    """Over TCP with the token, or the socket; and it is of its file's form."""
    recipe = RECIPES[tool]
    daemon = DAEMON if recipe.tcp else Daemon("some-model", "/run/x.sock")
    text = recipe.text(daemon)
    assert "some-model" in text or tool == "open-webui"
    assert ("127.0.0.1:8080" in text) if recipe.tcp else ("/run/x.sock" in text)
    if recipe.form == "json":
        assert isinstance(json.loads(text), dict)
    if tool == "codex":
        profile = tomllib.loads(text)
        assert profile["model_provider"] in profile["model_providers"]
        assert recipe.file == ".codex/localspec.config.toml"  # where `--profile localspec` looks


@pytest.mark.parametrize("tool", [name for name, one in RECIPES.items() if one.form != "shell"])
@pytest.mark.parametrize("there", [None, "something of the user"])
@pytest.mark.usefixtures("door")
def test_written_and_restored_the_file_is_what_it_was(tool: str, there: str | None) -> None:
    """To the byte, or gone if it was not there; also after writing twice."""
    recipe = RECIPES[tool]
    path = file_of(tool)
    text = None if there is None else json.dumps({"own": there}) if recipe.form == "json" else there
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o640)
    for _ in range(2):
        result = connect(tool, "--write")
        assert result.exit_code == 0, result.stderr
    assert there is None or there in path.read_text()
    assert path.stat().st_mode & 0o777 == (0o600 if there is None else 0o640)
    assert connect(tool, "--restore").exit_code == 0
    assert (path.read_text() if path.exists() else None) == text
    assert "nothing to restore" in connect(tool, "--restore").stdout


@pytest.mark.parametrize("tool", ["codex", "claude-code"])
@pytest.mark.usefixtures("door")
def test_what_a_user_changed_meanwhile_stays(tool: str) -> None:
    """Restoring takes out what is ours, and only as far as it is still ours."""
    path = file_of(tool)
    connect(tool, "--write")
    if tool == "codex":
        path.write_text('model = "mine"\n' + path.read_text())
    else:
        changed = json.loads(path.read_text())
        changed["env"]["ANTHROPIC_MODEL"] = "mine"
        path.write_text(json.dumps(changed))
    connect(tool, "--write" if tool == "codex" else "--no-check")
    assert connect(tool, "--restore").exit_code == 0
    assert "mine" in path.read_text()
    assert "secret" not in path.read_text()


@pytest.mark.usefixtures("door")
def test_a_file_with_comments_is_left_alone() -> None:
    """They would be lost; the keys are printed instead."""
    path = file_of("zed")
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "a": 1\n}\n')
    result = connect("zed", "--write")
    assert result.exit_code == 78
    assert "without --write" in result.stderr
    assert "// mine" in path.read_text()


def test_a_link_stays_a_link(door: Path) -> None:
    """Configurations often lie in a repository of their own."""
    real = door / "dotfiles" / "aider.yml"
    real.parent.mkdir()
    real.write_text("dark-mode: true\n")
    (door / ".aider.conf.yml").symlink_to(real)
    connect("aider", "--write")
    assert (door / ".aider.conf.yml").is_symlink()
    assert "openai-api-base" in real.read_text()


def test_a_tool_that_needs_tcp_says_how(home: Path) -> None:
    """Without an address there is nothing that would work."""
    result = connect("opencode")
    assert result.exit_code == 78
    assert "server.tcp" in result.stderr
    assert list(home.rglob("opencode.json")) == []


@pytest.mark.parametrize("tool", [name for name, recipe in RECIPES.items() if recipe.file])
@pytest.mark.parametrize("elsewhere", ["", "other/config"])
def test_nothing_is_left_of_what_was_written_and_undone(
    door: Path, monkeypatch: pytest.MonkeyPatch, tool: str, elsewhere: str
) -> None:
    """Under the usual directory of configurations or another; made directories go, too."""
    if elsewhere:
        monkeypatch.setenv("LOCALSPEC_CONFIG", str(paths.config_file()))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(door / elsewhere))
    before = sorted(door.rglob("*"))
    assert connect(tool, "--write").exit_code == 0
    assert file_of(tool).is_relative_to(door)
    assert connect(tool, "--write").exit_code == 0
    assert connect(tool, "--restore").exit_code == 0
    left = [each for each in sorted(door.rglob("*")) if each.name != "connections"]
    assert left == before


@pytest.mark.parametrize("answer", ["y\n", "--yes"])
def test_a_door_is_opened_when_it_is_needed_and_closed_again(home: Path, answer: str) -> None:
    """With everything that the configuration said before; the last tool closes it."""
    config = paths.config_file()
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n[chat]\nkeep = false\n")
    paths.make_private(paths.state_dir())
    (paths.state_dir() / "token").write_text("secret\n")
    yes, typed = (["--yes"], "") if answer == "--yes" else ([], answer)
    arguments = ["connect", "--no-check", "opencode", "--write", *yes]
    result = CliRunner().invoke(cli, arguments, input=typed)
    assert result.exit_code == 0, result.stderr
    address = tomllib.loads(config.read_text())["server"]["tcp"]
    assert address.startswith("127.0.0.1:80")
    assert f"opened: {address}" in result.stderr
    assert address in file_of("opencode").read_text()
    assert connect("llm", "--write").exit_code == 0  # through the same door, unasked
    assert "closed" not in connect("opencode", "--restore").stdout
    assert f"closed: {address}" in connect("llm", "--restore").stdout
    assert config.read_text() == "# mine\n[chat]\nkeep = false\n"
    assert list(home.rglob("opencode.json")) == []


def test_a_door_is_closed_later_where_the_configuration_has_a_mistake(home: Path) -> None:
    """That it was opened here is not forgotten meanwhile."""
    config = home / "config" / "localspec" / "config.toml"
    paths.make_private(paths.state_dir())
    (paths.state_dir() / "token").write_text("secret\n")
    assert connect("llm", "--write", "--yes").exit_code == 0
    opened = config.read_text()
    config.write_text(f"slot = 2\n{opened}")
    assert connect("llm", "--restore").exit_code == 78
    config.write_text(opened)
    assert "closed: 127.0.0.1" in connect("llm", "--restore").stdout
    assert "tcp" not in config.read_text()


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_a_door_that_is_not_wanted_stays_closed(home: Path, answer: str) -> None:
    """Nothing is written anywhere."""
    result = CliRunner().invoke(cli, ["connect", "zed", "--write"], input=answer)
    assert result.exit_code == 78
    assert "Open 127.0.0.1:80" in result.stderr
    assert not paths.config_file().exists()
    assert list(home.rglob("settings.json")) == []


@pytest.mark.usefixtures("door")
def test_a_door_of_the_users_own_is_never_closed() -> None:
    """It was there before any tool."""
    connect("llm", "--write")
    assert connect("llm", "--restore").exit_code == 0
    assert 'tcp = "127.0.0.1:8080"' in paths.config_file().read_text()


@pytest.mark.parametrize("tool", RECIPES)
@pytest.mark.usefixtures("door")
def test_the_file_the_consequences_and_the_way_back_are_told(tool: str) -> None:
    """Printed or written: which file, what redirects every later use, how it is undone."""
    recipe = RECIPES[tool]
    for write in ([], ["--write"]) if recipe.file else ([],):
        told = " ".join(connect(tool, *write).stderr.split())
        assert recipe.redirects in told
        if recipe.file:
            assert str(file_of(tool)) in told
            assert f"localspec connect {tool} --{'restore' if write else 'write'}" in told


@pytest.mark.parametrize(
    ("tool", "variable", "file"),
    [
        ("zed", "XDG_CONFIG_HOME", "zed/settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("minuet", "XDG_CONFIG_HOME", "nvim/after/plugin/localspec-minuet.lua"),
        ("codex", "CODEX_HOME", "localspec.config.toml"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
    ],
)
def test_variables_that_move_a_file_are_followed(
    home: Path, tool: str, variable: str, file: str
) -> None:
    """As the tool itself does; one that is not absolute is none."""
    path = RECIPES[tool].path
    assert path(home, {variable: f"{home}/else"}) == home / "else" / file
    assert path(home, {variable: "else"}) == path(home, {}) == home / str(RECIPES[tool].file)


def test_a_file_that_is_elsewhere_is_found(home: Path) -> None:
    """Where the editor looks first, for those that look in several places."""
    path = RECIPES["gptel"].path
    assert path(home, {}) == home / ".emacs.d/init.el"
    (home / ".config/emacs").mkdir(parents=True)
    (home / ".config/emacs/init.el").touch()
    assert path(home, {}) == home / ".config/emacs/init.el"
    (home / ".emacs").touch()
    assert path(home, {}) == home / ".emacs"


def test_it_is_checked_with_a_request(peer: Peer) -> None:
    """The way the tool will ask: here through the socket, and with the model that it will name."""
    peer.streams = [answer("yes")]
    result = CliRunner().invoke(cli, ["connect", "gptel", "--model", "tiny"])
    assert result.exit_code == 0, result.stderr
    assert "--unix-socket" in result.stdout
    assert "checked: tiny answers" in result.stderr
    assert [one.body["model"] for one in peer.asked if one.body] == ["tiny"]


def test_agents_are_told_how_much_a_conversation_may_have(
    door: Path,  # noqa: ARG001  a token
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Room for an answer fits in as well; without a check the context is left out."""
    with Peer(tcp=True) as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
        paths.config_file().write_text(f'[server]\ntcp = "{peer.host}"\n')
        peer.streams = [answer("yes"), answer("yes")]
        peer.models = [{"id": "tiny", "meta": {"n_ctx": 5000}}]
        for tool in ("claude-code", "opencode"):
            unchecked = connect(tool, "--model", "tiny").stdout
            assert "1250" not in unchecked
            checked = CliRunner().invoke(cli, ["connect", tool, "--model", "tiny"])
            assert checked.exit_code == 0, checked.stderr
            assert "5000" in checked.stdout
            assert "1250" in checked.stdout
