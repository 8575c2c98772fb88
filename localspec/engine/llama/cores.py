"""The cores that this process may use, as Linux tells: kinds of them, and a container's quota.

On other systems every core counts. Paths are below a `root`, so that any machine can be described.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection
from pathlib import Path

_HERE = Path("/")
_CPUS = "sys/devices/system/cpu"
_SLOW = ("sys/devices/cpu_atom/cpus", "sys/devices/cpu_lowpower/cpus")
"""Where Intel's hybrid CPUs list their efficiency cores."""


def performance_cores(root: Path = _HERE, allowed: Collection[int] | None = None) -> int:
    """The number of physical cores without the slowest of several kinds, at most the quota."""
    return counts(root, allowed)[0]


def counts(root: Path = _HERE, allowed: Collection[int] | None = None) -> list[int]:
    """Numbers of threads that may be the best, the likeliest first. Measurements choose among them.

    The first has a thread for each performance core. Each other one stands for a kind of core, with
    a thread for each core that is at least as fast. Hyper-threads of one core count once. `allowed`
    are the CPUs of this process, by its affinity.
    """
    if allowed is None:
        allowed = _affinity()
    cores = {_siblings(root, cpu): _speed(root, cpu) for cpu in sorted(allowed)}
    kinds = sorted(set(cores.values()), reverse=True)
    as_fast = [sum(speed >= kind for speed in cores.values()) for kind in kinds]
    if len(as_fast) > 1:
        as_fast.insert(0, as_fast.pop(-2))  # all but the slowest kind
    fed = quota(root)
    most = max(1, math.ceil(fed)) if math.isfinite(fed) else len(cores)
    return list(dict.fromkeys(min(count, most) for count in as_fast)) or [os.cpu_count() or 1]


def quota(root: Path = _HERE) -> float:
    """How many CPUs control groups, of either version, allow; infinite without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return math.inf
    limits = [math.inf]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            mounted = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            inner = Path(path.lstrip("/"))
            limits += (_limit(mounted / group) for group in (inner, *inner.parents))
    return min(limits)


def _limit(group: Path) -> float:
    """The CPU limit of one control group; a container may not see the groups above its own."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = " ".join((group / name).read_text(encoding="ascii") for name in names).split()
            share, period = float(words[0].replace("max", "inf")), float(words[1])
        except (OSError, ValueError, IndexError):
            continue
        if share > 0 and period > 0:  # -1 is no limit
            return share / period
    return math.inf


def _affinity() -> Collection[int]:
    """CPUs that this process may run on; none where the system does not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()


def _siblings(root: Path, cpu: int) -> str:
    """A name of the core that this CPU is a thread of."""
    return _read(root / _CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _speed(root: Path, cpu: int) -> int:
    """A number that is larger for faster kinds: ARM gives a capacity, Intel lists slow ones."""
    if capacity := _read(root / _CPUS / f"cpu{cpu}/cpu_capacity"):
        return int(capacity)
    return -sum(cpu in _listed(_read(root / name)) for name in _SLOW)


def _listed(text: str) -> set[int]:
    """The CPUs in "0-3,8"."""
    spans = (span.partition("-") for span in text.split(",") if span)
    ranges = (range(int(first), int(last or first) + 1) for first, _, last in spans)
    return set(itertools.chain.from_iterable(ranges))


def _read(path: Path) -> str:
    """A file's one line; empty without it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
