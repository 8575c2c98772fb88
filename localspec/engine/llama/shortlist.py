"""The output rows of a draft model that are computed.

Output rows are a quarter of a small model's weights, and most of their tokens are in no text at
hand. Drafts need the frequent tokens and those of the present texts; the logits of others are not
computed (Zhao et al., 2025, "FR-Spec", arXiv 2502.14856, whose list is fixed). A draft is a guess
anyway: the answer does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localspec.types import Token

RUN = 16
"""Tokens that are listed together (`Shortlist::RUN` of native/shortlist.h)."""
_SHARE, _LEAST_TOKENS = 1 / 4, 32_768
"""A vocabulary numbers its tokens in the order of merges, so that frequent ones come first. This
share of them is always listed, and no fewer than so many."""
_READ_SHARE = 1 / 4
"""The share of the vocabulary that may be listed besides: tokens that were read last."""
_MISSED_SHARE, _MISSED_MEMORY = 0.08, 1 / 64
"""If a larger share of the read tokens was not listed, all are. In English and in code it is one in
sixty; in Chinese, Russian or Arabic it is one in four, and drafts would lose more than the output
rows cost."""


class Shortlist:
    """Runs of tokens that are listed: `fixed` ones, and of others the `most` that were read last.

    All are listed while more than the share `bearable` of the read tokens was not. Used by one
    thread.
    """

    def __init__(
        self, runs: int, fixed: Iterable[int], most: int, bearable: float = _MISSED_SHARE
    ) -> None:
        self._fixed = np.zeros(runs, bool)
        self._fixed[[*fixed]] = True
        self._most = most
        self._read: dict[int, None] = {}  # the latest last
        self._listed: NDArray[np.int32] | None = None
        self._missed, self._bearable = 0.0, bearable

    @classmethod
    def of(cls, n_vocab: int, special: Iterable[Token]) -> Self | None:
        """The shortlist of a vocabulary; None where there is nothing to leave out."""
        runs = -(-n_vocab // RUN)
        first = max(int(_SHARE * runs), _LEAST_TOKENS // RUN)
        fixed = {*range(first), *(token // RUN for token in special)}
        most = int(_READ_SHARE * runs)
        return cls(runs, fixed, most) if len(fixed) + most < runs else None

    @property
    def misses(self) -> bool:
        """Whether too many of the tokens that were read were not listed before."""
        return self._missed > self._bearable

    @property
    def runs(self) -> NDArray[np.int32]:
        """The runs that are listed now, in order."""
        if self._listed is None:
            listed = self._fixed.copy()
            listed[[*self._read]] = True
            self._listed = np.flatnonzero(listed).astype(np.int32)
        return self._listed

    @property
    def sentence(self) -> str:
        """The size of the list, as a sentence for people."""
        all_tokens = RUN * len(self._fixed)
        tokens = all_tokens if self.misses else RUN * len(self.runs)
        return f"the draft model chooses among {tokens:,} of {all_tokens:,} tokens"

    @property
    def unlisted(self) -> Token | None:
        """A token that is not listed now, if there is one."""
        missing = np.setdiff1d(np.arange(len(self._fixed)), self.runs)
        return int(missing[0]) * RUN if len(missing) else None

    def read(self, tokens: Iterable[Token]) -> None:
        """List the tokens of a text; those that were read longest ago make room for them."""
        for token in tokens:
            run = token // RUN
            known = self._fixed[run] or run in self._read
            self._missed += _MISSED_MEMORY * ((not known) - self._missed)
            if not known:
                self._listed = None
            if not self._fixed[run]:
                self._read.pop(run, None)
                self._read[run] = None
        while len(self._read) > self._most:
            del self._read[next(iter(self._read))]
