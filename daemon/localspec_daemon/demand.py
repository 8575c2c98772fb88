"""What a model asks of memory, by its headers, and what its process has, by the system."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from localspec.catalog import header, placement
from localspec.catalog.devices import Device
from localspec.catalog.header import Header
from localspec.catalog.memory import outline
from localspec.catalog.plan import FLOOR_CELLS, Plan, Wish
from localspec.protocol import Load
from localspec_daemon.admission import Memory, Worth


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model wishes for."""

    wish: Wish

    @classmethod
    def read(cls, load: Load) -> Demand:
        """From the headers. Blocks. Raises BadGGUF."""
        return cls(Wish.of(load.config, [outline(found) for found in _headers(load)]))

    def worth(self, room: Memory) -> Worth:
        """What the best plan in that room gives. Raises ConfigError for a device not in it."""
        gpus = [Device(name, "gpu", size, size) for name, size in room.items() if name != "CPU"]
        plan = placement.best(self.wish, [*gpus, Device("CPU", "cpu", room["CPU"], room["CPU"])])
        return worth(plan)


def check(load: Load) -> None:
    """Look at the headers in Python before native code sees a file. Blocks. Raises BadGGUF."""
    _headers(load)


def _headers(load: Load) -> list[Header]:
    return [header.read(Path(name)) for name in (load.target_path, load.draft_path) if name]


def worth(plan: Plan) -> Worth:
    """What a plan gives, in the order in which it would be given up last."""
    on_gpus = plan.target.gpu_layers + (plan.draft.gpu_layers if plan.draft else 0)
    return Worth(
        plan.fits,
        plan.draft is not None,
        min(plan.context, FLOOR_CELLS),
        on_gpus,
        plan.slots,
    )


class Used(NamedTuple):
    """Memory of a process, in bytes: what it alone has, and pages of files."""

    own: int
    files: int


def used(pid: int) -> Used | None:
    """What a process has in the host's memory; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    sizes = {name: int(size) << 10 for name, size in re.findall(r"Rss(\w+):\s+(\d+) kB", text)}
    if "Anon" not in sizes:
        return None
    return Used(sizes["Anon"] + sizes.get("Shmem", 0), sizes.get("File", 0))
