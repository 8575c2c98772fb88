"""start, stop, restart, reload, logs and socket with the real daemon as a real process."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from scripted import PATIENCE_SECONDS, Peer

from localspec import config, paths
from localspec.chats.transcript import Conversation
from localspec.cli import launch
from localspec.cli.daemon import SERVICE_LOG
from localspec.cli.main import cli
from localspec.cli.repl import handle
from localspec.cli.talk import Talk
from localspec.client import Client
from localspec.errors import ConfigError, RequestError

LOCALSPEC = (sys.executable, "-m", "localspec.cli.main")


def localspec(*arguments: str) -> Result:
    """`localspec ARGUMENTS`, in process."""
    return CliRunner().invoke(cli, arguments)


def until(fact: Callable[[], bool]) -> None:
    """Look until `fact` holds; fails when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < deadline


@pytest.fixture
def daemon(home: Path) -> Iterator[Client]:
    """The address where a daemon may be started; whatever runs there is stopped afterwards."""
    (home / "config" / "localspec").mkdir(parents=True)
    (home / "config" / "localspec" / "config.toml").write_text("[server]\ndrain_seconds = 1.0\n")
    client = Client.from_environment()
    yield client
    launch.stop(client, drain_seconds=1.0)


def test_start_prints_where_it_listens_and_twice_is_fine(daemon: Client) -> None:
    """Pid and socket, exit code 0 both times, one daemon."""
    first = localspec("start")
    assert first.exit_code == 0, first.stderr
    pid = daemon.status()["pid"]
    assert first.stdout == f"started: pid {pid}, socket {daemon.socket_path}\n"
    assert localspec("start").stdout.startswith(f"already running: pid {pid},")


def test_the_daemon_outlives_the_terminal_that_started_it(daemon: Client) -> None:
    """It leads a session of its own and holds none of our streams."""
    started = subprocess.run([*LOCALSPEC, "start"], check=True, capture_output=True)
    pid = daemon.status()["pid"]
    assert f"pid {pid}".encode() in started.stdout
    assert os.getsid(pid) == pid


