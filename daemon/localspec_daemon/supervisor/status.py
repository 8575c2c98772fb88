"""The body of GET /v1/status: everything that `localspec status` shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from localspec.catalog.devices import Device
from localspec.catalog.registry import Model as Entry
from localspec.config import Config
from localspec.wire.messages import DeviceMemory
from localspec.wire.values import Adapter, PrefixFigures
from localspec_daemon.supervisor import memory_use
from localspec_daemon.supervisor.adapted import current
from localspec_daemon.supervisor.memory_admission import loaded
from localspec_daemon.supervisor.model import Model


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a model's loading: `Progress` and the model."""

    model: str
    stage: str
    fraction: float
    why: str = ""


class ModelStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model. Fields that only a ready worker knows are absent without one."""

    name: str
    state: str
    default: bool
    target_path: str | None = None
    draft_path: str | None = None
    size_bytes: int | None = None
    loading: Stage | None = None
    error: str | None = None
    last_crash: str | None = None
    crashes: int = 0
    active: int = 0
    queued: int = 0
    idle_seconds: float | None = None
    pid: int | None = None
    context: int | None = None
    context_train: int | None = None
    slots: int | None = None
    cells: int | None = None
    placement: str | None = None
    template: str | None = None
    adapters: list[Adapter] | None = None
    kv_held: int | None = None
    kv_cells: int | None = None
    prefixes: PrefixFigures | None = None
    parameters: int | None = None
    n_vocab: int | None = None
    drafters: list[str] | None = None
    speculation_off: str | None = None
    head: str | None = None
    projector: str | None = None
    rollback: str | None = None
    exactness: str | None = None
    exactness_detail: str | None = None
    format: str | None = None
    format_warning: str | None = None
    safe_kernels: bool | None = None
    kernels: str | None = None
    corpus: str | None = None
    indexing: bool | None = None
    llama_build: str | None = None
    devices: list[DeviceMemory] | None = None
    memory: dict[str, int] | None = None
    loaded: str | None = None
    load_seconds: float | None = None
    tokens_per_second: float | None = None
    cost_ms_by_rows: dict[int, float] | None = None
    draft_ms: dict[str, float] | None = None
    host_ms: float | None = None
    host_row_ms: float | None = None
    far_tokens: int | None = None
    far_ms_by_rows: dict[int, float] | None = None
    far_draft_ms: dict[str, float] | None = None
    measuring: bool | None = None
    idle_work: bool | None = None
    checking: tuple[int, int] | None = None
    row_multiple: int | None = None
    layers: dict[str, tuple[int, int]] | None = None
    routing: dict[str, int] | None = None
    drafted: dict[str, int] | None = None
    accepted: dict[str, int] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    steps: int | None = None
    stalled: bool = False


class DeviceStatus(msgspec.Struct, frozen=True):
    """A device of this machine: its memory in bytes, and the part that loaded models hold.

    "CPU" is the host's memory. GPUs are known from the first load on.
    """

    name: str
    description: str
    total_bytes: int
    free_bytes: int
    held_bytes: int


class UpstreamStatus(msgspec.Struct, frozen=True):
    """A server elsewhere, and the models whose requests are forwarded to it."""

    name: str
    url: str
    models: list[str]


class Status(msgspec.Struct, frozen=True):
    """The daemon and its models; `loading` is the progress of a model that is loading now.

    `updated`: LocalSpec's files have changed since the daemon started, which has the old ones in
    memory. `reloads` counts the SIGHUPs after which everything was read again and is in force.
    `activated`: systemd holds the socket, and starts the daemon at a connection.
    `memory_bytes` bounds the memory of all models together, 0 does not. `machine` is the file of a
    simulated machine, "" on the real one.
    """

    version: str
    updated: bool
    pid: int
    uptime_seconds: float
    reloads: int
    draining: bool
    socket: str
    tcp: str | None
    activated: bool
    config_path: str
    config_error: str | None
    restart_needed: list[str]
    models_directory: str
    default_model: str
    machine: str
    memory_bytes: int
    memory_free_bytes: int
    devices: list[DeviceStatus]
    loading: Stage | None
    models: list[ModelStatus]
    upstreams: list[UpstreamStatus]


def of_models(
    known: Mapping[str, Model], entries: Sequence[Entry], default: str
) -> list[ModelStatus]:
    """The models on this machine that answer requests, and the others of the pool."""
    statuses = {name: _of_model(model, default=name == default) for name, model in known.items()}
    for entry in entries:
        if entry.name in statuses:
            status = statuses[entry.name]
            statuses[entry.name] = msgspec.structs.replace(status, size_bytes=entry.size_bytes)
        elif entry.role == "target":
            statuses[entry.name] = ModelStatus(
                name=entry.name,
                state="unloaded",
                default=entry.name == default,
                target_path=str(entry.path),
                size_bytes=entry.size_bytes,
            )
    return sorted(statuses.values(), key=lambda status: (not status.default, status.name))


def of_devices(host: Device, models: Iterable[Model]) -> list[DeviceStatus]:
    """The host's memory and the GPUs that workers have reported, with the models' part of each."""
    held: Counter[str] = Counter()
    cards: dict[str, DeviceStatus] = {}
    for model in models:
        held.update(memory_use.taken(model))
        worker = model.worker
        if worker and worker.ready and worker.heartbeat:
            free = worker.heartbeat.gpus
            for card in worker.ready.gpus:
                name = card.device
                cards[name] = DeviceStatus(name, card.what, card.bytes, free.get(name, 0), 0)
    cpu = DeviceStatus(host.name, host.description, host.total_bytes, host.free_bytes, 0)
    return [
        msgspec.structs.replace(each, held_bytes=held[each.name]) for each in (cpu, *cards.values())
    ]


def of_upstreams(config: Config) -> list[UpstreamStatus]:
    """The upstreams of the configuration; whether they answer is not checked."""
    return [
        UpstreamStatus(name, upstream.url, list(upstream.models))
        for name, upstream in config.upstream.items()
    ]


def _of_model(model: Model, *, default: bool) -> ModelStatus:
    now = asyncio.get_running_loop().time()
    status = ModelStatus(
        name=model.name,
        state=model.state,
        default=default,
        target_path=model.load.target_path,
        draft_path=model.load.draft_path,
        loading=stage(model),
        error=model.error.message if model.error else None,
        last_crash=model.last_crash or None,
        crashes=len(model.crashes.times),
        active=min(model.requests, model.load.config.engine.slots),
        queued=model.queued,
        idle_seconds=None if model.requests else now - model.used_at,
        adapters=current(model.load.adapters, model.lora) or None,
    )
    return msgspec.structs.replace(status, **_of_worker(model))


def stage(model: Model) -> Stage | None:
    """The progress of a model's loading; None while it is not loading."""
    if model.state != "loading":
        return None
    if progress := model.progress:
        return Stage(model.name, progress.stage, progress.fraction, progress.why)
    return Stage(model.name, "start", 0.0)


