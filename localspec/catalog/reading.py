"""Estimates a token's time from the bytes read on each device and their bandwidths. Pure.

Decoding reads every weight that a token needs once. A mixture of experts needs all of attention but
few experts. On a GPU that is too small for both, the experts are therefore left on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.catalog.devices import Device
from localspec.catalog.memory import Outline
from localspec.catalog.parts import Layout

BYTES_PER_SECOND = {"cpu": 50e9, "gpu": 500e9, "remote": 500e9}
"""Defaults where the bandwidth is unknown. With two channels of DDR5-5600 llama.cpp reaches a
little more than half of their 90 GB/s; consumer GPUs have 300 to 1,000 GB/s."""


def bytes_by_device(outline: Outline, layout: Layout) -> dict[str, int]:
    """The bytes of weights that a token reads on each device under `layout`."""
    first = outline.blocks - layout.gpu_layers
    homes = ["CPU"] * first
    for name, count in zip(layout.devices, layout.shares, strict=True):
        homes += [name] * count
    found: dict[str, int] = {}
    for block, home in enumerate(homes):
        whole = outline.device_bytes[block] if home != "CPU" else outline.host_bytes[block]
        experts = outline.expert_bytes[block] if outline.expert_bytes else 0
        woken = int(experts * outline.expert_share)
        apart = block in outline.apart(layout.experts, first)
        found[home] = found.get(home, 0) + whole - experts + (0 if apart else woken)
        if apart:
            found["CPU"] = found.get("CPU", 0) + woken
    return found


def seconds(outline: Outline, layout: Layout, devices: Sequence[Device]) -> float:
    """A lower bound of a token's time in seconds, good enough to compare plans.

    Transfers between GPU and host are left out: two for each split layer, some 30 microseconds
    each, which makes 3 ms for 48 layers.
    """
    known = {device.name: device for device in devices}
    total = 0.0
    for name, count in bytes_by_device(outline, layout).items():
        device = known.get(name)
        fallback = BYTES_PER_SECOND["cpu" if name == "CPU" else "gpu"]
        total += count / ((device.bytes_per_second if device else 0.0) or fallback)
    return total
