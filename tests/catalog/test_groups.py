"""Limits of control groups, as files of both versions describe them."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.catalog.groups import room

NEW = ("memory.max", "memory.current", "active_file")
OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file")


def group(place: Path, names: tuple[str, str, str], limit: str, used: int, cached: int) -> None:
    """Write the files of one group."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (limit, str(used)), strict=False):
        (place / name).write_text(f"{text}\n")
    (place / "memory.stat").write_text(f"anon 7\nin{names[2]} 0\n{names[2]} {cached}\n")


def belongs(root: Path, text: str) -> None:
    """Write the process's own cgroup file in /proc."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_the_tightest_of_all_groups_counts(tmp_path: Path) -> None:
    """The smallest of a service's and its slice's limits counts; cached files are free."""
    belongs(tmp_path, "1:name=systemd:/x\n0::/user.slice/daemon.service\n")
    slice_ = tmp_path / "sys/fs/cgroup/user.slice"
    group(slice_ / "daemon.service", NEW, "max", 50, 0)
    assert room(tmp_path) is None
    group(slice_, NEW, "1000", 600, 100)
    assert room(tmp_path) == 500
    group(slice_ / "daemon.service", NEW, "200", 50, 10)
    assert room(tmp_path) == 160
    group(slice_ / "daemon.service", NEW, "40", 50, 0)
    assert room(tmp_path) == 0


@pytest.mark.parametrize("names", [NEW, OLD])
def test_a_container_sees_its_own_group_as_the_root(
    tmp_path: Path, names: tuple[str, str, str]
) -> None:
    """The group is found under any path in /proc, in both cgroup versions."""
    controller = "" if names is NEW else "memory"
    belongs(tmp_path, f"4:{controller}:/docker/0123\n" if controller else "0::/docker/0123\n")
    group(tmp_path / "sys/fs/cgroup" / controller, names, "1000", 600, 100)
    assert room(tmp_path) == 500


def test_nothing_to_read_is_no_limit(tmp_path: Path) -> None:
    """Another system, or one that hides its groups, has no limit."""
    assert room(tmp_path) is None
    group(tmp_path / "sys/fs/cgroup", NEW, "nonsense", 1, 1)
    assert room(tmp_path) is None
