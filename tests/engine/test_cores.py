"""Cores of described machines: kinds, hyper-threads, affinity and quotas; and of this one."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from localspec.engine.llama.cores import counts, performance_cores, quota


def described(root: Path, **files: str) -> Path:
    """A root with these files, whose names have "__" for "/" and "_dot_" for "."."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cpus(root: Path, cores: list[str], capacities: list[int] | None = None) -> Path:
    """A root whose CPUs are threads of these cores ("0-1" twice is one core)."""
    for cpu, siblings in enumerate(cores):
        at = f"sys__devices__system__cpu__cpu{cpu}__"
        described(root, **{f"{at}topology__thread_siblings_list": siblings})
        if capacities:
            described(root, **{f"{at}cpu_capacity": str(capacities[cpu])})
    return root


def test_hyper_threads_of_a_core_count_once(tmp_path: Path) -> None:
    """And those that the process may not use do not count."""
    root = cpus(tmp_path, ["0-1", "0-1", "2-3", "2-3"])
    assert counts(root, range(4)) == [2]
    assert counts(root, [1]) == [1]


def test_hybrid_cores_are_there_to_be_measured(tmp_path: Path) -> None:
    """Six performance cores of two threads each and eight efficiency cores."""
    pairs = [f"{2 * core}-{2 * core + 1}" for core in range(6) for _ in range(2)]
    root = cpus(tmp_path, [*pairs, *map(str, range(12, 20))])
    described(root, sys__devices__cpu_atom__cpus="12-15,16-19")
    assert counts(root, range(20)) == [6, 14]
    assert performance_cores(root, range(20)) == 6
    assert counts(root, range(12, 20)) == [8]


def test_three_kinds_as_phones_have_them(tmp_path: Path) -> None:
    """All but the slowest kind are likeliest; every border between kinds is tried."""
    capacities = [1024, *[870] * 3, *[250] * 4]
    root = cpus(tmp_path, list(map(str, range(8))), capacities)
    assert counts(root, range(8)) == [4, 1, 8]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys__fs__cgroup__a__b__cpu_dot_max": "max 100000"}, math.inf),
        ({"sys__fs__cgroup__a__b__cpu_dot_max": "250000 100000"}, 2.5),
        ({"sys__fs__cgroup__a__cpu_dot_max": "50000 100000"}, 0.5),
        ({"sys__fs__cgroup__cpu_dot_max": "300000 100000"}, 3.0),
        ({"sys__fs__cgroup__a__b__cpu_dot_max": "what is this"}, math.inf),
    ],
)
def test_the_smallest_quota_above_counts(
    tmp_path: Path, files: dict[str, str], expected: float
) -> None:
    """Of a container, or of a slice that it is in."""
    root = described(tmp_path, proc__self__cgroup="0::/a/b", **files)
    assert quota(root) == expected


def test_a_quota_feeds_so_many_threads(tmp_path: Path) -> None:
    """Rounded up, so that all of it is used; of the older version here."""
    root = cpus(tmp_path, list(map(str, range(8))))
    described(root, proc__self__cgroup="4:cpu,cpuacct:/a\n3:memory:/b")
    assert counts(root, range(8)) == [8]
    group = {"cpu_dot_cfs_quota_us": "240000", "cpu_dot_cfs_period_us": "100000"}
    described(root, **{f"sys__fs__cgroup__cpu__a__{name}": text for name, text in group.items()})
    assert quota(root) == 2.4
    assert counts(root, range(8)) == [3]
    described(root, sys__fs__cgroup__cpu__a__cpu_dot_cfs_quota_us="-1")
    assert counts(root, range(8)) == [8]


def test_without_linux_every_core_counts(tmp_path: Path) -> None:
    """No system file lists cores or the process's affinity."""
    assert counts(tmp_path, ()) == [os.cpu_count()]
    assert counts(tmp_path, range(3)) == [3]


def test_this_machine() -> None:
    """At least one, and no more than there are."""
    assert 1 <= performance_cores() <= (os.cpu_count() or 1)
