"""Two backends that speak a text of `control.simulator`: the target says it, the draft nearly.

How sure the draft is, and how often it is right then, is as measured on a real pair. So a whole
engine runs thousands of rounds on a simulated machine without a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from control.simulator import Regime, Text

from localspec.types import Floats, ForwardOutput, Row, Token

VOCABULARY = 2048
PROMPT = [1, 2, 3, 4]
_DRAFT = (0.985, 0.93, 0.85, 0.65, 0.4)
"""The draft's probability for its token by bucket of `simulator.CONFIDENCES`."""
_TARGET = (0.97, 0.93, 0.87, 0.7, 0.55)
"""The target's there: it is sure where its draft is."""


class Speaking:
    """A `Backend` with one slot. After another text than its own it says something wrong."""

    n_vocab, n_slots, max_rows, context = VOCABULARY, 1, 64, 1 << 15

    def __init__(self, text: Text, role: Literal["target", "draft"]) -> None:
        self._text, self._role = text, role
        self._wrong: list[bool] = []
        self._scores = {
            chance: np.full(VOCABULARY, -20.0, np.float32) for chance in (*_DRAFT, *_TARGET)
        }

    def token(self, place: int) -> Token:
        """The text's, prompt included."""
        return PROMPT[place] if place < len(PROMPT) else 5 + (place * 31 + place // 7) % 50

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Scores behind each row that wants them."""
        said = []
        for row in rows:
            del self._wrong[row.position :]
            before = self._wrong[-1] if self._wrong else False
            self._wrong.append(before or row.token != self.token(row.position))
            if row.wants_logits:
                said.append(self._after(row.position))
        return ForwardOutput(np.array(said, np.float32).reshape(len(said), VOCABULARY))

    def _after(self, place: int) -> Floats:
        at = max(0, place + 1 - len(PROMPT))
        bucket, right = self._text.bucket[at], not self._wrong[-1]
        chances = _TARGET
        if self._role == "draft":
            chances, right = _DRAFT, right and self._text.agrees[at]
        logits = self._scores[chances[bucket]].copy()
        logits[self.token(place + 1) if right else 60] = np.log(chances[bucket])
        logits[1000] = np.log(1 - chances[bucket])  # nearly all of the rest
        return logits

    def truncate(self, slot: int, length: int) -> int:
        """As a cache of cells does."""
        assert slot == 0
        del self._wrong[length:]
        return len(self._wrong)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Not needed."""


def written(regime: Regime, tokens: int, seed: int) -> Text:
    """A text of that kind, with some more behind its end."""
    return Text([replace(regime, tokens=tokens + 60)], seed)
