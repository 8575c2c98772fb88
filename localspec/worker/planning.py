"""Plans a load from headers and devices.

`python -m localspec.worker.planning` writes the devices and the build's own kernels as JSON, for
processes that must not load native code.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from localspec.catalog import devices, head_memory, header, placement
from localspec.catalog.devices import Device, Own, Present
from localspec.catalog.header import Header
from localspec.catalog.memory import outline
from localspec.catalog.parts import Layout
from localspec.catalog.plan import Amounts, Plan, PlanRequest
from localspec.config import Placement
from localspec.wire.messages import DeviceMemory, Load
from localspec.worker.load_files import adapter_files

if TYPE_CHECKING:
    from localspec.engine.llama import rpc


def present(lent: Sequence[rpc.Device] = ()) -> list[Device]:
    """Remote devices, the GPUs that llama.cpp would use, and the host's memory, in this order.

    Raises:
        EngineError: llama.cpp could not be asked.
    """
    from localspec.engine.llama import rpc  # noqa: PLC0415 - see `assemble.load`
    from localspec.engine.llama.devices import usable  # noqa: PLC0415 - the same

    remotes = [Device(one.buffers, "remote", *rpc.memory(one)) for one in lent]
    gpus = [
        Device(found.name, "gpu", found.free_bytes, found.total_bytes, found.description)
        for found in usable()
    ]
    return [*remotes, *gpus, devices.host()]


def cards() -> list[DeviceMemory]:
    """The GPUs of this machine, with their total bytes."""
    from localspec.engine.llama.devices import usable  # noqa: PLC0415 - see `assemble.load`

    return [DeviceMemory(each.name, each.description, each.total_bytes) for each in usable()]


def free_on_gpus() -> dict[str, int]:
    """Free bytes of each GPU of this machine."""
    from localspec.engine.llama.devices import usable  # noqa: PLC0415 - see `assemble.load`

    return {found.name: found.free_bytes for found in usable()}


def plans(command: Load, files: Sequence[Path], there: Sequence[Device]) -> list[Plan]:
    """Plans for `command`, each smaller than the one before.

    The first `command.smaller` plans are left out: workers ran out of memory with them and died.

    Raises:
        BadGGUF: a file cannot be used.
        ConfigError: config names a device that does not exist.
    """
    adapters = sum(file.stat().st_size for file in adapter_files(command))
    there = _bounded(there, command.host_bytes, adapters)
    request = _wish(command, files)
    if any(device.kind == "remote" for device in there):
        request = dataclasses.replace(request, head=None)  # `fed_heads.py` says why
    found = placement.plans(request, there)
    return found[min(command.smaller, len(found) - 1) :]


def takes(command: Load, files: Sequence[Path], plan: Plan) -> dict[str, int]:
    """The plan's bytes by device, with the cells that it begins with. Raises BadGGUF."""
    return Amounts.of(_wish(command, files), plan).loaded


def _wish(command: Load, files: Sequence[Path]) -> PlanRequest:
    target, head = head_memory.outlines(header_of(files[0]), command)
    outlines = [target, *(outline(header_of(file)) for file in files[1:])]
    return PlanRequest.of(command.config, outlines, own(), head).seeing(command.projector)


def placed(placement: Placement, layout: Layout) -> Placement:
    """The placement with the devices and shares that were planned."""
    return msgspec.structs.replace(
        placement,
        gpu_layers=layout.gpu_layers,
        devices=layout.devices,
        main_gpu=0,
        tensor_split=tuple(map(float, layout.shares)) if len(layout.shares) > 1 else (),
    )


def own() -> Own:
    """Which of our own kernels this build has on the host."""
    from localspec.engine.llama.library import ours  # noqa: PLC0415 - see `assemble.load`

    return Own(ours.attends, ours.cells)


def ropes(file: Path) -> int:
    """The sets of rotary factors of a model: two if long texts have their own. Raises BadGGUF."""
    return outline(header_of(file)).ropes


def header_of(file: Path) -> Header:
    """The header of a file, read again only if it changes, as a large vocabulary takes a while."""
    return _read(file, header.stamp(file))


@functools.lru_cache(8)
def _read(file: Path, _stamp: tuple[int, float]) -> Header:
    return header.read(file)


def _bounded(there: Sequence[Device], host_bytes: int | None, adapters: int) -> list[Device]:
    """The devices, with no more of the host's memory than the supervisor allows.

    Each has `adapters` bytes less: adapters lie beside the layers, wherever these are.
    """
    found = []
    for device in there:
        free = device.free_bytes
        if device.kind == "cpu" and host_bytes is not None:
            free = min(free, host_bytes)
        found.append(msgspec.structs.replace(device, free_bytes=max(0, free - adapters)))
    return found


def main() -> int:
    """Write the devices and kernels as JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(Present(present(), own())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
