"""Compiles templates and grammars from outside in child processes that may die.

A child does one job at a time; there are as many children as jobs at once. Each job is bounded in
processor time, after which the kernel ends the child, and in new memory. A job that the child does
not survive is an error of that job alone; the next one gets a new child.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from localspec.errors import LocalSpecError, RequestError, by_code
from localspec.text import grammar, template
from localspec.text.formats import values
from localspec.text.grammar import Compiled, Source
from localspec.text.template import Conversation, Rendered
from localspec.worker import process

NICE = 5
"""The child has a lower priority than the engine: no token waits for a template."""

_KEPT = 2
"""Children kept for the next jobs: one renders a template while another compiles a grammar."""

WALL_SECONDS = 20.0
"""A child that is silent for this long hangs without using processor time, and is killed."""

_STATM = Path("/proc/self/statm")
_LENGTH = struct.Struct(">I")
_MAX_OUTCOME_BYTES = 64 << 20
"""More than the longest prompt that a template may write, at four bytes a character."""


class Bounds(NamedTuple):
    """The bounds of one job."""

    cpu_seconds: float
    memory_bytes: int


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The error that a job raised; `code` is of `errors.py`."""

    code: str
    message: str
    fix: str
    param: str | None


class Sources(msgspec.Struct, frozen=True, tag="grammars"):
    """The grammars of one request: one job, so that one bound holds for all together."""

    sources: list[Source]


class AllCompiled(msgspec.Struct, frozen=True, tag="all"):
    """The compiled grammars, in the order of their sources."""

    grammars: list[Compiled]


class Written(msgspec.Struct, frozen=True, tag="template"):
    """A `Conversation` as JSON: arguments may have integers that msgpack has not."""

    text: str


Job: TypeAlias = Source | Sources | Written
Outcome: TypeAlias = Compiled | AllCompiled | Rendered | Refusal

GRAMMAR_BOUNDS = Bounds(2.0, 512 << 20)
GRAMMARS_BOUNDS = Bounds(8.0, 512 << 20)
"""For all functions of a request: agents have a hundred, and one takes some 50 ms."""
TEMPLATE_BOUNDS = Bounds(1.0, 256 << 20)

_jobs: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)
_outcomes: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)
_Wanted = TypeVar("_Wanted", Compiled, AllCompiled, Rendered)


class SandboxDied(Exception):
    """The child did not survive a job; the text is the reason, as a predicate for "it"."""


