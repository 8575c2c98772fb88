"""What a token reads of a model, by device, and how long that takes by their bandwidths. Pure.

Decoding reads every weight that a token needs once. Of a mixture of experts that is all of its
attention, but few of its experts: so on a card that is too small for both, experts are what may
stay on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.catalog.devices import Device
from localspec.catalog.memory import Outline
from localspec.catalog.plan import Layout

BYTES_PER_SECOND = {"cpu": 50e9, "gpu": 500e9, "remote": 500e9}
"""Where nothing better is known: two channels of DDR5-5600 give half of their 90 GB/s or a little
more to llama.cpp, and cards that people have 300 to 1,000."""


def bytes_by_device(outline: Outline, layout: Layout) -> dict[str, int]:
    """The weights that a token reads where `layout` places the model."""
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
    """How long a token takes by that alone: a bound, and enough to compare plans.

    States that go from card to host and back are left out: two for each layer that is split, some
    30 microseconds each, 3 ms of 48 layers.
    """
    known = {device.name: device for device in devices}
    total = 0.0
    for name, count in bytes_by_device(outline, layout).items():
        device = known.get(name)
        fallback = BYTES_PER_SECOND["cpu" if name == "CPU" else "gpu"]
        total += count / ((device.bytes_per_second if device else 0.0) or fallback)
    return total
