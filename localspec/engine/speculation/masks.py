"""Times the masks of a grammar, and bounds the nodes of a draft by these times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.types import Constraint, Token

STEP_SECONDS = 0.05
"""The most seconds for masks of one session's draft in a step, as other sessions wait for them."""

_LATEST = 8
"""Masks in the moving average of their times: a grammar is slow in some places only."""


class Masks:
    """A constraint whose masks are timed. Request lifetime; implements `types.Constraint`.

    Args:
        inner: The grammar.
        clock: Seconds, monotonic.
    """

    def __init__(self, inner: Constraint, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._clock = clock
        self._seconds = 0.0

    @property
    def nodes(self) -> int:
        """The most nodes of a draft: each needs a mask when it is drafted and one when verified."""
        return int(min(STEP_SECONDS / max(self._seconds, 1e-6) / 2, 1 << 16))

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Delegate to the grammar."""
        began = self._clock()
        allowed = self._inner.mask(path)
        seconds = self._clock() - began
        self._seconds += (seconds - self._seconds) / (_LATEST if self._seconds else 1)
        return allowed

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """Delegate to the grammar."""
        return self._inner.forced(path)

    def commit(self, tokens: Sequence[Token]) -> None:
        """Delegate to the grammar."""
        self._inner.commit(tokens)
