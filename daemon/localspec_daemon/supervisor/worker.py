"""One worker process and the requests on it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from localspec.errors import (
    DaemonError,
    EngineError,
    LocalSpecError,
    OutOfMemory,
    RemoteUnavailable,
    WorkerCrashed,
    by_code,
)
from localspec.wire.messages import (
    REMOTE_LOST_EXIT,
    Cancel,
    Delta,
    EndThoughts,
    Event,
    Failed,
    Finished,
    Forget,
    Generate,
    Goodbye,
    Heartbeat,
    Load,
    Progress,
    Question,
    QuestionAnswer,
    Quit,
    Reading,
    Ready,
    Refused,
    Replay,
    Replayed,
    SlotAction,
    Started,
)
from localspec_daemon.supervisor import installation
from localspec_daemon.supervisor.restarts import Watchdog
from localspec_daemon.supervisor.worker_process import WorkerProcess

COMMAND = (sys.executable, "-P", "-m", "localspec.worker")
"""-P: modules in the current directory are not imported."""
QUIT_SECONDS = 3.0
"""From `Quit`, or from a closed channel, to SIGKILL. Less than `localspec stop` waits."""
StreamEvent: TypeAlias = Progress | Started | Reading | Delta | Finished | Replayed | QuestionAnswer


_NO_MEMORY = re.compile(r"alloc|out of memory|mem_buffer", re.IGNORECASE)
"""Words in llama.cpp's last lines before it aborts for lack of memory."""
_FAULTS = {signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker ended. `last_words` are the last lines of its standard error."""

    goodbye: bool
    returncode: int
    killed_for: str = ""
    last_words: tuple[str, ...] = ()
    memory_kills: int | None = None
    """Processes that the kernel killed for lack of memory in its lifetime; None if unknown."""

    @property
    def by_signal(self) -> bool:
        """True when it died of a signal that the daemon did not send."""
        return self.returncode < 0 and not self.killed_for

    @property
    def by_fault(self) -> bool:
        """True when its own code crashed, as opposed to a signal from outside."""
        return self.by_signal and -self.returncode in _FAULTS

    @property
    def lost_remote(self) -> bool:
        """True when llama.cpp ended because a remote went away."""
        return self.returncode == REMOTE_LOST_EXIT and not self.goodbye

    @property
    def out_of_memory(self) -> bool:
        """True when it died for lack of memory, by the kernel's count or llama.cpp's last lines."""
        said = any(_NO_MEMORY.search(line) for line in self.last_words)
        killed = self.returncode == -signal.SIGKILL and self.memory_kills != 0
        return self.by_signal and (killed or said)

    @property
    def from_outside(self) -> bool:
        """True when a signal from outside ended it: no fault of the model or a request."""
        return self.by_signal and not self.by_fault and not self.out_of_memory

    @property
    def faulty(self) -> bool:
        """True when a request may have caused it."""
        return not (self.goodbye or self.lost_remote or self.out_of_memory or self.from_outside)

    @property
    def cause(self) -> str:
        """The cause in a few words, for messages and the log."""
        if self.killed_for:
            return f"killed after {self.killed_for}"
        if self.returncode < 0:
            number = -self.returncode
            named = number in set(signal.Signals)  # most real-time signals have no name
            return signal.Signals(number).name if named else f"signal {number}"
        return f"exit code {self.returncode}"


class Worker:
    """One process that hosts one model, from its Load to its exit. On the event loop's thread.

    `loaded` ends with Ready or with the error that refused the model. `exited` always ends with an
    Exit: the process has ended then, and its memory is free.
    """

    def __init__(self, load: Load, process: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        self.load = load
        self.pid = process.pid
        self.loaded: asyncio.Future[Ready] = loop.create_future()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.ready: Ready | None = None
        self.ready_at = 0.0
        self.heartbeat: Heartbeat | None = None
        self.watchdog = Watchdog(load.config.engine.prefill_rows, timed_here=not load.machine)
        self.on_progress: Callable[[Progress], None] = lambda _: None
        self.on_event: Callable[[Event], None] = lambda _: None
        self._process = process
        self._channel = process.channel
        self._streams: dict[str, asyncio.Queue[Event | Exit]] = {}
        self._goodbye = False
        self._killed_for = ""
        self.killed_at: float | None = None
        self._memory_kills = _memory_kills()
        self._heard = False
        self._channel.send(load)
        self._task = loop.create_task(self._run())

    async def generate(
        self, request: Generate | Replay | Question | SlotAction | EndThoughts
    ) -> AsyncGenerator[StreamEvent]:
        """The events of one request, its end last. Closing the iterator cancels the request.

        Raises WorkerCrashed, RemoteUnavailable, and the error of the worker's `Failed`.
        """
        if self.exited.done():
            raise self.crash(self.exited.result())
        events = self._streams[request.id] = asyncio.Queue()
        over = False
        try:
            self._channel.send(request)
            while not over:
                event = await events.get()
                over = isinstance(event, Finished | Replayed | QuestionAnswer | Failed | Exit)
                if isinstance(event, Exit):
                    raise self.crash(event)
                if isinstance(event, Failed):
                    raise _error(event)
                if isinstance(event, StreamEvent):
                    yield event
        finally:
            del self._streams[request.id]
            if not over and not self.exited.done():
                self._channel.send(Cancel(request.id))

    def forget(self) -> None:
        """Make it drop what its prefix store and its idle slots hold of texts."""
        if not self.exited.done():
            self._channel.send(Forget())

    async def quit(self) -> Exit:
        """Send `Quit`, kill the process if it does not end in time, and return its Exit."""
        if not self.exited.done():
            self._channel.send(Quit())
            await asyncio.wait({self.exited}, timeout=QUIT_SECONDS)
            if not self.exited.done():
                self.kill("ignoring the request to quit")
        return await asyncio.shield(self.exited)

    def kill(self, reason: str) -> None:
        """SIGKILL for the whole process group; `exited` follows."""
        if not self.exited.done() and self._process.runs:
            self._killed_for = self._killed_for or reason
            self.killed_at = self.killed_at or asyncio.get_running_loop().time()
            self._process.kill()

    def crash(self, exit_: Exit) -> DaemonError:
        """The error for requests that were on this worker or waited for it."""
        doing = "answering" if self.ready else "loading"
        if exit_.lost_remote:
            remote = " or ".join(self.load.config.engine.remote)
            return RemoteUnavailable(
                f"{remote} went away with layers of {self.load.model}.",
                fix="Send the request again; if it is still missing, the answer says what to do.",
            )
        return WorkerCrashed(
            f"The worker of {self.load.model} died while {doing}: {exit_.cause}.",
            fix=_mend("It is restarted when needed; `localspec logs` shows its last words."),
        )

    @property
    def died_unheard(self) -> bool:
        """Whether it ended by itself before a word of its load: the process may have died before.

        One that waits can be killed in the moment in which a load takes it.
        """
        return self.exited.done() and not self._heard and not self._killed_for

    @property
    def short_of_memory(self) -> bool:
        """Whether an ended load lacked memory: the worker died of that or reported it."""
        return self.exited.result().out_of_memory or isinstance(
            self.loaded.exception(), OutOfMemory
        )

    async def _run(self) -> None:
        try:
            while (event := await self._channel.receive()) is not None:
                self._take(event)
        except EngineError as error:
            self.kill(error.message)
        await self._channel.close()
        await asyncio.wait({self._process.ended}, timeout=QUIT_SECONDS)
        self.kill("closing its channel without leaving")
        returncode = await self._process.ended
        before, now = self._memory_kills, _memory_kills()
        exit_ = Exit(
            self._goodbye,
            returncode,
            self._killed_for,
            tuple(self._process.last_words),
            None if before is None or now is None else now - before,
        )
        self.exited.set_result(exit_)
        if not self.loaded.done():
            self.loaded.set_exception(self.crash(exit_))
            self.loaded.exception()  # retrieved here, as there may be no caller that waits
        await asyncio.sleep(0)  # callbacks of `exited` run before the requests go on
        for stream in self._streams.values():
            stream.put_nowait(exit_)

    def _take(self, event: Event) -> None:
        self._heard = True
        match event:
            case Progress():
                self._progressed(event)
            case Ready():
                self.ready = event  # a second one comes when its exactness is decided
                if not self.loaded.done():
                    self.watchdog.loading(ready=True)
                    self.ready_at = asyncio.get_running_loop().time()
                    self.loaded.set_result(event)
            case Refused():
                if not self.loaded.done():
                    refused = by_code(event.code)(event.message, fix=_mend(event.fix))
                    self.loaded.set_exception(refused)
                    self.loaded.exception()
            case Heartbeat():
                self.heartbeat = event
                self.watchdog.heartbeat(event)
            case Goodbye():
                self._goodbye = True
            case (
                Started()
                | Reading()
                | Delta()
                | Finished()
                | Replayed()
                | QuestionAnswer()
                | Failed()
            ):
                if stream := self._streams.get(event.id):
                    stream.put_nowait(event)
                self.on_event(event)

    def _progressed(self, event: Progress) -> None:
        """Pass on the progress of the load, or of a request that waits."""
        if stream := self._streams.get(event.id):
            stream.put_nowait(event)
        elif not event.id:
            self.watchdog.loading()
            self.on_progress(event)


def _mend(otherwise: str) -> str:
    """The fix for a failed worker: a restart if LocalSpec was updated since the daemon started."""
    return installation.RESTART if installation.RUNNING.replaced() else otherwise


def _memory_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory; None where that is unknown."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return None
    found = re.search(r"^oom_kill (\d+)$", counters, re.MULTILINE)
    return int(found[1]) if found else None


def _error(event: Failed) -> LocalSpecError:
    kind = by_code(event.code)
    return kind(event.message, fix=event.fix, param=event.param, details=event.details)
