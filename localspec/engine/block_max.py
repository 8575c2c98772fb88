"""The largest logit of each block of a row, by which its likeliest tokens are found. Pure.

A round has megabytes of logits, and reading them is most of the host's work in it. So one pass over
a row finds the largest logit of every block, and later questions are answered from these.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.types import Floats, Token

_BLOCK = 64
"""Logits in a block: 2374 maxima for 152k tokens, few enough to partition, and 40 blocks few enough
to search."""


class BlockMax:
    """One row of logits (n_vocab,), valid as long as they are, with the maxima of its blocks.

    With n blocks, block b holds every n-th logit from b on: numpy takes maxima over the first axis
    at the speed of memory. Each logit that is left over is a block of its own.
    """

    def __init__(self, logits: Floats) -> None:
        count = logits.size // _BLOCK
        self.logits = logits
        self._blocks = logits[: count * _BLOCK].reshape(_BLOCK, count)
        self._maxima: Floats | None = None

    def __getitem__(self, token: Token) -> float:
        return float(self.logits[token])

    @property
    def maxima(self) -> Floats:
        """The largest logit of each block, found in one pass when first asked for."""
        if self._maxima is None:
            tail = self.logits[self._blocks.size :]
            self._maxima = np.concatenate([self._blocks.max(axis=0), tail])
        return self._maxima

    def kept(self) -> BlockMax:
        """This object; its `certainty` may be asked even after the logits are overwritten."""
        _ = self.maxima
        return self

    def argmax(self) -> Token:
        """The likeliest token; of several the smallest id, as numpy has it."""
        maxima, count = self.maxima, self._blocks.shape[1]
        block = int(maxima.argmax())
        alone = np.count_nonzero(maxima == maxima[block]) == 1
        if alone and block < count:
            return int(self._blocks[:, block].argmax()) * count + block
        return int(self.logits.argmax())

    def top_k(self, count: int) -> NDArray[np.int32]:
        """The `count` largest logits' token ids, largest first, ties to the smaller id. Exact.

        The count-th largest maximum is a lower bound of the count-th largest logit, so only the
        blocks that reach it need a look.
        """
        size, blocks = self.logits.size, self.maxima.size
        if count >= size:
            found = np.arange(size)
        elif blocks <= count:
            bound = np.partition(self.logits, size - count)[size - count]
            found = np.flatnonzero(self.logits >= bound)
        else:
            found = self._reaching(np.partition(self.maxima, blocks - count)[blocks - count])
        order = np.lexsort((found, -self.logits[found]))
        return found[order[:count]].astype(np.int32)

    def _reaching(self, bound: np.float32) -> NDArray[np.intp]:
        """Token ids of all logits from `bound` on, in any order."""
        count = self._blocks.shape[1]
        high = np.flatnonzero(self.maxima >= bound)
        ends = int(np.searchsorted(high, count))
        columns = high[:ends]
        place = np.flatnonzero(self._blocks[:, columns] >= bound)  # much faster than np.nonzero
        offset, which = np.divmod(place, max(ends, 1))
        return np.concatenate(
            [offset * count + columns[which], high[ends:] - count + self._blocks.size]
        )

    def certainty(self) -> float:
        """About the probability of the likeliest token.

        Only the largest logit of each block counts, so the value is somewhat too high. It is good
        enough to tell easy text from hard, and several times as fast as a softmax over 152k tokens.
        """
        return 1.0 / float(np.exp(self.maxima - self.maxima.max()).sum())


Logits: TypeAlias = "Floats | BlockMax"
"""One row: the array itself, or its peaks where more than one thing is asked of it."""
