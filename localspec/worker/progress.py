"""Reports of a load's progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

_STEP = 0.01
"""Share of a stage between two reports."""


class OnProgress(Protocol):
    """Called with a stage ("target", "draft", "images" and the like), its progress, and words."""

    def __call__(self, stage: str, fraction: float, why: str = "", /) -> None:
        """Report a fraction of the stage, 0 to 1."""


def of_stage(stage: str, tell: OnProgress) -> Callable[[float], None]:
    """A function that reports fractions of a stage: 0 at once, then each hundredth, and the end."""
    said = 0.0

    def progressed(fraction: float) -> None:
        nonlocal said
        if fraction >= said + _STEP or fraction >= 1.0 > said:
            said = fraction
            tell(stage, fraction)

    tell(stage, 0.0)
    return progressed
