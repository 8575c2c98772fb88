"""One model of the pool: its worker while it has one, the requests on it, its crashes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localspec import paths
from localspec.errors import Busy, Loading, LocalSpecError, RemoteUnavailable, WorkerCrashed
from localspec.wire.messages import (
    Delta,
    Event,
    Generate,
    Load,
    Progress,
    Question,
    QuestionAnswer,
    Replay,
    SlotAction,
)
from localspec_daemon.supervisor import memory_demand
from localspec_daemon.supervisor.broadcast import Broadcast
from localspec_daemon.supervisor.fallbacks import Fallbacks
from localspec_daemon.supervisor.health import activity
from localspec_daemon.supervisor.memory_admission import loaded
from localspec_daemon.supervisor.restarts import CrashHistory
from localspec_daemon.supervisor.resumption import MAX_RESUMES, Files, Resumed, Stream, deciding
from localspec_daemon.supervisor.suspects import RefusedRequests, Trials
from localspec_daemon.supervisor.turns import Turns
from localspec_daemon.supervisor.worker import Exit, StreamEvent, Worker
from localspec_daemon.supervisor.workers import Workers

_log = logging.getLogger("localspec.model")

State: TypeAlias = Literal["unloaded", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class PoolServices:
    """The functions and tables that the models of a pool share.

    `make_room` waits until a model may take memory, and returns how many bytes of the host's.
    `unload_one` unloads an idle model other than the given one; False if there is none. `changed`
    wakes its waiters whenever a state, a number of requests or a loading progress changes.
    `workers` starts the worker of a load.
    """

    make_room: Callable[[Model], Awaitable[int]]
    unload_one: Callable[[Model], Awaitable[bool]]
    changed: Broadcast
    workers: Workers
    refused_requests: RefusedRequests


class Model:
    """Answers requests for one model, loading it when the first one comes.

    Lives on the event loop's thread. `load` never changes: after a change of settings or files the
    pool makes a new Model and retires this one, which finishes its requests.
    """

    def __init__(self, load: Load, files: Files, services: PoolServices) -> None:
        self.load = load
        self.files = files
        self.crashes = CrashHistory()
        self.last_crash = ""
        self.error: LocalSpecError | None = None
        self.progress: Progress | None = None
        self.worker: Worker | None = None
        self._starting: Worker | None = None
        self._loading_cancelled = False
        self.resident = False
        self.fallbacks = Fallbacks()
        self.lora: dict[int, float] | None = None
        """Scales of adapters for requests that send none, set by POST /lora-adapters."""
        self.host_bytes: int | None = None
        self.displaced: list[str] = []
        self._helped = False
        self.load_seconds = 0.0
        self.requests = 0
        self.used_at = asyncio.get_running_loop().time()
        self.keep_alive_seconds: float | None = None
        self._turns = Turns(load.config.engine.slots)
        self.streams: dict[str, Stream] = {}
        """The requests that are not over, by id."""
        self._trials = Trials()
        self._loading: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._make_room, self._unload_one = services.make_room, services.unload_one
        self._changed = services.changed
        self._workers = services.workers
        self._refused_requests = services.refused_requests

    @property
    def name(self) -> str:
        """The model's name in the API."""
        return self.load.model

    @property
    def queued(self) -> int:
        """The number of requests that wait for a slot."""
        return max(0, self.requests - self.load.config.engine.slots)

    @property
    def state(self) -> State:
        """The state that clients are shown."""
        if self._loading:
            return "loading"
        if self.worker:
            return "ready"
        if self._now() < self.crashes.failed_until() or self.error:
            return "failed"
        return "unloaded"

    async def generate(
        self, request: Generate | Replay, max_queue: int
    ) -> AsyncGenerator[Progress | Resumed | StreamEvent]:
        """The request's place in the line, progress of the load, then its events, the end last.

        When a worker dies, the next one goes on where it stopped, at most `MAX_RESUMES` times.
        Closing the iterator cancels the request. Raises Busy, Poisonous, WorkerCrashed,
        RemoteUnavailable, the error that refused the model, and that of the worker's `Failed`.
        """
        stream = Stream(request)
        turn = self._turns.joined(request.id, waits=not stream.is_warm_up)
        with self._admitted(stream, max_queue), turn:
            for events in (self._turns.places(request.id), self._events(stream)):
                async with aclosing(events):
                    async for event in events:
                        yield event

    async def answer(self, question: Question | SlotAction, max_queue: int) -> QuestionAnswer:
        """The answer to a question, which needs the model but no slot.

        Raises the errors of `generate`.
        """
        stream = Stream(question)
        with self._admitted(stream, max_queue):
            async with aclosing(self._events(stream)) as events:
                async for event in events:
                    if isinstance(event, QuestionAnswer):
                        return event
        raise RuntimeError("a question ended without its answer")

    async def _events(self, stream: Stream) -> AsyncGenerator[Progress | Resumed | StreamEvent]:
        """The events of a request from all the workers that it needs, its end last."""
        while True:
            async with aclosing(self._loading_for(stream)) as loading:
                async for progress in loading:
                    yield progress
            if not (worker := await self._admitted_worker(stream)):
                continue
            try:
                async with aclosing(worker.generate(stream.command())) as events:
                    async for event in events:
                        if (news := stream.take(event)) is not None:
                            yield news
            except (WorkerCrashed, RemoteUnavailable) as error:
                self._raise_if_final(stream, error)
            else:
                return
            finally:
                self._leave_worker(stream)
            yield Resumed(self.last_crash)

    async def loading(self) -> AsyncGenerator[Progress]:
        """Load the model if it is not loaded, with progress. Raises the error that refuses it."""
        if self.worker:
            return
        if self._loading_cancelled:
            raise self._unloaded()
        task = self.start_loading()
        seen = None
        while not task.done():
            await self._changed.wait()
            if self.progress and self.progress != seen:
                seen = self.progress
                yield seen
        if task.cancelled():
            raise self._unloaded()
        task.result()
        yield Progress("ready", 1.0, loaded(self.name, self.load_seconds, self.displaced))

    def start_loading(self) -> asyncio.Task[None]:
        """The running load, started if there is none; cancelled requests do not end it."""
        if not self._loading:
            self._loading = asyncio.create_task(self._load_once())
            self._loading.add_done_callback(_outcome_is_kept)
            self._changed.notify_all()
        return self._loading

    def unload(self) -> asyncio.Task[None]:
        """End the worker or the loading; when the task is done, its memory is free.

        From this call on no request reaches the old worker; a new request loads the model again.
        Await it in `asyncio.shield`: it must end even if its caller is cancelled.
        """
        self.fallbacks.reset()
        worker, self.worker = self.worker, None
        loading, self._loading = self._loading, None
        if worker or loading or not self._leaving:
            self._leaving = asyncio.create_task(self._end(worker, loading, self._leaving))
        return self._leaving

    def cancel_loading(self) -> None:
        """End the loading of a retired model; requests that wait for it get an error.

        A model that is ready finishes its requests, and so does one that loads again for an answer
        that has begun.
        """
        if self._loading and not any(stream.begun for stream in self.streams.values()):
            self._loading_cancelled = True
            self.unload()

    def watch(self, now: float) -> None:
        """Kill a worker that no longer makes progress. Called once a second."""
        worker = self.worker or self._starting
        if worker:
            worker.watchdog.tick(now, activity(worker.pid))
            if reason := worker.watchdog.verdict():
                _log.error("hung model=%s pid=%d reason=%r", self.name, worker.pid, reason)
                worker.kill(reason)

    def _unloaded(self) -> Loading:
        return Loading(f"{self.name} was unloaded while it was loading.", fix="Send it again.")

    async def _loading_for(self, stream: Stream) -> AsyncGenerator[Progress]:
        """As `loading`; for an answer that has begun, a load that crashed is tried again."""
        while not self.worker:
            try:
                async with aclosing(self.loading()) as loading:
                    async for progress in loading:
                        yield progress
            except WorkerCrashed:
                if not stream.begun or self._now() < self.crashes.failed_until():
                    raise

    async def _admitted_worker(self, stream: Stream) -> Worker | None:
        """The worker, once the stream may be sent to it; None if it has ended."""
        while self.worker and not self._trials.admits(stream):
            await self._changed.wait()
        worker = self.worker
        if worker and worker.exited.done():  # its callback `_exited` comes next
            await asyncio.sleep(0)
            worker = None
        if not worker:
            self._trials.over(stream)
            return None
        stream.on_worker = True
        return worker

    def _leave_worker(self, stream: Stream) -> None:
        stream.on_worker = False
        self._trials.over(stream)
        self._changed.notify_all()

    def _raise_if_final(self, stream: Stream, error: LocalSpecError) -> None:
        """Raise the error that ends a stream whose worker died, if the stream has to end."""
        if stream.blamed:
            _log.error("poisonous model=%s id=%s", self.name, stream.request.id)
            now, cause = self._now(), self.last_crash
            raise self._refused_requests.add(self.files, stream.request, cause, now) from error
        if stream.crashes > MAX_RESUMES:
            raise error
        stream.check_files(self.name, self.files, map(paths.identity, deciding(self.load)))

    def _on_event(self, event: Event) -> None:
        """Count the new tokens of a stream that is on trial."""
        stream = self.streams.get(event.id) if isinstance(event, Delta) else None
        tokens = len(event.decided) if isinstance(event, Delta) else 0
        if stream and self._trials.progressed(stream, tokens):
            self._changed.notify_all()

    @contextmanager
    def _admitted(self, stream: Stream, max_queue: int) -> Iterator[None]:
        self._refused_requests.check(self.files, stream.request, self._now())
        if self.queued >= max_queue:
            raise Busy(
                f"{self.requests} requests are on {self.name} already.",
                fix="Try again in a moment, or raise server.max_queue.",
            )
        self.requests += 1
        self.streams[stream.request.id] = stream
        self._changed.notify_all()
        try:
            yield
        finally:
            self.requests -= 1
            del self.streams[stream.request.id]
            self.used_at = self._now()
            self._changed.notify_all()

    async def _load_once(self) -> None:
        """Load, and store the outcome before a waiting request continues."""
        this = self._loading
        try:
            worker = await self._load()
            if self._loading is not this:  # unloaded in the moment in which it became ready
                await worker.quit()
                raise asyncio.CancelledError  # noqa: TRY301 - `unload` came before
            self.worker, self.error = worker, None
            worker.on_event = self._on_event
            worker.exited.add_done_callback(self._exited)
        except BaseException as error:
            if isinstance(error, LocalSpecError):
                self.error = error
                _log.error("load_failed model=%s code=%s %s", self.name, error.code, error.message)
            if self._loading is this:
                self.resident = False
            raise
        finally:
            if self._loading is this:
                self._loading, self.progress = None, None
            self.used_at = self._now()
            self._changed.notify_all()

    async def _load(self) -> Worker:
        if self._leaving:
            await asyncio.shield(self._leaving)
        now = self._now()
        if now < self.crashes.failed_until():
            raise WorkerCrashed(
                f"{self.name} crashed {len(self.crashes.times)} times; the last one: "
                f"{self.last_crash}.",
                fix="It is tried again a minute after the last crash; `localspec logs` says more.",
            )
        await asyncio.sleep(max(0, self.crashes.restart_at() - now))
        load = await asyncio.to_thread(memory_demand.checked, self.load)
        self.displaced, self._helped = [], False
        self.host_bytes = await self._make_room(self)
        began = self._now()
        worker, exit_ = await self._start(load)
        while exit_ and await self._change_plan(worker, exit_):
            worker, exit_ = await self._start(load)
        worker.loaded.result()
        self.load_seconds = self._now() - began
        _log.info("loaded model=%s pid=%d seconds=%.1f", self.name, worker.pid, self.load_seconds)
        return worker

    async def _end(
        self,
        worker: Worker | None,
        loading: asyncio.Task[None] | None,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before:
            await before
        if loading:
            loading.cancel()
            await asyncio.wait({loading})
        if worker:
            exit_ = await worker.quit()
            _log.info("unloaded model=%s goodbye=%s", self.name, exit_.goodbye)
        if self._leaving is asyncio.current_task():  # else a later `unload` goes on
            self.resident = False
            self._leaving = None
        self._changed.notify_all()

    async def _change_plan(self, worker: Worker, exit_: Exit) -> bool:
        """Change how the next try loads after one that failed; False for no next try."""
        if worker.short_of_memory and not self._helped and await self._unload_one(self):
            self._helped = True
            return True
        if not exit_.by_signal:
            return False
        if self.fallbacks.shrink(exit_):
            _log.warning("smaller model=%s plans=%d", self.name, self.fallbacks.smaller)
            return True
        if exit_.from_outside:
            return self._now() >= self.crashes.failed_until()
        stage = self.progress.stage if self.progress else ""
        if self.fallbacks.leave_projector(self.name, exit_, stage):
            return True
        return self.fallbacks.avoid_fault(self.name, exit_)

    async def _start(self, load: Load, *, again: bool = False) -> tuple[Worker, Exit | None]:
        """Spawn a worker and wait until it is ready; the Exit is that of one that failed."""
        worker = await self._workers.spawn(self.fallbacks.applied(load, self.host_bytes))
        worker.on_progress = self.progressed
        self._starting = worker
        try:
            await asyncio.wait({worker.loaded})
            if worker.ready:
                return worker, None
            exit_ = await worker.quit()
        except asyncio.CancelledError:
            worker.kill("being unloaded")
            await asyncio.shield(worker.exited)
            raise
        finally:
            self._starting = None
        if worker.died_unheard and not again:
            return await self._start(load, again=True)
        if isinstance(worker.loaded.exception(), WorkerCrashed):
            self._crashed(exit_, lived_seconds=0)
        return worker, exit_

    def _exited(self, exited: asyncio.Future[Exit]) -> None:
        """Take the end of a worker that was ready, except by `unload`, which has let go of it."""
        if not self.worker or self.worker.exited is not exited:
            return
        worker, exit_ = self.worker, exited.result()
        self.worker, self.resident = None, False
        running = [stream for stream in self.streams.values() if stream.on_worker]
        culprit = self._trials.crashed(running, faulty=exit_.faulty)
        if exit_.lost_remote:  # the next request tries whether it is back
            self.error, self.last_crash = worker.crash(exit_), "a remote that went away"
            _log.error("remote_lost model=%s %s", self.name, self.error.message)
        elif exit_.out_of_memory and not self.requests:  # the kernel killed an idle worker
            _log.warning("unloaded model=%s for=memory", self.name)
        elif not exit_.goodbye:
            self.fallbacks.shrink(exit_)
            self._crashed(exit_, self._now() - worker.ready_at, counts=culprit is None)
            if culprit or self.crashes.streak == 1:
                self.start_loading()
        self._changed.notify_all()

    def _crashed(self, exit_: Exit, lived_seconds: float, *, counts: bool = True) -> None:
        """Record a crash; one that a request was blamed for does not count against the model."""
        if counts:
            self.crashes.record(self._now(), lived_seconds)
        self.last_crash = exit_.cause
        _log.error("worker_crashed model=%s cause=%r", self.name, exit_.cause)
        for line in exit_.last_words:
            _log.error("last_words model=%s %s", self.name, line)

    def progressed(self, progress: Progress) -> None:
        """Store the progress of the loading."""
        self.progress = progress
        self._changed.notify_all()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _outcome_is_kept(task: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that asyncio does not log it: the model has stored it."""
    if not task.cancelled():
        task.exception()
