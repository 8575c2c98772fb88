"""The memory of this computer, or of a described machine."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from localspec import machine
from localspec.catalog import groups
from localspec.config import Placement
from localspec.errors import ConfigError
from localspec.machine import Card

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_GIB = 1 << 30
_MAX_BYTES = 1 << 50
_DESCRIBED_HOST_BYTES = 32 * _GIB
"""The memory of a machine whose description names none beside its GPUs."""


class Device(msgspec.Struct, frozen=True):
    """A place for weights, by llama.cpp's name of it ("CUDA0"); the host's memory is "CPU".

    A "remote" is another machine's, for layers of the target alone. `bytes_per_second` is how fast
    weights are read there, 0 where nobody said.
    """

    name: str
    kind: Literal["gpu", "cpu", "remote"]
    free_bytes: int
    total_bytes: int
    description: str = ""
    bytes_per_second: float = 0.0


class Own(msgspec.Struct, frozen=True):
    """The kernels of ours that the loading build has on the host.

    `attention` is `native/attention.h`; `cells` take memory when they are used
    (`native/cells.cmake`).
    """

    attention: bool = False
    cells: bool = False

    def stepping(self, how: Placement, *, on_cpu: bool) -> Placement:
        """How a model is placed that decodes one row of each session at a time, as drafts do.

        That is where llama.cpp's flash attention is slowest on a CPU: behind 300 tokens a 0.5B
        draft takes 24 ms a token with it and 18 without, behind 6000 tokens 155 and 41. Without it
        a row attends to every cell of its stream, other sessions' too, so each slot gets a stream
        of its own. Attention of our own is faster than either: 18 ms behind 300 tokens where that
        took 21.
        """
        theirs = how.flash_attention == "auto" and not self.attention
        if on_cpu and theirs and how.kv_type == "f16":
            return msgspec.structs.replace(how, flash_attention="off")
        return how

    def lazy(self, how: Placement, *, on_cpu: bool) -> bool:
        """Whether a model that is placed so has cells that take memory when they are used."""
        return self.cells and on_cpu and how.flash_attention != "off"


class Present(msgspec.Struct, frozen=True):
    """The devices to plan with."""

    devices: list[Device]
    own: Own = Own()


def host() -> Device:
    """This computer's own memory: what could be taken now without pushing anything out."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total if sys.platform == "darwin" else _available(total)
    room = groups.room()
    free = max(0, free if room is None else min(free, room))
    return Device("CPU", "cpu", free, total, processor())


@functools.cache
def processor() -> str:
    """The name this computer's CPU gives itself; "" where unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def _available(total: int) -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return total
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else total


def size(text: str) -> int:
    """Bytes from "24GiB", "80 GB" or "512M". Raises ConfigError."""
    found = _SIZE.fullmatch(text.strip())
    count = float(found[1]) * (_BINARY if found[3] else _UNITS)[found[2].upper()] if found else 0
    if not 0 < count <= _MAX_BYTES:
        raise ConfigError(f'"{text[:40]}" is no size of memory.', fix='Write "24GiB" or "80GB".')
    return int(count)


def of_size(text: str, name: str = "GPU0") -> list[Device]:
    """A machine with one GPU of that much memory, as `--memory` describes it."""
    return _machine([Device(name, "gpu", size(text), size(text))])


def described(path: Path) -> list[Device]:
    """The devices in a machine's table (`localspec/machine.py`), the host last.

    Raises ConfigError.
    """
    return _machine([_device(card) for card in machine.cards(path)])


def _device(card: Card) -> Device:
    name = "CPU" if card.kind == "cpu" else card.name
    return Device(
        name,
        card.kind,
        card.total_bytes,
        card.total_bytes,
        bytes_per_second=1e9 * (card.gb_per_second or 0.0),
    )


def _machine(found: Sequence[Device]) -> list[Device]:
    """GPUs first, the host's memory last."""
    hosts = [device for device in found if device.kind == "cpu"]
    hosts = hosts or [Device("CPU", "cpu", _DESCRIBED_HOST_BYTES, _DESCRIBED_HOST_BYTES)]
    return [*(device for device in found if device.kind == "gpu"), *hosts]
