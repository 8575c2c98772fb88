"""A real worker process on a tiny model, spoken to in frames."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from localspec.config import Config, Engine, Placement
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire import frames
from localspec.wire.messages import (
    Command,
    Delta,
    Event,
    Failed,
    Finished,
    Generate,
    Heartbeat,
    Load,
    Quit,
    Ready,
    Replay,
    Replayed,
    Started,
)
from localspec.worker.assemble import Loaded
from localspec.worker.service import Service

E = TypeVar("E", bound=Event)

GREEDY = SamplingParams(temperature=0)
CONTEXT = 512
PATIENCE_SECONDS = 120
"""Only a worker that hangs takes so long."""


@dataclass
class Heard:
    """Everything a worker said about one request."""

    started: Started | None = None
    deltas: list[Delta] = field(default_factory=list)
    last: Finished | Failed | None = None

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the answer."""
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def finished(self) -> Finished:
        """The last event, which must not be an error."""
        assert isinstance(self.last, Finished), self.last
        return self.last

    @property
    def failed(self) -> Failed:
        """The last event, which must be an error."""
        assert isinstance(self.last, Failed), self.last
        return self.last


class Worker:
    """The supervisor's side, as small as can be: blocking, one reader."""

    def __init__(self, cache: Path) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_SECONDS)
        self.socket = ours
        self.process = subprocess.Popen(
            [sys.executable, "-m", "localspec.worker", "--fd", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "HOME": str(cache)},
        )
        theirs.close()
        self._ready: Ready | None = None
        self._ids = 0

    @property
    def ready(self) -> Ready:
        """The worker's description of itself."""
        assert self._ready is not None
        return self._ready

    def send(self, command: Command) -> None:
        """One command."""
        self.socket.sendall(frames.pack(command))

    def receive(self) -> Event | None:
        """The next event; None at the end of the stream."""
        header = self._read(frames.HEADER_BYTES)
        return (
            None if header is None else frames.event(self._read(frames.body_bytes(header)) or b"")
        )

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    def until(self, stop: Callable[[Event], bool]) -> list[Event]:
        """All events up to the first for which `stop` holds."""
        events: list[Event] = []
        while not events or not stop(events[-1]):
            event = self.receive()
            assert event is not None, f"the worker left: {self.last_words()}"
            events.append(event)
        return events

    def until_ready(self) -> list[Event]:
        """All events of loading."""
        events = self.until(lambda event: isinstance(event, Ready))
        assert isinstance(events[-1], Ready)
        self._ready = events[-1]
        return events

    def request(self, prompt: str | list[int] | None = None, **fields: Any) -> Generate:
        """A greedy completion of 12 tokens, changed by `fields`."""
        self._ids += 1
        defaults: dict[str, Any] = {
            "id": f"r{self._ids}",
            "endpoint": "completion",
            "client": "someone",
            "sampling": GREEDY,
            "speculation": SpeculationParams(),
            "max_tokens": 12,
            "ignore_eos": True,
            "prompt": prompt if isinstance(prompt, str) else None,
            "prompt_tokens": prompt if isinstance(prompt, list) else None,
        }
        return Generate(**{**defaults, **fields})

    def answer(self, *requests: Generate) -> list[Heard]:
        """Send all requests at once and collect what is said about each until all are over."""
        for request in requests:
            self.send(request)
        return self.collect(*(request.id for request in requests))

    def collect(self, *ids: str) -> list[Heard]:
        """The events of these requests until all are over."""
        heard = {id_: Heard() for id_ in ids}
        while not all(one.last for one in heard.values()):
            event = self.receive()
            assert event is not None, f"the worker left: {self.last_words()}"
            if isinstance(event, Started) and event.id in heard:
                heard[event.id].started = event
            elif isinstance(event, Delta) and event.id in heard:
                heard[event.id].deltas.append(event)
            elif isinstance(event, Finished | Failed) and event.id in heard:
                heard[event.id].last = event
        return list(heard.values())

    def one(self, prompt: str | list[int] | None = None, **fields: Any) -> Heard:
        """One request from beginning to end."""
        return self.answer(self.request(prompt, **fields))[0]

    def idle(self) -> Heartbeat:
        """The first heartbeat that tells of no request."""
        events = self.until(
            lambda event: isinstance(event, Heartbeat) and not event.active and not event.waiting
        )
        assert isinstance(events[-1], Heartbeat)
        return events[-1]

    def leave(self) -> int:
        """Close our end and wait for the process; its exit code."""
        self.socket.close()
        return self.process.wait(PATIENCE_SECONDS)

    def last_words(self) -> str:
        """Its standard error, ending it if it still runs."""
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode(errors="replace")[-3000:]

    def close(self) -> None:
        """End the process whatever it does."""
        self.socket.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@dataclass
class Script:
    """A line that answers events with commands, and says Quit when nothing is left to do."""

    first: Sequence[Command]
    answers: Callable[[Event], Sequence[Command]] = lambda _: ()
    tick_seconds: float = 0.001
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._commands: deque[Command] = deque(self.first)
        self._given = 0
        self._open: Counter[str] = Counter()
        self._read = threading.Semaphore(0)

    def send(self, event: Event) -> None:
        """Note it, and queue the answer."""
        if isinstance(event, Finished | Failed | Replayed):
            self._open[event.id] -= 1
        self.events.append(event)
        self._commands.extend(self.answers(event))

    def receive(self, wait_seconds: float) -> Command | None:
        """The next command, once all before it are read; Quit where a real line would wait."""
        if self._commands:
            command = self._commands.popleft()
            if isinstance(command, Generate | Replay):
                self._given += not self._open[command.id]  # of a name that is taken nothing is read
                self._open[command.id] += 1
            return command
        if self._given:
            for _ in range(self._given):
                assert self._read.acquire(timeout=PATIENCE_SECONDS)
            self._given = 0
            return None
        return Quit() if wait_seconds > 0 else None

    def wake(self) -> None:
        """Another request was read."""
        self._read.release()

    def run(self, loaded: Loaded) -> Script:
        """Serve it to its end, on a clock that moves a little each time it is read."""
        ticks = itertools.count()
        Service(loaded, self, lambda: next(ticks) * self.tick_seconds).run()
        return self

    def all(self, kind: type[E], id_: str | None = None) -> list[E]:
        """The events of one kind, and of one request if it is named."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and (id_ is None or getattr(event, "id", None) == id_)
        ]


@dataclass(frozen=True)
class Files:
    """Tiny models on disk."""

    target: Path
    draft: Path
    stranger: Path


def load(files: Files, **engine: Any) -> Load:
    """Load the pair strictly, with 2 slots, changed by `engine`."""
    alone = Placement(threads=1)  # two threads that share a core wait for each other
    settings = {
        "slots": 2,
        "context": CONTEXT,
        "prefill_rows": 32,
        "exactness": "strict",
        "target": alone,
        "draft": alone,
        **engine,
    }
    return Load("tiny", str(files.target), str(files.draft), Config(engine=Engine(**settings)))
