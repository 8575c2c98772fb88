"""What memory there is: this computer's, or a machine's that somebody described."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from localspec.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_GIB = 1 << 30
_MAX_BYTES = 1 << 50
_DESCRIBED_HOST_BYTES = 32 * _GIB
"""The memory of a machine whose description names none beside its GPUs."""
_CGROUPS = Path("/sys/fs/cgroup")


class Device(msgspec.Struct, frozen=True):
    """A place for weights, by llama.cpp's name of it ("CUDA0"); the host's memory is "CPU".

    A "remote" is another machine's, for layers of the target alone.
    """

    name: str
    kind: Literal["gpu", "cpu", "remote"]
    free_bytes: int
    total_bytes: int
    description: str = ""


class Machine(msgspec.Struct, frozen=True):
    """A computer's devices, the host last, and what its build of llama.cpp says of itself."""

    devices: list[Device]
    build: str


def host() -> Device:
    """This computer's own memory: what could be taken now without pushing anything out."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total if sys.platform == "darwin" else _available(total)
    room = _cgroup_room()
    return Device("CPU", "cpu", max(0, free if room is None else min(free, room)), total)


def _available(total: int) -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return total
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else total


def _cgroup_room() -> int | None:
    """What a container's limit leaves; None without one. Page cache does not count as taken."""
    try:
        limit = (_CGROUPS / "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return None
        used = int((_CGROUPS / "memory.current").read_text(encoding="ascii"))
        stat = (_CGROUPS / "memory.stat").read_text(encoding="ascii")
        cached = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
        return int(limit) - used + (int(cached[1]) if cached else 0)
    except (OSError, ValueError):
        return None


def size(text: str) -> int:
    """Bytes from "24GiB", "80 GB" or "512M". Raises ConfigError."""
    found = _SIZE.fullmatch(text.strip())
    count = float(found[1]) * (_BINARY if found[3] else _UNITS)[found[2].upper()] if found else 0
    if not 0 < count <= _MAX_BYTES:
        raise ConfigError(f'"{text[:40]}" is no size of memory.', fix='Write "24GiB" or "80GB".')
    return int(count)


def of_size(text: str, name: str = "GPU0") -> list[Device]:
    """A machine with one GPU of that much memory, as `--memory` describes it."""
    return _machine([Device(name, "gpu", size(text), size(text))], None)


def described(path: Path) -> list[Device]:
    """The devices in a machine's TOML: `[[device]]` with name, memory_gib or memory_bytes.

    A device may say `kind = "cpu"` and `free_gib` or `free_bytes`; `[host]` takes the same sizes.
    Other keys are for other readers. Raises ConfigError.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    entries = table.get("device")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{path} describes no [[device]].",
            fix='Add one: [[device]], name = "CUDA0", memory_gib = 24; or use --memory 24GiB.',
        )
    found = [_device(entry, index, path) for index, entry in enumerate(entries)]
    names = [device.name for device in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{path} describes {', '.join(sorted(twice))} more than once.")
    own = table.get("host")
    return _machine(found, _device({"kind": "cpu", **own}, 0, path) if own else None)


def _device(entry: Any, index: int, path: Path) -> Device:
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: a [[device]] is a table.")
    kind = entry.get("kind", "cpu" if entry.get("name") == "CPU" else "gpu")
    name = entry.get("name", "CPU" if kind == "cpu" else f"GPU{index}")
    if kind not in ("gpu", "cpu") or not isinstance(name, str):
        raise ConfigError(f'{path}: a device has a name, and a kind that is "gpu" or "cpu".')
    total = _bytes(entry, "memory", path, name)
    if total is None:
        raise ConfigError(
            f"{path} does not say how much memory {name} has.",
            fix="Add memory_gib or memory_bytes.",
        )
    free = _bytes(entry, "free", path, name)
    return Device("CPU" if kind == "cpu" else name, kind, total if free is None else free, total)


def _bytes(entry: dict[str, Any], what: str, path: Path, name: str) -> int | None:
    for key, unit in ((f"{what}_bytes", 1), (f"{what}_gib", _GIB)):
        value = entry.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"{path}: {key} of {name} is not a number.")
        if not 0 <= value * unit <= _MAX_BYTES:  # NaN fails too
            raise ConfigError(f"{path}: {key} = {value} of {name} is no size of memory.")
        return int(value * unit)
    return None


def _machine(found: Sequence[Device], own: Device | None) -> list[Device]:
    """GPUs first, the host's memory last."""
    hosts = [device for device in found if device.kind == "cpu"]
    last = hosts[0] if hosts else own
    last = last or Device("CPU", "cpu", _DESCRIBED_HOST_BYTES, _DESCRIBED_HOST_BYTES)
    return [*(device for device in found if device.kind == "gpu"), last]
