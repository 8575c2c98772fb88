"""The root command: laziness, summaries, errors at the edge, and the page of help."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from terminal import Terminal

from localspec.cli import help as help_page
from localspec.cli.main import COMMANDS, Edge, cli
from localspec.errors import Loading, LocalSpecError, by_code

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"rich", "prompt_toolkit", "aiohttp", "numpy", "msgspec", "llama_cpp", "gguf"}


def run_python(code: str) -> str:
    """The output of a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def loads(*arguments: str, **environment: str) -> set[str]:
    """The modules that `localspec ARGUMENTS` imports, whatever becomes of it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "localspec.cli.main", *arguments],
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in timed}


@pytest.mark.parametrize(
    ("arguments", "words", "light"),
    [
        (["--help"], "", HEAVY),
        (["status"], "", HEAVY),
        (["chat", "hello", "--no-spawn"], "", HEAVY),
        ([], "localspec ", {*HEAVY, "http.client", "asyncio"}),
        ([], "localspec chat -m ", {*HEAVY - {"msgspec"}, "http.client", "asyncio"}),
        ([], "localspec connect ", {*HEAVY, "http.client", "asyncio"}),
    ],
)
def test_what_is_called_often_imports_nothing_heavy(
    arguments: list[str], words: str, light: set[str]
) -> None:
    """Help, status, a question in a pipe, and above all Tab are felt at every call."""
    tab = {"_LOCALSPEC_COMPLETE": "bash_complete", "COMP_WORDS": words}
    asked = tab | {"COMP_CWORD": str(len(words.split()))} if words else {}
    loaded = loads(*arguments, **asked)
    assert "click" in loaded
    assert loaded & light == set()


def test_settings_do_not_wait_for_numpy(home: Path) -> None:
    """Where there is a config.toml, settings are read at every start."""
    (home / "config" / "localspec").mkdir(parents=True)
    (home / "config" / "localspec" / "config.toml").write_text("")
    loaded = loads("status")
    assert "localspec.config" in loaded
    assert loaded & (HEAVY - {"msgspec"}) == set()


def test_a_prompt_stands_before_what_reads_keys_is_loaded() -> None:
    """The prompt of a chat is there at once."""
    shown = run_python(
        "import sys\n"
        "from localspec.cli import chat, talk\n"
        "from localspec.cli.opening import opened\n"
        "from localspec.cli.theme import Theme\n"
        "with opened(Theme()):\n"
        "    print()\n"
        "    print(*sys.modules)\n"
    )
    *_, prompt, modules = shown.splitlines()
    assert prompt.endswith(">>> ")
    assert set(modules.split()) & {*HEAVY, "asyncio", "localspec.cli.repl"} == set()


def test_what_is_typed_while_that_is_loaded_is_read(home: Path) -> None:
    """Keys wait in the terminal."""
    terminal = Terminal(os.environ | {"LOCALSPEC_HOST": f"unix://{home}/nobody.sock"})
    terminal.until(">>>")
    terminal.type("/help\r")
    terminal.until("/regen")
    terminal.leave()


def test_keys_are_read_without_anything_else() -> None:
    """The modules that draw answers and speak HTTP are imported while the user types."""
    loaded = run_python(
        "import sys\n"
        "from prompt_toolkit.application import create_app_session\n"
        "from prompt_toolkit.input import create_pipe_input\n"
        "from prompt_toolkit.output import DummyOutput\n"
        "from localspec.chats import transcript\n"
        "from localspec.cli import chat, repl, talk\n"
        "conversation = transcript.Conversation()\n"
        "with create_pipe_input() as pipe, create_app_session(pipe, DummyOutput()):\n"
        "    pipe.send_text('\\x04')\n"
        "    shown = lambda: print(*sys.modules)\n"
        "    repl.run(talk.Talk(conversation, spawn=False), shown)\n"
    )
    modules = set(loaded.splitlines()[-1].split())
    assert "prompt_toolkit" in modules
    later = {"http.client", "localspec.cli.commands", "localspec.cli.live"}
    assert modules & {*HEAVY - {"prompt_toolkit"}, *later} == set()


def test_a_mistake_in_a_command_is_told_between_words() -> None:
    """In a window of 60 columns, whatever stdout is."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    command = [sys.executable, "-m", "localspec.cli.main", "connect", "nosuch"]
    here = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=here, check=False)
    shown = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "'claude-code', 'open-webui', 'llm'." in shown
    assert max(map(len, shown.splitlines())) <= 60


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_table_is_the_first_line_of_the_help(name: str) -> None:
    """The table exists so that help needs no imports; it must not say something else."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]


def test_the_page_of_help_is_the_help() -> None:
    """docs/help.md is what `python -m localspec.cli.help` writes."""
    assert (ROOT / "docs" / "help.md").read_text(encoding="utf-8") == help_page.page()


class Fixed(Edge):
    """The root group with one command, whatever is asked for."""

    def __init__(self, command: click.Command) -> None:
        super().__init__("fixed")
        self._command = command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:  # noqa: ARG002
        """The one."""
        return self._command


def classes() -> list[type[LocalSpecError]]:
    """Every error there is."""
    found, pending = [], [LocalSpecError]
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending.extend(kind.__subclasses__())
    return found


@pytest.mark.parametrize("kind", classes())
def test_every_error_ends_with_its_exit_code_and_two_lines(kind: type[LocalSpecError]) -> None:
    """The event, its cause and its fix are on stderr; nothing on stdout; no traceback."""

    @click.command()
    def fail() -> None:
        raise kind("It failed because.", fix="do this")

    result = CliRunner().invoke(Fixed(fail), ["fail"])
    assert result.exit_code == kind.exit_code
    assert result.stdout == ""
    assert result.stderr == "error: It failed because.\n  do this\n"
    assert by_code(kind.code).exit_code == kind.exit_code


def test_documented_exit_codes_are_those_of_the_errors() -> None:
    """The epilog of the help lists each exit code that an error can have."""
    shown = CliRunner().invoke(cli, ["--help"]).stdout.split("Exit codes:")[1]
    numbers = {word for word in shown.split() if word.isdigit()}
    assert {str(kind.exit_code) for kind in classes()} <= numbers
    assert Loading.exit_code == 75


def test_an_unknown_command_is_wrong_usage() -> None:
    """Exit code 2, and the name that was not understood."""
    result = CliRunner().invoke(cli, ["caht"])
    assert result.exit_code == 2
    assert "caht" in result.stderr


def test_ctrl_c_ends_with_130() -> None:
    """As shells expect of a command that was interrupted."""

    @click.command()
    def hang() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(Fixed(hang), ["hang"]).exit_code == 130


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    """The script calls `localspec` back with the variable that click listens to."""
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0, result.stderr
    assert "_LOCALSPEC_COMPLETE" in result.stdout


def test_ctrl_c_while_arguments_are_read_ends_a_command_as_later() -> None:
    """With 130; by itself click says "Aborted!" and ends with 1."""

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    option = click.Option(["--now"], is_flag=True, callback=pressed)
    ended = CliRunner().invoke(Edge("localspec", params=[option]), ["--now", "list"])
    assert (ended.exit_code, ended.output.strip()) == (130, "")
