"""What there is to load and where it could go: headers, devices, and the plans that follow.

`python -m localspec.worker.planning` writes the devices and the build's features as JSON: for those
who must not load native code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from localspec.catalog import devices, header, placement
from localspec.catalog.devices import Device
from localspec.catalog.memory import outline, repacked_types
from localspec.catalog.plan import Plan, Wish
from localspec.protocol import Load

if TYPE_CHECKING:
    from localspec.engine import rpc


def present(lent: Sequence[rpc.Device] = ()) -> list[Device]:
    """Devices of other machines, the GPUs that llama.cpp would use, and the host's memory, last.

    Raises:
        EngineError: llama.cpp could not be asked.
    """
    from localspec.engine import rpc  # noqa: PLC0415 - see `assemble.load`
    from localspec.engine.devices import usable  # noqa: PLC0415 - the same

    remotes = [Device(one.buffers, "remote", *rpc.memory(one)) for one in lent]
    gpus = [
        Device(found.name, "gpu", found.free_bytes, found.total_bytes, found.description)
        for found in usable()
    ]
    return [*remotes, *gpus, devices.host()]


def plans(command: Load, files: Sequence[Path], there: Sequence[Device]) -> list[Plan]:
    """Plans for what `command` asks for, each smaller than the one before.

    After as many deaths for want of memory as it tells of, as many plans are left out.

    Raises:
        BadGGUF: a file cannot be used.
        ConfigError: a device that is not there.
    """
    from localspec.engine.llama import build_info  # noqa: PLC0415 - see `assemble.load`

    repacked = frozenset() if command.safe_kernels else repacked_types(build_info())
    outlines = [outline(header.read(file), repacked) for file in files]
    if any(outlines[0].state_values):  # the loader leaves the draft out, with a reason
        del outlines[1:]
    found = placement.plans(Wish(command.config, *outlines), there)
    return found[min(command.smaller, len(found) - 1) :]


def main() -> int:
    """Say what there is."""
    from localspec.engine.llama import build_info  # noqa: PLC0415 - see `assemble.load`

    there = devices.Machine(present(), build_info())
    sys.stdout.buffer.write(msgspec.json.encode(there))
    return 0


if __name__ == "__main__":
    sys.exit(main())
