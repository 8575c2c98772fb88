"""Every command, however it is started: streams closed, no home, no locale, no directory."""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
import tiny
from click.testing import CliRunner
from serving import DaemonHome

from localspec import paths
from localspec.cli.main import cli
from localspec.errors import ConfigError

COMMANDS = [
    ["--version"], ["models", "list"], ["config", "check"], ["socket"], ["chats", "list"],
    ["completion", "bash"], ["presets", "save", "x"], ["models", "rm", "nope"], ["nonsense"],
]  # fmt: skip
CLOSED = [some for count in range(4) for some in itertools.combinations(range(3), count)]


def ended(words: list[str], shell: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command that a shell has started, with its streams as `shell` says."""
    code = "import sys; from localspec.cli.main import main; sys.argv[0] = 'localspec'; main()"
    line = f'exec "$0" -c "$1" {" ".join(words)} {shell}'
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, code],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Directories of a user's own, without a daemon."""
    kinds = ("CACHE_HOME", "STATE_HOME", "DATA_HOME", "CONFIG_HOME", "RUNTIME_DIR")
    return {"HOME": str(tmp_path), **{f"XDG_{kind}": str(tmp_path / kind) for kind in kinds}}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_ends_with_the_same_code_whichever_streams_are_closed(
    places: dict[str, str], words: list[str]
) -> None:
    """And without a traceback, also where it cannot be told."""
    codes = set()
    for closed in CLOSED:
        shell = " ".join("0<&-" if number == 0 else f"{number}>&-" for number in closed)
        done = ended(words, shell, **places)
        assert b"Traceback" not in done.stdout + done.stderr
        assert b"lost sys." not in done.stderr
        codes.add(done.returncode)
    assert len(codes) == 1
    assert codes < {0, 1, 2, 65, 69, 75, 77, 78}


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "TERM": ""},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"},
        {"HOME": "/etc/passwd", "XDG_STATE_HOME": "/etc/passwd/x", "XDG_CACHE_HOME": "/etc/passwd"},
        {"HOME": "", "XDG_RUNTIME_DIR": "/nowhere"},
    ],
    ids=["C", "ascii", "read-only", "a-file", "empty"],
)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_ends_with_an_answer_or_a_sentence_in_any_environment(
    places: dict[str, str], words: list[str], environment: dict[str, str]
) -> None:
    """A service manager's, cron's, a container's."""
    done = ended(words, "", **(places | environment))
    said = done.stdout + done.stderr
    assert b"Traceback" not in said
    assert done.returncode in {0, 1, 2, 65, 69, 75, 77, 78}
    assert said.strip() or done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("words", [["models", "list"], ["socket"], ["openapi"]], ids=" ".join)
def test_what_has_no_room_for_its_output_says_so(places: dict[str, str], words: list[str]) -> None:
    """In a sentence and an exit code, also a command that another program does."""
    done = ended(words, ">/dev/full", **places)
    assert done.returncode == 69
    assert b"Traceback" not in done.stderr
    assert b"There is no room" in done.stderr


def test_a_file_in_the_place_of_the_models_is_named(places: dict[str, str]) -> None:
    """It is what is wrong, and not a file that would be in it."""
    done = ended(["models", "list"], "", **places, LOCALSPEC_MODELS="/etc/passwd")
    assert done.returncode == 78
    assert b"/etc/passwd, where models are kept, is no directory" in done.stderr
    assert b"LOCALSPEC_MODELS" in done.stderr


def test_a_directory_that_is_gone_is_no_matter(places: dict[str, str]) -> None:
    """Where it was started from."""
    gone = tempfile.mkdtemp()
    for words in COMMANDS:
        line = f'mkdir -p {gone}; cd {gone}; rmdir {gone}; exec "$0" -c "$1" {" ".join(words)}'
        code = "import sys; from localspec.cli.main import main; sys.argv[0] = 'localspec'; main()"
        command = ["/bin/sh", "-c", line, sys.executable, code]
        done = subprocess.run(
            command, env=os.environ | places, capture_output=True, timeout=300, check=False
        )
        assert b"Traceback" not in done.stdout + done.stderr, words
        assert done.returncode in {0, 1, 2, 65, 69, 75, 77, 78}


def test_a_user_without_a_home_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a number for a user; nothing called ~ is made."""

    def nobody(_uid: int) -> NoReturn:
        raise KeyError

    for name in ("HOME", *(f"XDG_{one}_HOME" for one in ("CACHE", "STATE", "DATA", "CONFIG"))):
        monkeypatch.delenv(name, raising=False)
    for name in ("LOCALSPEC_CONFIG", "LOCALSPEC_MODELS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for place in (
        paths.config_file,
        paths.models_dir,
        paths.state_dir,
        paths.cache_dir,
        paths.home,
    ):
        with pytest.raises(ConfigError, match="HOME is not set"):
            place()
    for words in (["status"], ["models", "list"], ["config", "check"], ["chats", "list"]):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 78, words
        assert "HOME is not set" in result.stderr


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-", "1>&- 2>&-"])
def test_the_daemon_serves_whichever_streams_are_closed(tmp_path: Path, closed: str) -> None:
    """Until it is told to end: `localspec serve 2>&-` died without a word."""
    harness: Any = DaemonHome(tmp_path, tiny.build(tmp_path / "tiny.gguf"))
    harness.add("alpha")
    harness.configure()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        manager.settimeout(300)
        where = f"--config {harness.config_path} --socket {harness.socket}"
        line = f'exec "$0" -m localspec_daemon {where}'
        environment = {"NOTIFY_SOCKET": manager.getsockname(), "XDG_STATE_HOME": str(tmp_path)}
        command = ["/bin/sh", "-c", f"{line} {closed}", sys.executable]
        with subprocess.Popen(command, env=os.environ | environment) as process:
            try:
                while not manager.recv(4096).startswith(b"READY=1"):
                    pass
                process.send_signal(signal.SIGTERM)
                assert process.wait(120) == 0
            finally:
                process.kill()
