"""The daemon as a process: start, signals, end, and messages to the service manager."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.launch import Watch
from localspec.client import Client, End, Event, Piece, Waiting
from localspec.errors import NotRunning, ShuttingDown

SERVE = Path(__file__).with_name("serve.py")
HELLO = [{"role": "user", "content": "say hello"}]
WAIT = [{"role": "user", "content": "wait"}]


class Process:
    """A daemon process that has reported its readiness."""

    def __init__(self, harness: Any, manager: socket.socket, **environment: str) -> None:
        self.harness = harness
        self.manager = manager
        self.client = Client(harness.socket)
        self.popen = subprocess.Popen(
            [sys.executable, SERVE, harness.config_path, harness.socket],
            env=os.environ | {"NOTIFY_SOCKET": manager.getsockname()} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.hear("READY=1\nSTATUS=Listening on ")

    def hear(self, state: str) -> str:
        """Returns the next message to the service manager that begins with `state`."""
        while not (message := self.manager.recv(4096).decode()).startswith(state):
            pass
        return message

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.popen.send_signal(number)

    def end(self) -> str:
        """Waits for an orderly exit and returns its stdout."""
        out, err = self.popen.communicate(timeout=30)
        assert self.popen.returncode == 0, err
        return out

    def worker(self) -> int:
        """Returns the process of the loaded model."""
        return int(self.client.status()["models"][0]["pid"])


@pytest.fixture
def start(harness: Any, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts daemons; kills those that still run at the end."""
    started: list[Process] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        manager.settimeout(30)

        def run(**environment: str) -> Process:
            started.append(Process(harness, manager, **environment))
            return started[-1]

        yield run
        for process in started:
            process.popen.kill()
            process.popen.communicate()


def first_piece(events: Iterator[Event]) -> str:
    """Returns the first text of an answer."""
    return next(event.text for event in events if isinstance(event, Piece))


def at_the_gate(
    harness: Any, start: Callable[[], Process]
) -> tuple[Process, Iterator[Event], Path]:
    """A daemon that drains for long, an answer that waits for a load, and what lets it go on."""
    harness.add("gated")
    harness.configure(models={"default": "gated"}, server={"drain_seconds": 60})
    gate: Path = harness.models / "gated.gguf.fifo"
    os.mkfifo(gate)
    daemon = start()
    events = daemon.client.chat(HELLO)
    assert isinstance(next(events), Waiting)
    return daemon, events, gate


def test_sigterm_ends_an_idle_daemon_with_nothing_left(harness: Any, start: Any) -> None:
    """Exit code 0, no socket, no worker; native code was never imported in this process."""
    daemon = start()
    assert isinstance(list(daemon.client.chat(HELLO))[-1], End)
    worker = daemon.worker()
    with Watch(worker) as watch:
        daemon.signal(signal.SIGTERM)
        daemon.hear("STOPPING=1")
        assert daemon.end() == "native modules: []\n"
        assert watch.wait(10)
    assert not harness.socket.exists()


def test_a_drain_that_is_over_ends_streams_with_a_last_event(harness: Any, start: Any) -> None:
    """A stream that would not end gets `server_shutdown`."""
    harness.configure(server={"drain_seconds": 0.1})
    daemon = start()
    events = daemon.client.chat(WAIT)
    assert first_piece(events) == "waiting"
    daemon.signal(signal.SIGTERM)
    with pytest.raises(ShuttingDown):
        list(events)
    daemon.end()


def test_a_drain_lets_answers_finish_and_takes_nothing_new(harness: Any, start: Any) -> None:
    """The running answer is completed; new requests are refused meanwhile."""
    daemon, events, gate = at_the_gate(harness, start)
    daemon.signal(signal.SIGTERM)
    daemon.hear("STOPPING=1")
    with pytest.raises(NotRunning):
        Client(harness.socket).status()
    second = subprocess.run(
        [sys.executable, "-P", "-m", "localspec_daemon", "--socket", harness.socket],
        capture_output=True,
        check=False,
    )
    assert second.returncode == 1
    gate.write_bytes(b"")
    assert first_piece(events) == "hello"
    assert isinstance(list(events)[-1], End)
    daemon.end()


def test_a_second_sigterm_is_obeyed_at_once(harness: Any, start: Any) -> None:
    """A second signal ends the drain."""
    harness.configure(server={"drain_seconds": 3600})
    daemon = start()
    events = daemon.client.chat(WAIT)
    assert first_piece(events) == "waiting"
    daemon.signal(signal.SIGTERM)
    daemon.hear("STOPPING=1")
    daemon.signal(signal.SIGTERM)
    with pytest.raises(ShuttingDown):
        list(events)
    daemon.end()
    assert not harness.socket.exists()


def test_a_killed_daemon_leaves_no_worker_and_the_next_one_starts(harness: Any, start: Any) -> None:
    """Workers end with their channel; the stale socket is replaced."""
    daemon = start()
    list(daemon.client.chat(HELLO))
    with Watch(daemon.worker()) as watch:
        daemon.signal(signal.SIGKILL)
        assert watch.wait(10)
    assert harness.socket.exists()
    assert isinstance(list(start().client.chat(HELLO))[-1], End)


