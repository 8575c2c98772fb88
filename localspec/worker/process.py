"""Configures a worker's process: it dies with its supervisor, and first if memory runs out."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OOM_SCORE_ADJ = 800

SWITCH_SECONDS = 0.0005
"""A preprocessing thread yields to the engine's thread after this time. Python's default is ten
times as long, and the engine's thread waits a dozen times in a step."""

STACK_BYTES = 256 * 1024 * 1024
"""More than twice what the hungriest tokenizer needs for `limits.MAX_WORD_CHARS`."""


def configure() -> None:
    """Settings of the whole process, made before anything is loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    faulthandler.enable()  # an abort of native code leaves its Python stack on standard error
    expendable()
    die_with_parent()


def expendable() -> None:
    """Leave no core dump and no open files behind, and be killed first when memory is short."""
    os.umask(0o077)  # nothing that a worker writes is for others
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the supervisor
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold prompts and weights
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # some systems do not allow it
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def loaded() -> None:
    """Freeze the loaded objects: the garbage collector need not walk through them again.

    A request of many small values makes it walk often, in the middle of another request's step.
    """
    gc.collect()
    gc.freeze()


def die_with_parent() -> None:
    """Have Linux send SIGKILL when the parent dies; works while native code is busy, too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def deep_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """A started thread that does `work`, with a stack large enough for tokenizers.

    Tokenizers split text with recursive regular expressions: a word of 50,000 letters overflows a
    platform's default stack, which ends the process. Only touched pages cost memory.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    before = threading.stack_size(STACK_BYTES)
    try:
        thread.start()
    finally:
        threading.stack_size(before)
    return thread
