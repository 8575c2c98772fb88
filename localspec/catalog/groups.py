"""Host memory left by the limits of control groups (container, slice or service)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_HERE = Path("/")
_FILES = (
    ("memory.max", "memory.current", r"^(?:in)?active_file (\d+)$"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_(?:in)?active_file (\d+)$"),
)
"""Names of the limit, the usage, and the cached files in `memory.stat`, by cgroup version."""


def room(root: Path = _HERE) -> int | None:
    """Bytes that this process may still allocate within its groups' limits; None without a limit.

    Cached files count as free: the kernel drops them when memory is needed.
    """
    left = (_left(group) for group in _groups(root))
    return min((size for size in left if size is not None), default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Directories of the groups that count memory, this process's own first.

    A container may not see all of them.
    """
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = "0::/"
    for controllers, path in re.findall(r"^\d+:([^:\n]*):/(.*)$", text, re.MULTILINE):
        if controllers in {"", "memory"}:
            mounted = root / "sys/fs/cgroup" / controllers
            yield from (mounted / group for group in (Path(path), *Path(path).parents))


def _left(group: Path) -> int | None:
    for limit, use, cached in _FILES:
        try:
            most = int((group / limit).read_text(encoding="ascii"))
            used = int((group / use).read_text(encoding="ascii"))
            stat = (group / "memory.stat").read_text(encoding="ascii")
        except (OSError, ValueError):  # missing, or "max"
            continue
        return max(0, most - used + sum(map(int, re.findall(cached, stat, re.MULTILINE))))
    return None
