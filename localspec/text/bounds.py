"""Time and memory for code that came with a file."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_STATM = Path("/proc/self/statm")


class Exceeded(Exception):
    """The code wanted more than it may have; the text says what."""


@contextlib.contextmanager
def bounded(*, seconds: float, memory_bytes: int) -> Iterator[None]:
    """Run Python code of the calling thread under a deadline and a cap on new memory.

    The deadline is checked at each line of Python, so loops end and a single call into C does not;
    what one call into C can do is bounded by the memory that it may fill. Raises Exceeded inside
    the block after `seconds`, and Python raises MemoryError beyond `memory_bytes` where the
    platform tells how much a process has (Linux).
    """
    deadline = time.monotonic() + seconds

    def watch(_frame: FrameType, _event: str, _argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise Exceeded(f"it runs for more than {seconds:g} seconds")
        return watch

    before = sys.gettrace()
    with _memory(memory_bytes):
        sys.settrace(watch)
        try:
            yield
        finally:
            sys.settrace(before)


@contextlib.contextmanager
def _memory(more_bytes: int) -> Iterator[None]:
    """Let the address space of the process grow by at most `more_bytes` for a while."""
    if not _STATM.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + more_bytes
    ceilings = [value for value in (soft, hard) if value != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([limit, *ceilings]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
