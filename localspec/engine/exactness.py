"""Which row counts give bit-identical logits, and the shape of decodes that follows from it.

A row's logits depend on how many rows share its forward: kernels differ by row count, and what they
round differently the next layers amplify. Plain and speculative decoding then part at near-ties.
In strict use every forward is built from multiples of one row count, within a class of sizes that
was found to agree bit for bit, prefill included. Keys, values and logits are then a function of the
tokens alone, whatever was drafted, shared, reused or chunked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.types import Backend, Floats, Row, Token

CONTEXTS = (48, 544)
"""Prefix lengths to probe: attention takes another path for single rows from 512 positions on."""

SPAN = 48
"""Tokens compared after each prefix: several forwards, so that keys and values are compared too."""

MULTIPLES = (1, 2, 4, 8, 16)
LARGEST = (32, 16)


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows may be put into one forward.

    Every session's rows are padded to a multiple of `multiple`; a forward has at most `max_rows`.
    `bitwise` says that all such forwards agree bit for bit. `detail` says it to people.
    """

    multiple: int = 1
    max_rows: int = 1 << 30
    can_roll_back: bool = True
    bitwise: bool = False
    detail: str = "not probed"


def strict(target: Backend, *, can_roll_back: bool) -> Shape:
    """The cheapest class of forwards that agree bit for bit. Leaves slot 0 empty.

    Where no class is found, `bitwise` is False and speculation must stay off.
    """
    for largest in LARGEST:
        remaining = [multiple for multiple in MULTIPLES if multiple < largest]
        for context in CONTEXTS:
            if context + SPAN + largest > target.context:
                continue
            _read(target, context, largest)
            reference = _replay(target, context, [largest], SPAN)
            remaining = [
                multiple
                for multiple in remaining
                if np.array_equal(
                    reference, _replay(target, context, _mixture(multiple, largest), SPAN)
                )
            ]
        target.truncate(0, 0)
        if remaining:
            detail = f"bit-identical for multiples of {remaining[0]} up to {largest} rows"
            return Shape(remaining[0], largest, can_roll_back, bitwise=True, detail=detail)
    detail = "no class of row counts agrees bit for bit on this build; speculation is off"
    return Shape(1, target.max_rows, can_roll_back, bitwise=False, detail=detail)


def standard(target: Backend, *, can_roll_back: bool) -> Shape:
    """Any rows in any forward, with a word on how far their logits differ. Leaves slot 0 empty."""
    context, sizes = CONTEXTS[0], (1, 2, 4, 8)
    span = max(sizes)
    if context + span > target.context:
        return Shape(1, target.max_rows, can_roll_back, detail="context too short to probe")
    _read(target, context, context)
    single = _replay(target, context, [1], span)
    differences = {
        size: float(np.abs(single - _replay(target, context, [size], span)).max()) for size in sizes
    }
    target.truncate(0, 0)
    same = [size for size, difference in differences.items() if difference == 0.0]
    detail = (
        f"1 to {span} rows agree bit for bit"
        if len(same) == len(sizes)
        else f"{', '.join(map(str, same))} rows agree, others differ by up to "
        f"{max(differences.values()):.2f}"
    )
    return Shape(1, target.max_rows, can_roll_back, bitwise=len(same) == len(sizes), detail=detail)


def _mixture(multiple: int, largest: int) -> list[int]:
    """Forward sizes that a session may see: the smallest, the largest and some between."""
    return [min(largest, multiple * factor) for factor in (1, 3, 1, 2, 5, 1, 8)]


def _tokens(target: Backend, count: int) -> list[Token]:
    """The same random tokens in every call; a longer list begins like a shorter one."""
    tokens: list[Token] = np.random.default_rng(0).integers(0, target.n_vocab, count).tolist()
    return tokens


def _read(target: Backend, context: int, chunk: int) -> None:
    """Put the first `context` tokens into slot 0, in forwards of `chunk` rows."""
    tokens = _tokens(target, context)
    target.truncate(0, 0)
    for start in range(0, context, chunk):
        part = tokens[start : start + chunk]
        target.decode([Row(token, start + index, 0) for index, token in enumerate(part)])


def _replay(target: Backend, context: int, sizes: Sequence[int], span: int) -> Floats:
    """Logits (span, n_vocab) of the tokens after `context` read ones, in forwards of `sizes`."""
    tokens = _tokens(target, context + span)
    target.truncate(0, context)
    found = []
    start = context
    forwards = itertools.cycle(sizes)
    while start < context + span:
        size = next(forwards)
        part = tokens[start : start + size]
        padded = part + tokens[-1:] * (size - len(part))
        rows = [Row(token, start + index, 0, True) for index, token in enumerate(padded)]
        found.append(target.decode(rows)[: len(part)].copy())
        start += len(part)
        target.truncate(0, start)
    return np.concatenate(found)