def test_two_starts_at_once_end_with_one_daemon(daemon: Client) -> None:
    """Both succeed and both name the same process."""
    starts = [
        subprocess.Popen([*LOCALSPEC, "start"], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [start.communicate(timeout=PATIENCE_SECONDS)[0] for start in starts]
    assert [start.returncode for start in starts] == [0, 0]
    assert all(f"pid {daemon.status()['pid']}," in line for line in said)


def test_stop_waits_until_the_daemon_has_gone(daemon: Client) -> None:
    """After it the socket is gone; a second stop has nothing to do."""
    localspec("start")
    pid = daemon.status()["pid"]
    assert localspec("stop").stdout == f"stopped: pid {pid}\n"
    assert daemon.socket_path is not None
    assert not daemon.socket_path.exists()
    assert localspec("stop").stdout == "not running\n"


def test_a_start_waits_for_the_daemon_that_ends(daemon: Client) -> None:
    """That one has closed its socket already, and keeps the lock until its answers are over."""
    assert daemon.socket_path is not None
    paths.make_private(daemon.socket_path.parent)
    old = paths.create(daemon.socket_path.with_name(f"{daemon.socket_path.name}.lock"))
    fcntl.flock(old, fcntl.LOCK_EX)
    said = []

    def tell(text: str) -> None:
        said.append(text)
        if "ending" in text:
            fcntl.flock(old, fcntl.LOCK_UN)

    try:
        assert launch.start(daemon, tell)["pid"] == daemon.status()["pid"]
    finally:
        os.close(old)
    assert "waiting for the daemon that is ending" in said


def test_restart_is_a_new_process(daemon: Client) -> None:
    """Also where none ran before."""
    assert localspec("restart").exit_code == 0
    before = daemon.status()["pid"]
    assert localspec("restart").exit_code == 0
    assert daemon.status()["pid"] != before


def test_a_daemon_that_dies_while_starting_is_quoted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in the message, not only in a file somewhere."""
    (home / "in-the-way").write_text("precious")
    monkeypatch.setenv("LOCALSPEC_HOST", f"unix://{home}/in-the-way")
    result = localspec("start")
    assert result.exit_code == 69
    assert "exit code 78" in result.stderr
    assert "is not a socket" in result.stderr
    assert (home / "in-the-way").read_text() == "precious"


def test_chat_starts_the_daemon_when_needed(daemon: Client) -> None:
    """Without a model the answer is the command that gets one, and the daemon stays."""
    result = localspec("chat", "hi")
    assert result.exit_code == 2
    assert "localspec models pull" in result.stderr
    assert daemon.status()["pid"]


def test_a_command_waits_for_the_daemon_that_the_chat_starts(daemon: Client) -> None:
    """/model as the first line waits, and gives no advice to start the daemon."""
    talk = Talk(Conversation(), spawn=True, console=Console(file=io.StringIO()))
    talk.open()
    with pytest.raises(RequestError, match=r'no model "other"'):
        handle(talk, "/model other")
    handle(talk, "/model")
    assert daemon.status()["pid"]


def test_reload_refuses_a_mistake_and_tells_the_daemon_otherwise(daemon: Client) -> None:
    """The running daemon takes a good file and never sees a bad one through this command."""
    localspec("start")
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "localspec" / "config.toml"
    config.write_text("[server]\nmemory_bytes = 2\n")
    assert localspec("reload").exit_code == 0
    assert daemon.status()["memory_bytes"] == 2  # in force when the command has ended
    config.write_text("[server]\nmemory_bytes = -1\n")
    result = localspec("reload")
    assert result.exit_code == 78
    assert "server.memory_bytes" in result.stderr


def test_reload_without_a_daemon_is_exit_code_69() -> None:
    """There is nothing to tell."""
    assert localspec("reload").exit_code == 69


def test_socket_prints_the_path_for_other_programs(daemon: Client) -> None:
    """The one where the daemon will listen."""
    assert localspec("socket").stdout == f"{daemon.socket_path}\n"


def test_a_daemon_of_another_machine_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid would be another process here."""
    with Peer(tcp=True) as peer:
        monkeypatch.setenv("LOCALSPEC_HOST", peer.host)
        result = localspec("stop")
    assert result.exit_code == 2
    assert "may run elsewhere" in result.stderr


def test_what_ignores_the_request_to_end_is_killed() -> None:
    """After the drain and its margin."""
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Peer(status={"pid": process.pid}) as peer:
            launch.stop(Client(peer.socket_path), drain_seconds=0.0, margin_seconds=0.0)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_a_zombie_has_ended() -> None:
    """Waiting for a daemon whose parent never reads its exit code does not take for ever."""
    with (
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process,
        launch.Watch(process.pid) as watch,
    ):
        assert not watch.wait(0.0)
        watch.signal(signal.SIGTERM)
        assert watch.wait(PATIENCE_SECONDS)
        watch.signal(signal.SIGTERM)


def test_the_log_is_bounded_and_keeps_what_came_last(home: Path) -> None:
    """Past its limit it moves to `.1`, and a process that has it open writes on."""
    log = home / "daemon.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old line\n" + b"x" * 100)
        launch.bound_log(log, limit_bytes=1000)
        assert log.stat().st_size == 109
        launch.bound_log(log, limit_bytes=100)
        writer.write(b"new")
    assert log.read_bytes() == b"new"
    assert log.with_name("daemon.log.1").read_bytes() == b"x" * 100
    launch.bound_log(home / "missing")


def write_log(text: str) -> Path:
    """A log as a daemon leaves it."""
    log = launch.log_file()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return log


def test_logs_shows_the_last_lines() -> None:
    """-n says how many."""
    write_log("".join(f"line {n}\n" for n in range(100)))
    assert localspec("logs").stdout.splitlines() == [f"line {n}" for n in range(50, 100)]
    assert localspec("logs", "-n", "1").stdout == "line 99\n"


def test_logs_follows_also_when_the_log_is_emptied() -> None:
    """-f prints what is added, before and after a rotation; Ctrl-C ends it with 130."""
    log = write_log("first\n")
    command = [*LOCALSPEC, "logs", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        with log.open("a") as writer:
            writer.write("second line\n")
        assert process.stdout.readline() == "second line\n"
        os.truncate(log, 0)
        with log.open("a") as writer:
            writer.write("third\n")
        assert process.stdout.readline() == "third\n"
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def test_no_log_names_the_other_place_to_look() -> None:
    """A service manager keeps the log where it keeps all of them."""
    result = localspec("logs")
    assert result.exit_code == 1
    assert SERVICE_LOG in result.stderr


def test_a_typo_in_the_configuration_does_not_disable_the_commands(
    home: Path,
) -> None:
    """They warn in a line and find the daemon where the last good file put it; restart refuses."""
    file = home / "config" / "localspec" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[server]\nsocket = "{home}/s/ls.sock"\ndrain_seconds = 1.0\n')
    moved = Client.from_environment()
    try:
        assert localspec("start").exit_code == 0
        file.write_text("contxt = 256\n")
        for command in (["status"], ["socket"], ["models", "list"], ["start"]):
            done = localspec(*command)
            assert done.exit_code == 0, done.stderr
            assert done.stderr.count("unknown key contxt") == 1
            assert "\n" not in done.stderr.strip()
        assert localspec("socket").stdout == f"{home}/s/ls.sock\n"
        assert localspec("restart").exit_code == 78
        assert moved.status()["pid"]
        assert localspec("stop").stdout.startswith("stopped")
    finally:
        launch.stop(moved, drain_seconds=1.0)


@pytest.mark.parametrize(
    "command", [("start",), ("serve",), ("restart",), ("chat", "hi"), ("config", "check"),
                ("config", "show"), ("config", "set", "engine.slots", "2"), ("tune",), ("web",)],
)  # fmt: skip
@pytest.mark.parametrize("text", [b"[server]\n\nmax_que = 2\n", b"a = 1\n[server\n", b"\n\n\xff"])
def test_what_needs_the_configuration_refuses_a_wrong_one_in_the_same_sentence(
    home: Path, command: tuple[str, ...], text: bytes
) -> None:
    """Once, with file and line, by its exit code, and no daemon is started to find it out."""
    file = home / "config" / "localspec" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    with pytest.raises(ConfigError) as told:
        config.load(file)
    done = localspec(*command)
    assert done.exit_code == 78
    assert "".join(done.stderr.split()).count("".join(str(told.value).split())) == 1
    assert f"{file}:" in done.stderr
    assert not launch.log_file().exists()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize(
    ("place", "command"),
    [("STATE", ("start",)), ("STATE", ("chat", "hi")), ("CONFIG", ("service", "install"))],
)
def test_a_home_that_cannot_be_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, place: str, command: tuple[str, ...]
) -> None:
    """No traceback, and the place is named."""
    monkeypatch.setenv(f"XDG_{place}_HOME", "/proc/home")  # which root cannot write either
    done = localspec(*command)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert "/proc/home" in said[0]
