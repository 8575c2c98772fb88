"""Finds draft heads for a target, by a tensor that all its quantizations have in common.

A head is a GGUF made once for the weights of one model. It holds two matrices, a vector and a list
of words (tokens); converted from Medusa or Hydra, it holds blocks and output rows for each
position. Its key is the SHA-256 of the target's last norm, which is F32 in every quantization.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.built import installed
from localspec.catalog import compact_heads, header
from localspec.catalog.ggml_types import BY_ID
from localspec.catalog.reader import INT32, Array, Parsed
from localspec.engine.llama.products import FLOAT, FORMATS, Products, Stored
from localspec.engine.speculation.head import Head, HeadMaps
from localspec.engine.speculation.position_heads import (
    MOST_POSITIONS,
    Block,
    Linear,
    Position,
    PositionHeads,
)
from localspec.engine.speculation.states import FeatureHead
from localspec.errors import BadGGUF

_log = logging.getLogger("localspec.worker")

KIND = "draft-head"
"""`general.architecture` of a head."""
KEY = f"{KIND}.target"
"""The digest of the target's last norm."""
WORDS = f"{KIND}.words"
POSITIONS = f"{KIND}.positions"
"""The number of positions, where the file has a head for each position (Medusa, Hydra)."""
_ALIGNED_BYTES = 32
_PACKED = {FORMATS[name].number for name in ("q4_0", "q8_0")}
_NUMBERS = {kind.name: number for number, kind in BY_ID.items()}


class File(NamedTuple):
    """A GGUF and its bytes, mapped into memory."""

    parsed: Parsed
    data: NDArray[np.uint8]

    @classmethod
    def open(cls, path: Path) -> File:
        """Map a GGUF. Raises BadGGUF, and OSError where there is no address space for it."""
        return cls(header.parse(path), np.memmap(path, np.uint8, "r"))

    def tensor(self, *names: str) -> Stored:
        """The tensor of the first name that exists; a vector is one row. Raises KeyError."""
        named = {tensor.name: tensor for tensor in self.parsed.tensors}
        tensor = next((named[name] for name in names if name in named), None)
        if tensor is None:
            raise KeyError(names[0])
        start = self.parsed.data_start + tensor.offset
        data = self.data[start : start + tensor.num_bytes]
        width = tensor.shape[0]
        return Stored(_NUMBERS[tensor.type.name], width, tensor.num_elements // width, data)


def key(target: File) -> str:
    """The key by which a model's heads are found. Raises KeyError: it has no last norm."""
    return compact_heads.key(target.parsed, target.data.data)


def output(target: File) -> Stored:
    """The matrix that makes logits of states. Raises KeyError."""
    return target.tensor("output.weight", "token_embd.weight")


def find(path: Path, *directories: Path, threads: int = 1) -> FeatureHead | None:
    """The first head in these directories that fits the target at `path`; None without one.

    It computes with `threads` threads.
    """
    try:
        target = File.open(path)
        wanted = key(target)
    except (BadGGUF, KeyError, OSError) as error:
        _log.info("no draft head can be had for %s: %s", path.name, error)
        return None
    for file in (each for place in directories for each in sorted(place.glob("*.gguf"))):
        try:
            head = File.open(file)
            if head.parsed.metadata.get(KEY) == wanted:
                return _made(head, target, threads)
        except (BadGGUF, KeyError, ValueError, OSError, MemoryError) as error:
            _log.warning("the draft head in %s is left out: %s", file, error)
    return None


def _made(head: File, target: File, threads: int) -> FeatureHead:
    """Build the head for the target. Raises KeyError, ValueError: they do not fit; MemoryError."""
    known = head.parsed.metadata[WORDS]
    if not isinstance(known, Array) or known.element_type != INT32:
        raise ValueError("its words are no numbers")
    words = np.array(known.numbers(), np.int32)
    embedding = target.tensor("token_embd.weight")
    rows = output(target)
    inside = (words >= 0) & (words < rows.outputs)
    if rows.width != embedding.width or not len(words) or not inside.all():
        raise ValueError("its words are not in the target's vocabulary")
    if embedding.data.ctypes.data % _ALIGNED_BYTES:
        raise ValueError("the target's embeddings are not aligned")
    if POSITIONS in head.parsed.metadata:
        positions = _positions(head, embedding.width, len(words))
        return PositionHeads(Products(installed(), threads=threads), positions, words, embedding)
    maps = HeadMaps(
        head.tensor("state.weight"),
        head.tensor("token.weight"),
        head.tensor("bias").data.view(np.float32),
        words,
    )
    width = embedding.width
    square = FORMATS["q4_0"].number, width, width
    if not maps.state[:3] == maps.token[:3] == square or maps.bias.shape != (width,):
        raise ValueError("its maps are not of the target's width, or not in Q4_0")
    return Head(Products(installed(), threads=threads), maps, embedding, rows)


def _positions(head: File, width: int, words: int) -> list[Position]:
    """The heads for one position each, all sizes checked. Raises KeyError, ValueError."""
    there = {tensor.name for tensor in head.parsed.tensors}
    count = head.parsed.metadata[POSITIONS]
    if not isinstance(count, int) or not 0 < count <= MOST_POSITIONS:
        raise ValueError("its positions are no number of heads")

    def linear(name: str, known: int, outputs: int) -> Linear:
        weight = head.tensor(f"{name}.weight")
        bias = head.tensor(f"{name}.bias") if f"{name}.bias" in there else None
        sizes = (weight.width, weight.outputs) == (known, outputs)
        plain = bias is None or (bias.type, bias.width) == (FLOAT, outputs)
        if not sizes or not plain or weight.type not in _PACKED:
            raise ValueError(f"its {name} is not of the target's width")
        return Linear(weight, None if bias is None else bias.data.view(np.float32))

    def position(place: int) -> Position:
        blocks: list[Block] = []
        while f"{place}.{len(blocks)}.block.weight" in there:
            first = not blocks and f"{place}.residual.weight" in there
            known = (place + 2) * width if first else width
            residual = linear(f"{place}.residual", known, width) if first else None
            blocks.append(Block(linear(f"{place}.{len(blocks)}.block", known, width), residual))
        return Position(blocks, linear(f"{place}.output", width, words))

    found = [position(place) for place in range(count)]
    if len({each.reads_tokens for each in found}) > 1:
        raise ValueError("its heads are of different kinds")
    return found
