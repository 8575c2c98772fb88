"""The models that are or may be loaded, and the memory they share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from localspec.config import Config
from localspec.errors import Busy, OutOfMemory
from localspec.wire.messages import Load, Progress
from localspec_daemon.supervisor import memory_use
from localspec_daemon.supervisor.broadcast import Broadcast
from localspec_daemon.supervisor.keep_alive import configured_seconds
from localspec_daemon.supervisor.memory_admission import (
    Admit,
    LoadingModel,
    Memory,
    PlanScore,
    Refuse,
    Verdict,
    Wait,
    decide,
    idle_over_limit,
)
from localspec_daemon.supervisor.memory_demand import Demand
from localspec_daemon.supervisor.model import Model, PoolServices
from localspec_daemon.supervisor.resumption import Files
from localspec_daemon.supervisor.suspects import RefusedRequests
from localspec_daemon.supervisor.worker import COMMAND
from localspec_daemon.supervisor.workers import Workers

_log = logging.getLogger("localspec.pool")

KILL_SECONDS = 30.0
"""The longest time a killed process may take to end: the kernel frees tens of GB in seconds."""
LOOK_SECONDS = 1.0
"""How often a waiting load checks the free memory: other programs free some, too."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choices of requests for a model, which the next Model of that name takes over."""

    adapters: list[str]
    lora: dict[int, float] | None
    keep_alive_seconds: float | None

    @staticmethod
    def of(model: Model) -> Chosen:
        """The choices for this model; a `keep_alive` of 0 was for one unload alone."""
        return Chosen(_adapters(model), model.lora, model.keep_alive_seconds or None)

    def give(self, model: Model) -> None:
        """Make them hold for this model; the scales only if it has the same adapters."""
        model.keep_alive_seconds = self.keep_alive_seconds
        if self.adapters == _adapters(model):
            model.lora = self.lora


