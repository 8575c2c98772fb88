"""Devices and their memory: of this computer, or of a described machine."""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import psutil

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
"""Host memory of a described machine that names none beside its GPUs."""


class Device(msgspec.Struct, frozen=True):
    """A device for weights, by llama.cpp's name ("CUDA0"); the host is "CPU".

    A "remote" device belongs to another machine and takes layers of the target alone.
    `bytes_per_second` is the read bandwidth for weights, 0 where unknown.
    """

    name: str
    kind: Literal["gpu", "cpu", "remote"]
    free_bytes: int
    total_bytes: int
    description: str = ""
    bytes_per_second: float = 0.0


class Own(msgspec.Struct, frozen=True):
    """Which of the project's own kernels this build has.

    `attention` stands for `native/attention.h`. `cells` stands for `native/cells.cmake`, with which
    KV cells take memory only once they are used.
    """

    attention: bool = False
    cells: bool = False

    def stepping(self, how: Placement, *, on_cpu: bool) -> Placement:
        """The placement of a model that decodes one row of each session at a time, as drafts do.

        llama.cpp's flash attention is slowest on a CPU in this case: after 300 tokens a 0.5B
        draft takes 24 ms a token with it and 18 without, after 6000 tokens 155 and 41. Without it
        a row attends to every cell of its stream, including other sessions' cells, so each slot
        gets its own stream. The project's own attention is faster than both: 18 ms after 300
        tokens where the alternative took 21.
        """
        theirs = how.flash_attention == "auto" and not self.attention
        if on_cpu and theirs and how.kv_type == "f16":
            return msgspec.structs.replace(how, flash_attention="off")
        return how

    def lazy(self, how: Placement, *, on_cpu: bool) -> bool:
        """Whether KV cells of a model placed like this take memory only once they are used."""
        return self.cells and on_cpu and how.flash_attention != "off"


class Present(msgspec.Struct, frozen=True):
    """The devices to plan with, the host last."""

    devices: list[Device]
    own: Own = Own()


def host() -> Device:
    """The host, with the memory that is free now without swapping anything out."""
    memory, room = psutil.virtual_memory(), groups.room()
    free = memory.available if room is None else max(0, min(memory.available, room))
    return Device("CPU", "cpu", free, memory.total, processor())


@functools.cache
def processor() -> str:
    """The CPU's own name; "" where unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def size(text: str) -> int:
    """The bytes that "24GiB", "80 GB" or "512M" stand for. Raises ConfigError."""
    found = _SIZE.fullmatch(text.strip())
    count = float(found[1]) * (_BINARY if found[3] else _UNITS)[found[2].upper()] if found else 0
    if not 0 < count <= _MAX_BYTES:
        raise ConfigError(f'"{text[:40]}" is no size of memory.', fix='Write "24GiB" or "80GB".')
    return int(count)


def of_size(text: str, name: str = "GPU0") -> list[Device]:
    """A machine with one GPU of this much memory, as `--memory` describes it."""
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
    """The devices of a description, GPUs first and the host's memory last."""
    hosts = [device for device in found if device.kind == "cpu"]
    hosts = hosts or [Device("CPU", "cpu", _DESCRIBED_HOST_BYTES, _DESCRIBED_HOST_BYTES)]
    return [*(device for device in found if device.kind == "gpu"), *hosts]
