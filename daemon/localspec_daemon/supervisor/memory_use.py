"""The memory of loaded models: the larger of the plan and the system's count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Literal

from localspec.catalog import devices
from localspec.catalog.plan import PROCESS_BYTES
from localspec_daemon.supervisor.memory_admission import Memory, Resident
from localspec_daemon.supervisor.memory_demand import used
from localspec_daemon.supervisor.model import Model


def resident(key: str, model: Model) -> Resident:
    """A model in the form that `memory_admission` takes."""
    return Resident(key, model.name, _state(model), model.used_at, taken(model))


def total(models: Collection[Model], memory_bytes: int) -> Memory:
    """The memory that all models may hold together: the free part, and the part that they hold now.

    `memory_bytes` bounds the host's part; 0 is no bound.
    """
    there: Counter[str] = Counter()
    for model in models:
        worker = model.worker
        if worker and worker.heartbeat:
            for name, free in worker.heartbeat.gpus.items():
                there[name] = min(free, there.get(name, free))
    for model in models:
        worker = model.worker
        if worker and worker.ready:
            for held in worker.ready.devices:
                if held.device in there:
                    there[held.device] += held.bytes
            own = used(worker.pid)
            there["CPU"] += own.own if own else 0
    host = there["CPU"] + devices.host().free_bytes
    return {**there, "CPU": min(host, memory_bytes) if memory_bytes else host}


def taken(model: Model) -> dict[str, int]:
    """Bytes by device that a model holds, or its plan if that is more; {} while it is not ready."""
    worker = model.worker
    if not worker or not worker.ready:
        return {}
    planned = Counter(CPU=PROCESS_BYTES) | Counter(worker.ready.takes)
    buffers: Counter[str] = Counter()
    for held in worker.ready.devices:
        buffers[held.device] += held.bytes
    real = used(worker.pid)
    measured = {name: buffers[name] for name in planned} | {"CPU": sum(real) if real else 0}
    return {name: max(size, measured[name]) for name, size in planned.items()}


def _state(model: Model) -> Literal["idle", "busy", "loading", "leaving"]:
    if not model.worker:
        return "loading" if model.state == "loading" else "leaving"
    if not model.worker.heartbeat:  # the first comes at once and has the free bytes of GPUs
        return "loading"
    return "busy" if model.requests else "idle"


def idle_seconds(model: Model) -> float:
    """Seconds since its last request ended; 0 while there is one."""
    return 0.0 if model.requests else asyncio.get_running_loop().time() - model.used_at