class Sandbox:
    """The parent's end of all children, which are started when needed. Any thread.

    Jobs raise SandboxDied, or the error that the job itself raised.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Child] = []

    def prepare(self) -> None:
        """Start the child of the first job, if it can be: it takes a fifth of a second to begin."""
        child = _Child()
        with contextlib.suppress(OSError), self._lock:
            child.start()
            self._idle.append(child)

    @property
    def pid(self) -> int | None:
        """The process of the next job's child, if there is one."""
        return self._idle[-1].pid if self._idle else None

    def compile(self, source: Source) -> Compiled:
        """The grammar, compiled by `grammar.compiled` in the child."""
        return self._done(source, Compiled, GRAMMAR_BOUNDS)

    def compile_all(self, sources: Sequence[Source]) -> list[Compiled]:
        """The grammars, compiled by `grammar.compiled` in one job."""
        return self._done(Sources(list(sources)), AllCompiled, GRAMMARS_BOUNDS).grammars

    def render(self, conversation: Conversation) -> str:
        """The prompt, rendered by `template.rendered` in the child."""
        written = values.written(msgspec.structs.asdict(conversation))
        return self._done(Written(written), Rendered, TEMPLATE_BOUNDS).text

    def close(self) -> None:
        """End the children. No job is running."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _done(self, job: Job, wanted: type[_Wanted], bounds: Bounds) -> _Wanted:
        with self._borrowed() as child:
            outcome = child.outcome(msgspec.msgpack.encode(job), bounds)
        if isinstance(outcome, Refusal):
            kind = by_code(outcome.code)
            raise kind(outcome.message, fix=outcome.fix, param=outcome.param)
        if not isinstance(outcome, wanted):
            raise SandboxDied("answers something else")
        return outcome

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Child]:
        """The child used last, or a new one; children beyond `_KEPT` end after their job."""
        with self._lock:
            child = self._idle.pop() if self._idle else _Child()
        try:
            yield child
        finally:
            with self._lock:
                spare = len(self._idle) >= _KEPT
                if not spare:
                    self._idle.append(child)
            if spare:
                child.close()


class _Child:
    """One child, for one thread at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Its process, if there is one."""
        return self._child.pid if self._child else None

    def close(self) -> None:
        """End it."""
        self._end()

    def outcome(self, packed: bytes, bounds: Bounds) -> Outcome:
        """The child's answer; a second child gets the job if the first was killed from outside."""
        while True:
            fresh, connection = self.start()
            try:
                _send(connection, packed)
                return _outcomes.decode(_receive(connection, _MAX_OUTCOME_BYTES))
            except (OSError, EOFError, msgspec.DecodeError) as error:
                returncode = self._end()
                hung = isinstance(error, TimeoutError)
                if fresh or hung or returncode != -signal.SIGKILL:
                    raise SandboxDied(_cause(returncode, bounds)) from error

    def start(self) -> tuple[bool, socket.socket]:
        """Start its process if there is none: whether that is a new one, and the connection."""
        if self._connection is not None and self._child is not None and self._child.poll() is None:
            return False, self._connection
        self._end()
        ours, theirs = socket.socketpair()
        ours.settimeout(WALL_SECONDS)
        with theirs:
            self._child = subprocess.Popen(  # noqa: S603 - this file, by the same interpreter
                [sys.executable, "-P", "-m", __name__, "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a worker's last lines there must be its own
            )
        self._connection = ours
        return True, ours

    def _end(self) -> int:
        """End the child. Returns its exit code."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._child is None:
            return 0
        try:
            returncode = self._child.wait(timeout=0.1)  # mostly it has ended already
        except subprocess.TimeoutExpired:
            self._child.kill()
            returncode = self._child.wait()
        self._child = None
        return returncode


def main() -> None:
    """The child: jobs in, outcomes out, until the parent's end is closed."""
    parser = argparse.ArgumentParser(prog="localspec.worker.sandbox", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="an open socket to the parent")
    connection = socket.socket(fileno=parser.parse_args().fd)
    process.expendable()
    os.nice(NICE)
    with contextlib.suppress(OSError, EOFError):
        while True:
            _send(connection, msgspec.msgpack.encode(_outcome(_receive(connection))))


def _outcome(packed: bytes) -> Outcome:
    """The outcome of a job within its bounds, an error as a `Refusal`."""
    try:
        job = _jobs.decode(packed)
        if isinstance(job, Source):
            with _bounded(GRAMMAR_BOUNDS):
                return grammar.compiled(job)
        if isinstance(job, Sources):
            with _bounded(GRAMMARS_BOUNDS):
                return AllCompiled([grammar.compiled(source) for source in job.sources])
        with _bounded(TEMPLATE_BOUNDS):
            return template.rendered(Conversation(**json.loads(job.text)))
    except LocalSpecError as error:
        return Refusal(error.code, error.message, error.fix, error.param)
    except Exception as error:  # noqa: BLE001 - memory, recursion, a bug: this request fails alone
        return Refusal(RequestError.code, f"That did not work: {error!r:.300}.", "", None)


@contextlib.contextmanager
def _bounded(bounds: Bounds) -> Iterator[None]:
    """Processor time beyond the bound ends this process; memory beyond it is a MemoryError.

    Memory is bounded where the platform tells how much a process has (Linux).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if _STATM.exists():
        held = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (held + bounds.memory_bytes, hard))
    signal.setitimer(signal.ITIMER_PROF, bounds.cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _cause(returncode: int, bounds: Bounds) -> str:
    match -returncode:
        case signal.SIGPROF:
            return f"runs for more than {bounds.cpu_seconds:g} seconds"
        case signal.SIGKILL:
            return f"runs for more than {WALL_SECONDS:g} seconds, or was killed"
    return "crashes the program that reads it"


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(body)) + body)


def _receive(connection: socket.socket, most: int = (1 << 32) - 1) -> bytes:
    """The next message. Raises EOFError where the connection ended, or for more than `most`."""
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if size > most:
        raise EOFError
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (more := connection.recv(min(size - len(data), 1 << 20))):
            raise EOFError
        data += more
    return bytes(data)


if __name__ == "__main__":
    main()
