"""The memory that a model needs, from its headers, and that its process has, from /proc."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.catalog import head_memory, header, pairing, placement
from localspec.catalog.devices import Device
from localspec.catalog.memory import outline
from localspec.catalog.plan import FLOOR_CELLS, Plan, PlanRequest
from localspec.errors import BadGGUF, BadPair
from localspec.wire.messages import Load
from localspec_daemon.supervisor.memory_admission import Memory, PlanScore


@dataclass(frozen=True, slots=True)
class Demand:
    """The memory needs of one model. Its adapters lie beside the layers, wherever these are."""

    request: PlanRequest
    adapters: int = 0

    @classmethod
    def read(cls, load: Load) -> Demand:
        """Read the files' headers, without a draft that does not fit. Blocks. Raises BadGGUF."""
        load = checked(load)
        target, head = head_memory.outlines(header.read(Path(load.target_path)), load)
        draft = [outline(header.read(Path(load.draft_path)))] if load.draft_path else []
        request = PlanRequest.of(load.config, [target, *draft], head=head).seeing(load.projector)
        return cls(request, sum(_size(adapter.path) for adapter in load.adapters))

    def score(self, room: Memory) -> PlanScore:
        """The score of the best plan in that room. Raises ConfigError for a device not in it."""
        left = {name: max(0, size - self.adapters) for name, size in room.items()}
        gpus = [Device(name, "gpu", size, size) for name, size in left.items() if name != "CPU"]
        plan = placement.best(self.request, [*gpus, Device("CPU", "cpu", left["CPU"], left["CPU"])])
        return score(plan)


def _size(path: str) -> int:
    """The bytes of a file; 0 where it is gone, which the load will say."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def checked(load: Load) -> Load:
    """The Load for a worker: its headers are checked before native code reads a file.

    A draft that does not fit is left out, and `no_draft` has the reason. Blocks.
    Raises BadGGUF for the target.
    """
    target = header.read(Path(load.target_path))
    if not load.draft_path:
        return load
    try:
        pairing.check_draft(target, Path(load.draft_path))
    except (BadGGUF, BadPair) as error:
        return msgspec.structs.replace(load, draft_path=None, no_draft=error.message)
    return load


def score(plan: Plan) -> PlanScore:
    """The score of a plan, the most important field first."""
    on_gpus = plan.target.gpu_layers + (plan.draft.gpu_layers if plan.draft else 0)
    return PlanScore(
        plan.fits,
        plan.draft is not None,
        min(plan.context, FLOOR_CELLS),
        on_gpus,
        plan.slots,
    )


class ProcessMemory(NamedTuple):
    """Memory of a process, in bytes: its own, and pages of mapped files."""

    own: int
    files: int


def used(pid: int) -> ProcessMemory | None:
    """The host memory of a process; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    sizes = {name: int(size) << 10 for name, size in re.findall(r"Rss(\w+):\s+(\d+) kB", text)}
    if "Anon" not in sizes:
        return None
    return ProcessMemory(sizes["Anon"] + sizes.get("Shmem", 0), sizes.get("File", 0))
