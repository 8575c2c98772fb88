"""The models that are or may be loaded, and who of them holds memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from localspec import config as settings
from localspec.config import Config
from localspec.protocol import Load
from localspec_daemon.bell import Bell
from localspec_daemon.blame import Poisons
from localspec_daemon.model import FileIdentity, Model, Surroundings
from localspec_daemon.policy import Resident, first_to_leave
from localspec_daemon.worker import COMMAND

_log = logging.getLogger("localspec.pool")

MOURNING_SECONDS = 30.0
"""From SIGKILL to the end of a process: the kernel gives back tens of gigabytes in seconds."""


class Pool:
    """At most `server.max_loaded` models in memory. Lives on the event loop's thread.

    A newcomer displaces the least recently used idle model; where all are busy, the least recently
    used one takes no new requests, finishes those it has, and leaves.
    """

    def __init__(self, config: Config, command: Sequence[str] = COMMAND) -> None:
        self.config = config
        self.models: dict[str, Model] = {}
        self.changed = Bell()
        self._retired: set[Model] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._room = asyncio.Lock()
        self._surroundings = Surroundings(self._make_room, self.changed, command, Poisons())

    def model(self, load: Load, files: tuple[FileIdentity, ...]) -> Model:
        """The model that was loaded, or will be, just as `load` says and from these very files."""
        model = self.models.get(load.model)
        if model and not (_same(model.load, load) and model.files == files):
            self.retire(model)
            model = None
        if not model:
            model = self.models[load.model] = Model(load, files, self._surroundings)
        return model

    def retire(self, model: Model) -> None:
        """Take nothing new, finish what there is, then leave memory."""
        if self.models.get(model.name) is model:
            del self.models[model.name]
        if model not in self._retired:
            _log.info("retire model=%s requests=%d", model.name, model.requests)
            self._retired.add(model)
            task = asyncio.create_task(self._see_off(model))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self.changed.ring()

    def tick(self, now: float) -> None:
        """Time has passed: look after hung workers, unload what was idle for long enough."""
        keep_alive_seconds = settings.seconds(self.config.server.keep_alive)
        for model in [*self.models.values(), *self._retired]:
            model.watch(now)
            if (
                keep_alive_seconds is not None
                and model.worker
                and not model.requests
                and now - model.used_at >= keep_alive_seconds
            ):
                _log.info("idle model=%s", model.name)
                model.unload()

    def sound(self, now: float) -> bool:
        """False while a worker outlives its SIGKILL: its model waits for that, maybe for ever."""
        return all(
            worker.killed_at is None or now - worker.killed_at < MOURNING_SECONDS
            for worker in self._surroundings.workers
        )

    async def close(self) -> None:
        """End every worker. No request may be open any more."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await asyncio.gather(*(model.unload() for model in [*self.models.values(), *self._retired]))

    async def _see_off(self, model: Model) -> None:
        while model.requests:
            await self.changed.wait()
        await asyncio.shield(model.unload())
        self._retired.discard(model)

    async def _make_room(self, newcomer: Model) -> None:
        async with self._room:  # newcomers in the order in which they came
            while True:
                present = {
                    str(id(model)): model
                    for model in [*self.models.values(), *self._retired]
                    if model.resident and model is not newcomer
                }
                if len(present) < self.config.server.max_loaded:
                    newcomer.resident = True
                    return
                leaver = present[
                    first_to_leave(
                        [
                            Resident(key, model.requests > 0, model.used_at)
                            for key, model in present.items()
                        ]
                    ).name
                ]
                if leaver.requests:
                    self.retire(leaver)
                    await self.changed.wait()
                else:
                    await asyncio.shield(leaver.unload())


def _same(one: Load, other: Load) -> bool:
    """Whether a worker that was told `one` serves for `other`.

    Sampling and server settings travel with each request or concern the supervisor alone.
    """
    return (
        one.target_path == other.target_path
        and one.draft_path == other.draft_path
        and one.machine == other.machine
        and one.config.engine == other.config.engine
        and one.config.speculation == other.config.speculation
    )