def _of_worker(model: Model) -> dict[str, object]:
    worker = model.worker
    if not worker or not worker.ready:
        return {}
    names = set(ModelStatus.__struct_fields__) - {"model", "target_path", "draft_path"}
    fields = {
        name: getattr(worker.ready, name)
        for name in worker.ready.__struct_fields__
        if name in names
    }
    fields |= {
        "pid": worker.pid,
        "stalled": worker.watchdog.stalled,
        "memory": memory_use.taken(model),
        "loaded": loaded(model.name, model.load_seconds, model.displaced),
        "load_seconds": model.load_seconds,
    }
    if beat := worker.heartbeat:
        fields |= {
            "tokens_per_second": beat.decode_tokens_per_second,
            "cost_ms_by_rows": beat.cost_ms_by_rows,
            "draft_ms": beat.draft_ms,
            "host_ms": beat.host_ms,
            "host_row_ms": beat.host_row_ms,
            "far_tokens": beat.far_tokens,
            "far_ms_by_rows": beat.far_ms_by_rows,
            "far_draft_ms": beat.far_draft_ms,
            "measuring": beat.measuring,
            "idle_work": beat.idle_work,
            "checking": beat.checking,
            "exactness_detail": beat.exactness_detail or worker.ready.exactness_detail,
            "kernels": beat.kernels,
            "corpus": beat.corpus or None,
            "indexing": beat.indexing,
            "kv_held": beat.kv_held,
            "kv_cells": beat.kv_cells,
            "prefixes": beat.prefixes,
            "routing": beat.routing,
            "drafted": beat.drafted_total,
            "accepted": beat.accepted_total,
            "prompt_tokens": beat.prompt_tokens_total,
            "completion_tokens": beat.completion_tokens_total,
            "steps": beat.steps,
        }
    return fields
