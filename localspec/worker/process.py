"""What makes a process a good worker: it dies with its supervisor and before anything else."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OOM_SCORE_ADJ = 800
_STACK_BYTES = 100 * 1024 * 1024


def settle() -> None:
    """Settings of the whole process, made before anything is loaded."""
    faulthandler.enable()  # an abort of native code leaves its Python stack on standard error
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the supervisor
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold prompts and weights
    if sys.platform == "linux":
        _die_with_parent()
        _grow_stack()
        with contextlib.suppress(OSError):  # not everywhere may a process volunteer
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))


def _die_with_parent() -> None:
    """SIGKILL from the kernel when the supervisor dies, also while native code is busy."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _grow_stack() -> None:
    """Tokenizers split text with recursive regular expressions; a long word needs a deep stack."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY or soft >= _STACK_BYTES:
        return
    wanted = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(hard, _STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
