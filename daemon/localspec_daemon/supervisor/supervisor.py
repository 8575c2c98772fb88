"""The daemon's operations for all dialects: find a model, generate, show the state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from localspec import config as settings
from localspec import machine, paths
from localspec.catalog import devices, templates
from localspec.catalog.registry import Model as Entry
from localspec.catalog.registry import Registry, Resolved
from localspec.config import Models
from localspec.errors import (
    BadGGUF,
    ConfigError,
    LocalSpecError,
    RequestError,
    ShuttingDown,
    UnknownModel,
)
from localspec.wire.messages import Generate, Load, Progress, Replay
from localspec.wire.values import Adapter, DraftHead
from localspec_daemon.api.relay import Route, route
from localspec_daemon.supervisor import installation
from localspec_daemon.supervisor.adapted import adapted
from localspec_daemon.supervisor.aliases import Aliases
from localspec_daemon.supervisor.broadcast import Broadcast
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.pool import Pool
from localspec_daemon.supervisor.request_log import Record, Tally
from localspec_daemon.supervisor.resumption import Files, Resumed
from localspec_daemon.supervisor.status import Status, of_devices, of_models, of_upstreams, stage
from localspec_daemon.supervisor.upstream import Upstreams
from localspec_daemon.supervisor.worker import COMMAND, StreamEvent

_log = logging.getLogger("localspec.supervisor")

TICK_SECONDS = 1.0

_Answer = TypeVar("_Answer")

try:
    VERSION = version("localspec")
except PackageNotFoundError:  # a checkout that is not installed
    VERSION = "0.0.0"


class Supervisor:
    """The service behind every dialect. Lives on the event loop's thread.

    Never imports llama_cpp: native code may abort, and then a worker dies, not this process.
    """

    def __init__(
        self,
        config_path: Path,
        *,
        command: Sequence[str] = COMMAND,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        """Read the configuration. Raises ConfigError: a daemon does not start on a bad one."""
        self.config_path = config_path
        self.socket = self.tcp = ""
        self.activated = False
        self.reloads: Callable[[], int] = int
        self.config = settings.load(config_path, keep=True)
        self.config_error: str | None = None
        self.started_with = self.config
        self.draining = False
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.pool = Pool(self.config, command)
        self.upstreams = Upstreams()
        self._started_at = asyncio.get_running_loop().time()
        self.began_at = time.time()
        """When the daemon was started, in seconds since 1970."""
        self._open: set[asyncio.Timeout] = set()
        self._request_closed = Broadcast()
        self._tick_seconds = tick_seconds

    @property
    def models_directory(self) -> Path:
        """The directory of the models."""
        chosen = self.config.models.directory
        return paths.expanded(chosen) if chosen else paths.models_dir()

    async def model(self, name: str | None, *, aliases: bool = True) -> Model:
        """The model of that name, the default for none. Raises UnknownModel.

        Without `aliases` the table `[models.aliases]` is not used.

        Start a request on it before the next `await`: without one, it may be retired.
        """
        wanted = name or self.config.models.default
        try:
            return self.pool.model(*await self._resolve(wanted, aliases=aliases))
        except UnknownModel:
            if to := route(self.config, wanted):
                raise RequestError(
                    f"{wanted} is on the upstream {to.name}; this needs a model that is here.",
                    fix="Only chats and completions are forwarded.",
                    param="model",
                ) from None
            raise

    async def upstream_route(self, name: str | None) -> Route | None:
        """The upstream for that name, or for the default model; None if the model is here."""
        to = route(self.config, name or self.config.models.default)
        if to:
            with contextlib.suppress(UnknownModel):
                await self._query_registry(lambda registry: registry.resolve(to.model))
                return None
        return to

    async def upstream_models(self) -> list[Route]:
        """The upstreams' models that this machine does not have."""
        here = {name for entry in await self.entries() for name in (entry.name, *entry.aliases)}
        return [
            Route(model, name, upstream)
            for name, upstream in self.config.upstream.items()
            for model in dict.fromkeys(upstream.models)
            if model not in here
        ]

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Count a request as open for the duration of a `with`. Raises ShuttingDown."""
        shutting_down = ShuttingDown(
            "The daemon is shutting down.", fix="Send the request again when it is back."
        )
        if self.draining:
            raise shutting_down
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._open.add(limit)
                yield
        except TimeoutError:
            if limit.expired():
                raise shutting_down from None
            raise
        finally:
            self._open.discard(limit)
            self._request_closed.notify_all()

    async def generate(
        self, model: Model, request: Generate | Replay
    ) -> AsyncGenerator[Progress | Resumed | StreamEvent]:
        """Progress while the model loads, then the request's events; logged and counted.

        Closing the iterator cancels the request. Raises what `Model.generate` raises.
        """
        clock = asyncio.get_running_loop().time
        record = Record(request.id, model.name, request.client, clock())
        tally = self.tallies[model.name]
        try:
            request = adapted(request, model.load.adapters, model.lora)
            events = model.generate(request, self.config.server.max_queue)
            async with aclosing(events):
                async for event in events:
                    record.see(event, clock())
                    yield event
        except LocalSpecError as error:
            record.outcome = error.code
            raise
        finally:
            if record.finished:
                tally.add(record.finished)
            tally.requests[record.outcome] += 1
            tally.resumes += record.resumes
            record.write(clock())

    async def entries(self) -> list[Entry]:
        """Every model that is on this machine."""
        models = await self._query_registry(Registry.models)
        return [entry for entry in models if entry.installed]

    async def entry(self, name: str) -> Entry:
        """The model on this machine of that name or alias. Raises UnknownModel."""
        return await self._query_registry(
            lambda registry: registry.find(registry.resolve(name).name)
        )

    def template(self, entry: Entry) -> str | None:
        """The chat template that the configuration gives a model, if any. Raises ConfigError."""
        names = (entry.name, *entry.aliases)
        return templates.given(names, self.config.models.templates, self.config_path.parent)

    async def status(self) -> Status:
        """Everything that `localspec status` shows; it never fails."""
        config, problem = self.config, self.config_error
        entries: list[Entry] = []
        try:
            entries = await self.entries()
        except LocalSpecError as error:
            problem = problem or str(error)
        host = devices.host()
        return Status(
            version=VERSION,
            updated=await asyncio.to_thread(installation.RUNNING.replaced),
            pid=os.getpid(),
            uptime_seconds=asyncio.get_running_loop().time() - self._started_at,
            reloads=self.reloads(),
            draining=self.draining,
            socket=self.socket,
            tcp=self.tcp or None,
            activated=self.activated,
            config_path=str(self.config_path),
            config_error=problem,
            restart_needed=self.restart_needed(),
            models_directory=str(self.models_directory),
            default_model=config.models.default,
            machine=config.engine.machine,
            memory_bytes=config.server.memory_bytes,
            memory_free_bytes=host.free_bytes,
            devices=of_devices(host, self.pool.models.values()),
            loading=next(filter(None, map(stage, self.pool.models.values())), None),
            models=of_models(self.pool.models, entries, config.models.default),
            upstreams=of_upstreams(config),
        )

    def unhealthy_reason(self, *, known: bool) -> str | None:
        """Why health is not ok; None while requests are served.

        Only `known` callers are told the models' names and errors.
        """
        if self.draining:
            return "Shutting down"
        for model in self.pool.models.values():
            if model.worker and model.worker.watchdog.stalled:
                return f"{model.name if known else 'A model'} makes no progress"
        default = self.pool.models.get(self.config.models.default)
        if default and default.state == "loading":
            return "Loading model"
        if default and default.state == "failed":
            if not known:
                return "The default model cannot be loaded"
            return default.error.message if default.error else f"{default.name} keeps crashing"
        return None

    def restart_needed(self) -> list[str]:
        """Settings that were changed since the start and need a new daemon."""
        now, then = self.config.server, self.started_with.server
        return [
            f"server.{name}"
            for name in ("socket", "tcp")
            if getattr(now, name) != getattr(then, name)
        ]

    async def reload(self, changed: bool) -> None:  # noqa: FBT001 - Watcher passes it
        """Read the models again and, if a file has `changed`, the configuration.

        Failed models are tried again after a change. A configuration with an error is not taken.
        New settings of a worker take effect when the requests on it are finished.
        """
        if changed:
            await self._reconfigure()
        for model in list(self.pool.models.values()):
            if changed and model.state == "failed":
                self.pool.retire(model)
            else:
                await self._refresh(model)
        self.pool.changed.notify_all()

    async def _reconfigure(self) -> None:
        try:
            config = await asyncio.to_thread(settings.load, self.config_path, keep=True)
        except ConfigError as error:
            self.config_error = str(error)
            _log.error("config_kept reason=%s", error)
        else:
            if config != self.config:
                _log.info("config_loaded path=%s", self.config_path)
            self.config = self.pool.config = config
            self.config_error = None
            logging.getLogger("localspec").setLevel(config.server.log_level.upper())

    async def tick(self) -> None:
        """Call `Pool.tick` once a second, for ever."""
        while True:
            await asyncio.sleep(self._tick_seconds)
            try:
                self.pool.tick(asyncio.get_running_loop().time())
            except Exception:  # noqa: BLE001 - the daemon would end with this task
                _log.exception("tick_failed")

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and let the open ones finish, for at most `seconds`."""
        self.draining = True
        _log.info("draining requests=%d seconds=%.0f", len(self._open), seconds)
        try:
            async with asyncio.timeout(seconds):
                while self._open:
                    await self._request_closed.wait()
        except TimeoutError:
            _log.warning("drain_over requests=%d", len(self._open))

    def end_requests(self) -> None:
        """End all open requests with ShuttingDown."""
        for limit in self._open:
            limit.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """End all workers and the connections to upstreams."""
        await self.upstreams.close()
        await self.pool.close()

    async def _query_registry(self, question: Callable[[Registry], _Answer]) -> _Answer:
        """The registry's answer, from a thread: directories can be slow. Raises ConfigError."""
        try:
            return await asyncio.to_thread(question, Registry(self.models_directory))
        except OSError as error:
            raise ConfigError(
                f"The models directory {self.models_directory} cannot be read: {error.strerror}.",
                fix="Check models.directory.",
            ) from error

    async def _resolve(self, name: str, *, aliases: bool = False) -> tuple[Load, Files]:
        """The worker's Load for that name, and its files."""
        table = Aliases(self.config.models) if aliases and not route(self.config, name) else None
        models, folder = self.config.models, self.config_path.parent
        found, head, projector, adapters, files = await self._query_registry(
            lambda registry: _found(registry, name, table, models, folder)
        )
        template = None
        if models.templates:
            template = self.template(await self.entry(found.name))
        timed = self.config.engine.machine
        load = Load(
            machine=await asyncio.to_thread(machine.read, Path(timed)) if timed else None,
            model=found.name,
            target_path=str(found.target_path),
            draft_path=str(found.draft_path) if found.draft_path else None,
            head=head[0],
            no_head=head[1],
            projector=projector[0],
            no_projector=projector[1],
            config=self.config,
            template=template,
            adapters=adapters,
        )
        return load, files

    async def _refresh(self, model: Model) -> None:
        """Retire a model whose files or settings have changed."""
        try:
            load, files = await self._resolve(model.name)
        except UnknownModel:
            self.pool.retire(model)
        except ConfigError as error:
            _log.warning("models_kept reason=%s", error)
        else:
            if self.pool.models.get(model.name) is model:
                self.pool.model(load, files)


