"""Tab: what it offers, by click's protocol in a process of its own, and in real shells."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import tiny
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from scripted import Peer

from localspec.bench import tables
from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli import help as help_page
from localspec.cli.connect import RECIPES
from localspec.cli.main import COMMANDS, cli

DOCS = Path(__file__).resolve().parents[2] / "docs"
LOCALSPEC = (sys.executable, "-m", "localspec.cli.main")


def offered(words: str) -> list[str]:
    """Completions for bash at the end of `words`; a complete last word ends with a space."""
    typed = words.split()
    done = subprocess.run(
        LOCALSPEC,
        env=os.environ
        | {
            "_LOCALSPEC_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(typed) if words.endswith(" ") else len(typed) - 1),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.fixture
def models(home: Path) -> Path:
    """A models directory with a model called zephyr; nothing of a daemon is anywhere."""
    directory = home / "data" / "localspec" / "models"
    directory.mkdir(parents=True)
    tiny.build(directory / "zephyr.gguf")
    return directory


def test_models_are_those_that_are_here_and_those_of_upstreams(home: Path, models: Path) -> None:
    """Also after they have changed, and while the configuration has a mistake."""
    assert offered("localspec chat -m ") == ["zephyr"]
    shutil.copy(models / "zephyr.gguf", models / "yak.gguf")
    assert offered("localspec models show Z") == ["zephyr"]
    config = home / "config" / "localspec" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[upstream.rack]\nurl = "http://10.0.0.3:8000/v1"\nmodels = ["yeti"]\n')
    assert offered("localspec connect codex --model y") == ["yak", "yeti"]
    config.write_text("contxt = 256\n")
    assert offered("localspec bench -m y") == ["yak"]


@pytest.mark.usefixtures("models")
def test_the_daemon_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab is as quick where none runs, and starts none."""
    with Peer() as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
        assert offered("localspec chat -m z") == ["zephyr"]
        assert peer.asked == []


def test_every_other_name_is_offered_where_it_is_asked_for() -> None:
    """Commands, conversations, presets, slices after a comma, machines, tools."""
    assert offered("localspec ") == list(COMMANDS)
    assert offered("localspec worker") == ["worker-host"]
    archive.keep(Conversation(name="rhubarb", turns=[{"role": "user", "content": "pie"}]))
    assert offered("localspec chat --chat ") == offered("localspec chats show r") == ["rhubarb"]
    assert "@translate" in offered("localspec chat -s @t")
    assert offered("localspec bench --slices code,sum") == ["code,summarization"]
    assert offered("localspec bench --machine ") == tables.names()
    assert offered("localspec connect ") == list(RECIPES)


@pytest.mark.parametrize(
    "context", list(help_page.commands()), ids=lambda found: found.command_path
)
def test_tab_knows_every_command_and_option(context: click.Context) -> None:
    """Of each command those that its help shows, and no others: one list, told in three ways."""
    path = context.command_path.split()[1:]
    completer = ShellComplete(cli, {}, "localspec", "_LOCALSPEC_COMPLETE")
    offers = [item.value for item in completer.get_completions(path, "--")]
    options = [
        name
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
    assert sorted(offers) == sorted(options)
    shown = CliRunner().invoke(cli, [*path, "--help"]).stdout
    assert [name for name in options if name not in shown] == []
    if isinstance(context.command, click.Group):
        below = [item.value for item in completer.get_completions(path, "")]
        assert below == context.command.list_commands(context)


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{p.name}" for p in DOCS.glob("*.md"))])
def test_the_commands_in_the_documents_are_there(document: str) -> None:
    """Each `localspec ...` that a reader may copy names a command, and options that it has."""
    text = (DOCS.parent / document).read_text(encoding="utf-8")
    for words in re.findall(r"(?m)^\$ (?:.*\| )?localspec ([^#|\n]+)|`localspec ([^`|]+)`", text):
        command: click.Command = cli
        for word in shlex.split(next(filter(None, words)).replace("'", "")):
            if (
                isinstance(command, click.Group)
                and word.islower()
                and word.isalpha() | ("-" in word[1:])
            ):
                found = command.get_command(click.Context(command), word)
                assert found, (document, words)
                command = found
            elif word.startswith("--"):
                known = {
                    name for each in command.params for name in (*each.opts, *each.secondary_opts)
                }
                assert word.partition("=")[0] in known | {"--help"}, (document, words)


SHELLS = {
    "bash": "source ./script; COMP_WORDS=(localspec chat -m z); COMP_CWORD=3;"
    " _localspec_completion localspec; echo ${COMPREPLY[@]}; complete -p localspec >/dev/null",
    "zsh": "compdef() { }; compadd() { print -l -- ${(P)@[-1]} }; source ./script;"
    " words=(localspec chat -m z) CURRENT=4; _localspec_completion",
    "fish": "source ./script; complete -C 'localspec chat -m z'",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.usefixtures("models")
def test_a_shell_that_read_the_script_completes(shell: str, tmp_path: Path) -> None:
    """The script of that shell, in that shell, with a program called localspec on its path."""
    if not (program := shutil.which(shell)):
        pytest.skip(f"there is no {shell} here")
    command = tmp_path / "bin" / "localspec"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {" ".join(LOCALSPEC)} "$@"\n')
    command.chmod(0o755)
    script = subprocess.run(
        [*LOCALSPEC, "completion", shell], capture_output=True, text=True, check=True
    ).stdout
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        [program, "-c", SHELLS[shell]],
        env=os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["zephyr"], done.stderr
