"""Forwards of a model that are computed once and remembered, for `remembered.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from localspec.config import Placement
from localspec.types import Floats, ForwardOutput, Row, Token

KEPT = 96
"""Logits of a row that are remembered; all others are as unlikely as `UNLIKELY`."""
UNLIKELY = -30.0
_ROWS = 31
LONGEST = 3000


class Said(NamedTuple):
    """A model's answer behind a text: its likeliest tokens, their logits, and the state."""

    tokens: Any
    logits: Any
    state: Any

    @property
    def likeliest(self) -> Token:
        """The token of the largest logit."""
        return int(self.tokens[self.logits.argmax()])


class Speaks(Protocol):
    """Computes what is not remembered."""

    computed: int
    """Answers so far."""

    def said(self, text: Sequence[Token], first: int) -> list[Said]:
        """The answers behind `text[: first + 1]`, behind one token more, ... behind all of it."""


class Computed:
    """A model that is loaded when something is asked of it.

    Args:
        file: Its weights.
        shows: Whether its states are looked at.
    """

    def __init__(self, file: Path, *, shows: bool) -> None:
        self._file, self._shows = file, shows
        self.computed = 0
        self._context: Any = None
        self._held: list[Token] = []

    @property
    def context(self) -> Any:
        """Its context of one slot."""
        if self._context is None:
            from localspec.engine.llama.context import Context  # noqa: PLC0415 — llama.cpp comes late
            from localspec.engine.llama.model import Model  # noqa: PLC0415 — as above

            model = Model.load(self._file, Placement(), safe_kernels=False)
            self._context = Context.open(model, slots=1, context=2 * LONGEST, rows=256)
            if self._shows:
                self._context.show()
        return self._context

    def said(self, text: Sequence[Token], first: int) -> list[Said]:
        """As `Speaks` has it."""
        kept = 0
        while kept < min(len(self._held), first) and self._held[kept] == text[kept]:
            kept += 1
        self.context.truncate(0, kept)
        for start in range(kept, first, 256):
            end = min(start + 256, first)
            self.context.decode([Row(text[at], at, 0) for at in range(start, end)])
        found: list[Said] = []
        for start in range(first, len(text), _ROWS):
            end = min(start + _ROWS, len(text))
            rows = [Row(text[at], at, 0, True) for at in range(start, end)]
            logits, shown, _ = self.context.decode(rows)
            states = [None] * len(rows) if shown is None else shown
            found += [_said(row, state) for row, state in zip(logits, states, strict=True)]
        self._held = list(text)
        self.computed += len(found)
        return found


def _said(row: Floats, state: Floats | None) -> Said:
    likeliest = np.argpartition(row, -KEPT)[-KEPT:].astype(np.int32)
    return Said(likeliest, row[likeliest].copy(), None if state is None else state.copy())


@dataclass
class Remembered:
    """A `Backend` of one slot that computes nothing twice; others may know the same.

    While it is `silent` it says nothing and computes nothing, which is enough to measure times.
    `along` its own likeliest tokens alone it says something: what stands behind another one is
    rejected, and greedily nobody looks at that.
    """

    speaks: Speaks
    n_vocab: int
    known: dict[bytes, Said] = field(default_factory=dict)
    silent: bool = False
    along: bool = False

    n_slots, max_rows, context = 1, 512, 2 * LONGEST

    def __post_init__(self) -> None:
        self._text: list[Token] = []
        self._keys = [b""]

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Logits and states, from memory as far as they are there."""
        start = len(self._text)
        for row in rows if not self.silent else ():
            assert row.position == len(self._text), "a slot is read in order"
            self._text.append(row.token)
            key = self._keys[-1] + row.token.to_bytes(4, "little")
            self._keys.append(hashlib.blake2b(key, digest_size=12).digest())
        places = [start + at for at, row in enumerate(rows, 1) if row.wants_logits]
        logits = np.full((len(places), self.n_vocab), UNLIKELY, dtype=np.float32)
        found: list[Said] = []
        for row_logits, place in zip(logits, () if self.silent else places, strict=False):
            if found and self.along and self._text[place - 1] != found[-1].likeliest:
                break
            found.append(self._said(place, places[-1]))
            row_logits[found[-1].tokens] = found[-1].logits
        shown = [each.state for each in found if each.state is not None]
        if not shown or len(places) < len(rows):
            return ForwardOutput(logits)
        return ForwardOutput(logits, np.stack(shown + shown[-1:] * (len(rows) - len(shown))))

    def _said(self, place: int, last: int) -> Said:
        """The answer behind a place of the text; computed with those up to `last`, if at all."""
        key = self._keys[place]
        if key not in self.known:
            end = place if self.along else last
            said = self.speaks.said(self._text[:end], place - 1)
            self.known |= dict(zip(self._keys[place : end + 1], said, strict=True))
        return self.known[key]

    def truncate(self, slot: int, length: int) -> int:
        """Forget what lies behind."""
        del slot
        if not self.silent:
            del self._text[length:], self._keys[length + 1 :]
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Nothing to come back to."""
