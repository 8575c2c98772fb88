"""The same tokens in forwards of different sizes, for comparing their logits."""

from __future__ import annotations

import numpy as np

from localspec.engine.exactness.probe import READ_ROWS
from localspec.engine.pieces import Pieces
from localspec.types import Backend, Floats, Row, Token


def _tokens(target: Backend, count: int) -> list[Token]:
    """The same random tokens in every call; a longer list begins like a shorter one."""
    tokens: list[Token] = np.random.default_rng(0).integers(0, target.n_vocab, count).tolist()
    return tokens


def read(target: Backend, context: int) -> Pieces[None]:
    """Put the first `context` tokens into slot 0, in forwards that any target can take."""
    tokens = _tokens(target, context)
    target.truncate(0, 0)
    for start in range(0, context, READ_ROWS):
        part = tokens[start : start + READ_ROWS]
        target.decode([Row(token, start + index, 0) for index, token in enumerate(part)])
        yield
    target.checkpoint(0)


def replay(target: Backend, context: int, size: int, span: int) -> Pieces[Floats]:
    """Logits (span, n_vocab) of the tokens after `context` read ones, in forwards of `size`."""
    tokens = _tokens(target, context + span)
    target.truncate(0, context)
    found = []
    for start in range(context, context + span, size):
        part = tokens[start : start + size]
        padded = part + tokens[-1:] * (size - len(part))
        rows = [Row(token, start + index, 0, True) for index, token in enumerate(padded)]
        found.append(target.decode(rows).logits[: len(part)].copy())
        target.truncate(0, start + len(part))
        yield
    return np.concatenate(found)
