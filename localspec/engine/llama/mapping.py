"""The mapped file of a model: what was read of it while loading need not stay resident."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ +(.+)")
_DONT_NEED = 4  # MADV_DONTNEED


def give_back() -> None:
    """Let go of the pages of every mapped GGUF; those that are needed come back when they are read.

    llama.cpp repacks weights into memory of its own; the pages that it read them from would stay
    beside the copies. They are the system's cache of a file, so what comes back costs no reading
    while there is memory. Only on Linux; pages that are locked stay.
    """
    if not _MAPS.exists():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for found in filter(None, map(_LINE.fullmatch, _MAPS.read_text().splitlines())):
        if found[3].endswith(".gguf"):
            start, end = int(found[1], 16), int(found[2], 16)
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)
