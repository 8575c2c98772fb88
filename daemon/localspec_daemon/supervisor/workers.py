"""The worker processes: those with a model and, while there are none, one that waits for a Load.

Starting Python and importing takes a large part of a second. The process that waits has it behind
it, so a load begins at once. It holds no model: when it dies, it is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from localspec.errors import EngineError
from localspec.wire.messages import Load
from localspec_daemon.supervisor import installation
from localspec_daemon.supervisor.worker import COMMAND, Worker
from localspec_daemon.supervisor.worker_process import WorkerProcess

_log = logging.getLogger("localspec.worker")


class Workers:
    """Starts workers, and keeps one process waiting while none lives.

    Lives on the event loop's thread. `living` are the workers that have not ended, `waiting` is the
    start of the process that waits.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        files: installation.Installation = installation.RUNNING,
    ) -> None:
        self.living: set[Worker] = set()
        self._command = command
        self._files = files
        self._keeps_one = False
        self.waiting: asyncio.Task[WorkerProcess] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Keep a process waiting from now on, whenever no worker lives."""
        self._keeps_one = True
        self._renew()

    async def close(self) -> None:
        """End the process that waits, and keep none from now on."""
        self._keeps_one = False
        self._let_go()
        await asyncio.gather(*self._leaving)

    async def spawn(self, load: Load) -> Worker:
        """A worker that loads this, on the process that waits or a new one. Raises EngineError."""
        process = await self._taken() or await WorkerProcess.start(self._command)
        worker = Worker(load, process)
        self.living.add(worker)
        worker.exited.add_done_callback(lambda _: self._ended(worker))
        self._let_go()  # of one that was started while this process was
        return worker

    async def _taken(self) -> WorkerProcess | None:
        """The process that waits, which waits no more; None if there is none."""
        if not (waiting := self.waiting):
            return None
        updated = await asyncio.to_thread(self._files.replaced)
        await asyncio.wait({waiting})
        if self.waiting is not waiting:  # it has ended, or another load was faster
            return None
        if updated:  # the modules that it imports late would be of another version
            self._let_go()
            return None
        self.waiting = None
        return waiting.result()

    def _ended(self, worker: Worker) -> None:
        self.living.discard(worker)
        self._renew()

    def _renew(self) -> None:
        """Start a process that waits, if there has to be one. When it dies, this is not called."""
        if self._keeps_one and not self.living and not self.waiting:
            self.waiting = asyncio.create_task(self._start())
            self.waiting.add_done_callback(self._started)

    async def _start(self) -> WorkerProcess:
        if await asyncio.to_thread(self._files.replaced):
            raise EngineError("LocalSpec was updated.", fix=installation.RESTART)
        return await WorkerProcess.start(self._command)

    def _started(self, waiting: asyncio.Task[WorkerProcess]) -> None:
        if waiting.cancelled():
            return
        if error := waiting.exception():
            _log.debug("no_process_waits reason=%s", error)
            if self.waiting is waiting:
                self.waiting = None
        else:
            waiting.result().ended.add_done_callback(lambda _: self._died(waiting))

    def _died(self, waiting: asyncio.Task[WorkerProcess]) -> None:
        process = waiting.result()
        if self.waiting is waiting and not process.ended.cancelled():
            _log.debug("waiting_process_died pid=%d code=%d", process.pid, process.ended.result())
            self._let_go()

    def _let_go(self) -> None:
        """End the process that waits, if there is one."""
        waiting, self.waiting = self.waiting, None
        if waiting:
            task = asyncio.create_task(_end(waiting))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


async def _end(waiting: asyncio.Task[WorkerProcess]) -> None:
    """End a process that waits, or is being started for that."""
    await asyncio.wait({waiting})
    if not waiting.cancelled() and not waiting.exception():
        await waiting.result().discard()