class Pool:
    """Models, as many as fit into memory at once. Lives on the event loop's thread."""

    def __init__(self, config: Config, command: Sequence[str] = COMMAND) -> None:
        self.config = config
        self.models: dict[str, Model] = {}
        self._chosen: dict[str, Chosen] = {}
        self.changed = Broadcast()
        self._retired: set[Model] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._room = asyncio.Lock()
        self.refused_requests = RefusedRequests()
        self.workers = Workers(command)
        self._services = PoolServices(
            self._make_room, self._unload_one, self.changed, self.workers, self.refused_requests
        )

    def model(self, load: Load, files: Files) -> Model:
        """The model for this Load and these files, made if needed; a different one is retired."""
        model = self.models.get(load.model)
        if model and not (_same(model.load, load) and model.files == files):
            self.retire(model)
            model = None
        if not model:
            model = self.models[load.model] = Model(load, files, self._services)
            if chosen := self._chosen.get(load.model):
                chosen.give(model)
        return model

    @property
    def serving(self) -> list[Model]:
        """All models, those included that only finish their requests."""
        return [*self.models.values(), *self._retired]

    def forget(self) -> None:
        """Make every worker drop what its prefix store and its idle slots hold of texts."""
        for model in self.serving:
            if model.worker:
                model.worker.forget()

    def retire(self, model: Model) -> None:
        """Send no new requests to a model; it finishes those it has, then it is unloaded."""
        if self.models.get(model.name) is model:
            del self.models[model.name]
            self._chosen[model.name] = Chosen.of(model)
        if model not in self._retired:
            _log.info("retire model=%s requests=%d", model.name, model.requests)
            self._retired.add(model)
            task = asyncio.create_task(self._unload_retired(model))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            self.changed.notify_all()

    def tick(self, now: float) -> None:
        """Kill workers that hang, and unload models that were idle for long enough."""
        for model in self.serving:
            model.watch(now)
            idle = model.worker and not model.requests
            if idle and now - model.used_at >= self.keep_alive_seconds(model):
                _log.info("idle model=%s", model.name)
                model.unload()
        self._unload_if_short()

    @contextlib.contextmanager
    def keep_alive(self, model: Model, seconds: float | None) -> Iterator[None]:
        """Set how long the model stays loaded after this request; None changes nothing."""
        if seconds is not None:
            model.keep_alive_seconds = seconds
        try:
            yield
        finally:  # without waiting: the client may have left
            if seconds == 0:
                self.retire(model)

    def keep_alive_seconds(self, model: Model) -> float:
        """How long a model stays without a request: its latest `keep_alive`, else the setting's."""
        if model.keep_alive_seconds is not None:
            return model.keep_alive_seconds
        return configured_seconds(self.config.server.keep_alive)

    def can_recover(self, now: float) -> bool:
        """False once a process outlives SIGKILL by KILL_SECONDS: its model may wait for ever."""
        return all(
            worker.killed_at is None or now - worker.killed_at < KILL_SECONDS
            for worker in self.workers.living
        )

    async def close(self) -> None:
        """End every worker. Call it when no request is open."""
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self.workers.close()
        await asyncio.gather(*(model.unload() for model in [*self.models.values(), *self._retired]))

    async def _unload_retired(self, model: Model) -> None:
        while model.requests:
            await self.changed.wait()
        await asyncio.shield(model.unload())
        self._retired.discard(model)

    async def _make_room(self, loading: Model) -> int:
        """Wait until it may load, and return its bytes of host memory. Raises OutOfMemory, Busy."""
        async with self._room:  # newcomers are admitted in their order of arrival
            clock = asyncio.get_running_loop().time
            waited_seconds = 0.0
            demand: Demand | None = None
            while True:
                if not demand and (self._knows(loading) or self.config.server.memory_bytes):
                    demand = await asyncio.to_thread(Demand.read, loading.load)
                others = self._residents(loading)
                match self._verdict(loading, demand, others, waited_seconds):
                    case Admit(leave, room):
                        if await self._displace([others[each.key] for each in leave], loading):
                            loading.resident = True
                            return room["CPU"]
                    case Wait(why, retire, counts):
                        began = clock()
                        loading.progressed(Progress("room", 0, f"waiting for memory: {why}"))
                        for each in retire:
                            self.retire(others[each.key])
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(LOOK_SECONDS):
                                await self.changed.wait()
                        waited_seconds += clock() - began if counts else 0.0
                    case Refuse(why, forever=True):
                        raise OutOfMemory(why, fix="Take a smaller model or quantization.")
                    case Refuse(why):
                        raise Busy(why, fix="Send it again in a moment, or unload one of them.")

    def _verdict(
        self,
        loading: Model,
        demand: Demand | None,
        others: Mapping[str, Model],
        waited_seconds: float,
    ) -> Verdict:
        """Decide on the model that loads; `demand` is None before a worker reported devices."""
        residents = [memory_use.resident(key, model) for key, model in others.items()]
        total = memory_use.total(others.values(), self.config.server.memory_bytes)
        if not demand:
            return decide(LoadingModel(loading.name, _any), residents, total, waited_seconds)
        remote = any(each.load.config.engine.remote for each in (loading, *others.values()))
        asking = LoadingModel(loading.name, demand.score, exclusive=remote)
        bounded = self.config.server.memory_bytes > 0
        return decide(asking, residents, total, waited_seconds, bounded=bounded)

    async def _displace(self, idle: Sequence[Model], loading: Model) -> bool:
        """Unload these for another model; False when one has a new request."""
        for model in idle:
            if model.requests:
                return False
            _log.info("displaced model=%s for=%s", model.name, loading.name)
            loading.displaced.append(model.name)
            await asyncio.shield(model.unload())
        return True

    async def _unload_one(self, loading: Model) -> bool:
        """Unload the idle model that was used longest ago; False if there is none."""
        idle = [model for model in self._residents(loading).values() if not model.requests]
        oldest = sorted(idle, key=lambda model: model.used_at)[:1]
        return bool(oldest) and await self._displace(oldest, loading)

    def _unload_if_short(self) -> None:
        """Unload an idle model when memory is short, before the kernel kills a process."""
        models = self._residents()
        residents = [memory_use.resident(key, model) for key, model in models.items()]
        total = memory_use.total(models.values(), self.config.server.memory_bytes)
        if len(residents) > 1 and (model := idle_over_limit(residents, total)):
            _log.info("overdrawn model=%s", model.name)
            models[model.key].unload()

    def _residents(self, loading: Model | None = None) -> dict[str, Model]:
        """The models that hold memory, without the one that loads, each by a unique key."""
        known = [*self.models.values(), *self._retired]
        return {str(id(each)): each for each in known if each.resident and each is not loading}

    def _knows(self, loading: Model) -> bool:
        """Whether a worker is ready and has reported the devices."""
        workers = [model.worker for model in self._residents(loading).values()]
        return any(each and each.ready for each in workers)


def _any(_: Memory) -> PlanScore:
    """The score for the first model: its worker plans for the memory that it finds."""
    return PlanScore(fits=True, draft=True, context=0, gpu_blocks=0, slots=0)


def _adapters(model: Model) -> list[str]:
    """The paths of its adapters, whose places in the list are their ids."""
    return [each.path for each in model.load.adapters]


def _same(one: Load, other: Load) -> bool:
    """Whether a worker that loaded `one` serves for `other`.

    Sampling settings are in each request; server settings are for the supervisor alone.
    """
    return (
        one.target_path == other.target_path
        and one.draft_path == other.draft_path
        and one.head == other.head
        and one.machine == other.machine
        and one.template == other.template
        and one.adapters == other.adapters
        and one.config.engine == other.config.engine
        and one.config.speculation == other.config.speculation
        and one.config.draft == other.config.draft
    )
