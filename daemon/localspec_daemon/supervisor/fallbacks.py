"""Changes how a model is loaded after a load has failed or a worker has died.

The next load takes less memory, leaves the projector out, or uses safe kernels.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from localspec.wire.messages import Load
from localspec_daemon.supervisor.worker import Exit

_log = logging.getLogger("localspec.model")

MAX_SMALLER = 2
"""How many times a smaller plan is tried after a worker ran out of memory."""


@dataclass(slots=True)
class Fallbacks:
    """Changes to the next load of one model after failures. Pure, except that it logs.

    `smaller` counts the plans that are skipped because they needed more memory than there was.
    """

    smaller: int = 0
    safe_kernels: bool = False
    blind: str = ""
    """The reason why no projector is loaded."""

    def reset(self) -> None:
        """Make the next load a normal one: the reasons may be gone."""
        self.smaller, self.safe_kernels, self.blind = 0, False, ""

    def shrink(self, exit_: Exit) -> bool:
        """Take a smaller plan if the worker ran out of memory; False if not, or if none is left."""
        if not exit_.out_of_memory or self.smaller >= MAX_SMALLER:
            return False
        self.smaller += 1
        return True

    def avoid_fault(self, name: str, exit_: Exit) -> bool:
        """Load without optional CPU kernels after a fault; False where that would change nothing.

        Some CPU kernels of llama.cpp crash on some machines; plain ones are slower but work.
        """
        if exit_.out_of_memory or self.safe_kernels or not exit_.by_fault:
            return False
        self.safe_kernels = True
        _log.warning("safe_kernels model=%s after=%s", name, exit_.cause)
        return True

    def leave_projector(self, name: str, exit_: Exit, stage: str) -> bool:
        """Load without the projector, where the worker died of it; False where it did not."""
        if stage != "images" or exit_.out_of_memory or not exit_.by_fault:
            return False
        self.blind = f"its projector ended the worker when it was loaded ({exit_.cause})"
        _log.warning("no_projector model=%s after=%s", name, exit_.cause)
        return True

    def applied(self, load: Load, host_bytes: int | None) -> Load:
        """The worker's Load with these changes, and the host memory it may take, in bytes."""
        if self.blind:
            load = msgspec.structs.replace(load, projector="", no_projector=self.blind)
        return msgspec.structs.replace(
            load, safe_kernels=self.safe_kernels, smaller=self.smaller, host_bytes=host_bytes
        )
