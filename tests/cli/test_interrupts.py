"""A command that is interrupted ends with 130, or of the signal, and never with a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import terminal
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Peer, chunk
from tiny import build
from user_home import UserHome

INTERRUPTED = 130
AT_AN_EVENT = """
import os, signal, sys
number, left = int(sys.argv[1]), int(sys.argv[2])
if os.environ.get("IGNORED"):
    signal.signal(number, signal.SIG_IGN)

def count(event, _):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(number)

from localspec.cli.entry import main
sys.argv = ["localspec", *sys.argv[3:]]
sys.addaudithook(count)
main()
"""
"""Sends a signal to its own process at an event of Python's audit: an import, a file, a socket."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
COMMANDS = [
    ["list"],
    ["models", "verify"],
    ["config", "check"],
    ["chat", "--no-spawn", "hello"],
    ["models", "show", "tiny"],
]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> UserHome:
    """A home with one model, and no daemon."""
    home = UserHome(tmp_path_factory.mktemp("interrupted"))
    build(home.models / "tiny.gguf")
    return home


def at_an_event(
    user: UserHome, number: int, event: int, arguments: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command, interrupted at one event of its life."""
    command = [sys.executable, "-c", AT_AN_EVENT, str(int(number)), str(event), *arguments]
    return subprocess.run(
        command,
        env={**user.environment, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@settings(max_examples=25)
@given(
    st.sampled_from(SIGNALS),
    st.one_of(st.integers(1, 400), st.integers(400, 4000)),
    st.sampled_from(COMMANDS),
)
def test_a_signal_at_any_moment_ends_a_command_quietly(
    user: UserHome, number: int, event: int, arguments: list[str]
) -> None:
    """In imports, work or its end; the exit code says so, unless all was done by then."""
    ended = at_an_event(user, number, event, arguments)
    done = 69 if "chat" in arguments else 0  # no daemon runs
    assert ended.returncode in {INTERRUPTED, -number, done}, ended.stderr
    for word in ("Traceback", "Exception ignored", "Aborted", "A bug"):
        assert word not in ended.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_ignored_from_the_start_stays_ignored(
    user: UserHome, number: int
) -> None:
    """As behind nohup."""
    ended = at_an_event(user, number, 200, ["list"], IGNORED="1")
    assert ended.returncode == 0
    assert "tiny" in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_ended_while_an_answer_streams_leaves_the_terminal_as_it_was(
    peer: Peer, number: int
) -> None:
    """It echoes again, and what was said stands there; the daemon is free."""
    peer.streams = [[chunk("one "), chunk("two")]]
    with terminal.owned("chat", "hi") as (process, handle, before):
        assert process.stdout is not None
        said = b""
        while b"two" not in said:
            said += os.read(process.stdout.fileno(), 100)
        process.send_signal(number)
        rest = process.stdout.read()
        process.wait()
        after = terminal.echoes(handle)
    assert (said + rest, process.returncode) == (b"one two\n", INTERRUPTED)
    assert before is after is True