def _as_default(error: UnknownModel) -> UnknownModel:
    """The error for a default model that is unknown: the configuration may be wrong."""
    fix = f"{error.fix} `localspec config set models.default NAME` chooses another."
    return UnknownModel(f"models.default: {error.message}", fix=fix.strip(), param="model")


def _found(
    registry: Registry, name: str, aliases: Aliases | None, models: Models, folder: Path
) -> tuple[Resolved, tuple[DraftHead | None, str], tuple[str, str], list[Adapter], Files]:
    """The model of that name, its head and its projector or why it has none, adapters, the files.

    Runs in a thread. Raises UnknownModel, ConfigError for an adapter, OSError.
    """
    wanted = aliases.meant(name, registry) if aliases else name
    try:
        found = registry.resolve(wanted)
    except UnknownModel as error:
        raise _as_default(error) if wanted == models.default else error from None
    try:
        head = registry.head(found.target_path)
    except BadGGUF:  # of the target, which is refused when it is loaded
        head = None, ""
    projector = registry.projector(found.target_path)
    own = Path(head[0].path) if head[0] and head[0].path else None
    try:
        adapters = registry.adapters(registry.find(found.name), models.adapters, folder)
    except BadGGUF:
        adapters = []
    sees_by = Path(projector[0]) if projector[0] else None
    paths_ = (found.target_path, found.draft_path, own, sees_by)
    more = (Path(each.path) for each in adapters)
    files = tuple(map(paths.identity, filter(None, (*paths_, *more))))
    return found, head, projector, adapters, files
