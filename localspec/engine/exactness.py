"""Which row counts give bit-identical logits, and the shape of decodes that follows from it.

A row's logits depend on how many rows share its forward: kernels differ by row count, and what they
round differently the next layers amplify. Plain and speculative decoding then part at near-ties.
In strict use every forward is built from multiples of one row count, within a class of sizes that
was found to agree bit for bit, prefill included. Keys, values and logits are then a function of the
tokens alone, whatever was drafted, shared, reused or chunked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        remaining = list(MULTIPLES[: MULTIPLES.index(largest // 2) + 1])
        for context in CONTEXTS:
            if context + SPAN + largest > target.context:
                continue
            reference = _replay(target, context, largest, [largest])
            remaining = [
                multiple
                for multiple in remaining
                if np.array_equal(
                    reference, _replay(target, context, largest, _mixture(multiple, largest))
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
    sizes = (1, 2, 4, 8, 16)
    context = CONTEXTS[0]
    if context + SPAN > target.context:
        return Shape(1, target.max_rows, can_roll_back, detail="context too short to probe")
    single = _replay(target, context, context, [1], span=max(sizes))
    same: list[int] = []
    largest = 0.0
    for size in sizes:
        other = _replay(target, context, context, [size], span=max(sizes))
        difference = float(np.abs(single - other).max())
        largest = max(largest, difference)
        if difference == 0.0:
            same.append(size)
    target.truncate(0, 0)
    bitwise = len(same) == len(sizes)
    detail = (
        f"1 to {max(sizes)} rows agree bit for bit"
        if bitwise
        else f"{', '.join(map(str, same))} rows agree, others differ by up to {largest:.2f}"
    )
    return Shape(1, target.max_rows, can_roll_back, bitwise=bitwise, detail=detail)


def _mixture(multiple: int, largest: int) -> list[int]:
    """Forward sizes that a session may see: the smallest, the largest and some between."""
    return [min(largest, multiple * factor) for factor in (1, 3, 1, 2, 5, 1, 8)]


def _replay(
    target: Backend, context: int, chunk: int, sizes: Sequence[int], span: int = SPAN
) -> Floats:
    """Logits (span, n_vocab) of fixed tokens after `context` others, in forwards of `sizes`."""
    random = np.random.default_rng(0)
    tokens: list[Token] = random.integers(0, target.n_vocab, context + span).tolist()
    target.truncate(0, 0)
    for start in range(0, context, chunk):
        rows = min(chunk, context - start)
        target.decode(_rows(tokens, start, rows, wants_logits=False))
    found = []
    start = context
    for size in _cycle(sizes):
        if start >= context + span:
            break
        wanted = min(size, context + span - start)
        padded = tokens[start : start + wanted] + tokens[-1:] * (size - wanted)
        logits = target.decode(_rows([*tokens[:start], *padded], start, size, wants_logits=True))
        found.append(logits[:wanted].copy())
        start += wanted
        target.truncate(0, start)
    return np.concatenate(found)


def _cycle(sizes: Sequence[int]) -> Iterator[int]:
    while True:
        yield from sizes


def _rows(tokens: Sequence[Token], start: int, count: int, *, wants_logits: bool) -> list[Row]:
    return [
        Row(tokens[position], position, 0, wants_logits) for position in range(start, start + count)
    ]
