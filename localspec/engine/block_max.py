"""The peaks of a row of logits, by which its likeliest tokens are found. Pure.

A round reads megabytes of logits, and reading them is most of what the host does in it: of each row
the largest logit of every block is found in one pass; all that is asked of the row follows.
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

    Block b holds every n-th logit from b on, n the number of blocks: numpy takes maxima over the
    first axis at the speed of memory. What is left over is in blocks of one.
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
        """The largest logit of each block; found in the one pass over the row, when first asked."""
        if self._maxima is None:
            tail = self.logits[self._blocks.size :]
            self._maxima = np.concatenate([self._blocks.max(axis=0), tail])
        return self._maxima

    def kept(self) -> BlockMax:
        """The same: its `certainty` may be asked when the logits are others."""
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

        Each block stands for its largest logit only, so it is somewhat too high; that is good
        enough to tell easy text from hard, and several times as fast as a softmax over 152k tokens.
        """
        return 1.0 / float(np.exp(self.maxima - self.maxima.max()).sum())


Logits: TypeAlias = "Floats | BlockMax"
"""One row: the array itself, or its peaks where more than one thing is asked of it."""