def test_a_killed_worker_ends_neither_its_stream_nor_the_daemon(start: Any) -> None:
    """After SIGKILL in mid-stream, a comment gives the reason and the stream continues."""
    daemon = start()
    events = daemon.client.chat(WAIT)
    assert first_piece(events) == "waiting"
    before = daemon.client.status()
    os.kill(daemon.worker(), signal.SIGKILL)
    assert next(events) == Waiting("going on with another worker after SIGKILL")
    events.close()
    assert isinstance(list(daemon.client.chat(HELLO))[-1], End)
    after = daemon.client.status()
    assert after["pid"] == before["pid"]
    assert after["models"][0]["last_crash"] == "SIGKILL"


def test_of_two_daemons_that_start_at_once_one_serves(harness: Any, start: Any) -> None:
    """The other ends with exit code 1 and names the socket's owner."""
    daemon = start()
    racers = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "localspec_daemon", "--socket", harness.socket],
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for racer in racers:
        _, err = racer.communicate(timeout=30)
        assert (racer.returncode, b"Another daemon owns" in err) == (1, True)
    assert daemon.client.status()["pid"] == daemon.popen.pid


def test_a_bad_configuration_keeps_a_daemon_from_starting(harness: Any) -> None:
    """Exit code 78, which the service manager does not restart, and the nearest valid key."""
    harness.config_path.write_text("[server]\nkeep_alife = '1m'\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "localspec_daemon",
         "--config", harness.config_path, "--socket", harness.socket],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 78
    assert "Did you mean server.keep_alive?" in done.stderr
    assert not harness.socket.exists()


def test_signals_at_any_moment_end_the_daemon_in_order(harness: Any, start: Any) -> None:
    """SIGTERM while clients come and go: exit code 0, and every client gets an end."""
    harness.configure(server={"drain_seconds": 0.05})
    for moment in range(8):
        daemon = start()
        ends: list[object] = []

        def client(daemon: Process = daemon, ends: list[object] = ends) -> None:
            try:
                ends.append(list(daemon.client.chat(HELLO))[-1])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is an end
                ends.append(error)

        threads = [threading.Thread(target=client) for _ in range(moment)]
        for thread in threads:
            thread.start()
        daemon.signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        assert len(ends) == moment
        daemon.hear("STOPPING=1")
        daemon.end()


def test_the_watchdog_is_fed_while_idle_and_not_while_nothing_moves(start: Any) -> None:
    """The event loop feeds it: an idle daemon stays alive, a blocked one is noticed."""
    daemon = start(WATCHDOG_USEC="400000")
    for _ in range(3):
        assert daemon.hear("WATCHDOG=1") == "WATCHDOG=1"
    daemon.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.popen.pid, os.WSTOPPED)
    daemon.manager.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        daemon.hear("nothing but what was said before")
    daemon.manager.settimeout(1.0)
    with pytest.raises(TimeoutError):
        daemon.hear("")
    daemon.signal(signal.SIGCONT)
    daemon.manager.settimeout(30.0)
    daemon.hear("WATCHDOG=1")


def test_a_watchdog_of_another_process_is_not_fed(start: Any) -> None:
    """Such as that of a service which started the daemon as its child."""
    daemon = start(WATCHDOG_USEC="1000", WATCHDOG_PID="1")
    list(daemon.client.chat(HELLO))
    daemon.signal(signal.SIGTERM)
    while not (said := daemon.hear("")).startswith("STOPPING=1"):
        assert "WATCHDOG" not in said


def test_a_reload_is_told_from_its_beginning_to_its_end(harness: Any, start: Any) -> None:
    """It has the start time that notify-reload needs, also when the file is invalid."""
    daemon = start()
    before = time.monotonic_ns() // 1000
    for text, says in (("[modles]", "has a mistake"), ("", "no model is loaded")):
        harness.config_path.write_text(text)
        daemon.signal(signal.SIGHUP)
        state, began = daemon.hear("RELOADING=1").split("\n")
        assert state == "RELOADING=1"
        assert before < int(began.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        assert says in daemon.hear("READY=1")


def test_the_status_line_says_what_is_loaded_and_how_far(harness: Any, start: Any) -> None:
    """`systemctl status` shows it; a drain requests its time when it begins."""
    daemon, events, gate = at_the_gate(harness, start)
    daemon.hear(f"STATUS=Listening on {harness.socket}; loading gated (42%)")
    gate.write_bytes(b"")
    daemon.hear(f"STATUS=Listening on {harness.socket}; gated is ready, 1 open")
    list(events)
    daemon.hear(f"STATUS=Listening on {harness.socket}; gated is ready")
    daemon.signal(signal.SIGTERM)
    asked = daemon.hear("STOPPING=1").rpartition("EXTEND_TIMEOUT_USEC=")[2]
    assert int(asked) > 60e6
    daemon.end()
