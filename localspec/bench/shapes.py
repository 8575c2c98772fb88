"""GGUF files in the shape of a real model with random quantized weights.

The time of a forward does not depend on the weights' values. So the staircase of a large model can
be measured without downloading its gigabytes, and a build of llama.cpp can be proved before there
is any model. The blocks are random, with scales for which activations stay finite.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.catalog import writer
from localspec.catalog.writer import Metadata, Tensor
from localspec.errors import DiskFull

Kind: TypeAlias = Literal["q4_0", "q4_k_m"]

_CHUNK_BLOCKS = 1 << 15
"""Random blocks that are repeated to fill a tensor: some megabytes, made and written quickly."""
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_NORMAL, _CONTROL = 1, 3  # llama_token_type
_FILE_TYPES = {"q4_0": 2, "q4_k_m": 15}  # llama_ftype

_BLOCKS: dict[str, np.dtype[np.void]] = {
    "Q4_0": np.dtype([("d", "<f2"), ("qs", "u1", 16)]),
    "Q4_K": np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)]),
    "Q6_K": np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]),
}
"""ggml's block structures, in bytes."""
_SCALES = np.arange(4, 13, dtype=np.uint8)
_SCALE = float((_SCALES.astype(float) ** 2).mean() ** 0.5)
"""Scales of groups within a block, and their mean size."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a Qwen2, which decide how long a forward takes."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int = 152_064


SHAPES = {
    "tiny": Shape(2, 256, 4, 2, 512, vocabulary=1024),
    "0.5b": Shape(24, 896, 14, 2, 4864),
    "1.5b": Shape(28, 1536, 12, 2, 8960),
    "7b": Shape(28, 3584, 28, 4, 18_944),
    "14b": Shape(48, 5120, 40, 8, 13_824),
    "32b": Shape(64, 5120, 40, 8, 27_648),
}
"""The shapes of Qwen2.5 by the size in their names; "tiny" is for trying a measurement."""


def write(path: Path, shape: Shape, kind: Kind, *, seed: int = 0) -> Path:
    """Write a model of this shape to `path` in a few megabytes of memory, and return `path`.

    `kind` "q4_0" has every matrix in Q4_0; "q4_k_m" is llama.cpp's mixture of Q4_K and Q6_K.

    Raises:
        DiskFull: the file would not fit.
    """
    tensors = list(_tensors(shape, kind))
    needed, free = weight_bytes(shape, kind), shutil.disk_usage(path.parent).free
    if needed > free:
        raise DiskFull(
            f"{path.name} needs {needed >> 20} MiB; {path.parent} has {free >> 20} MiB free.",
            fix="Make room, choose another --output, or leave out the largest of --shapes.",
        )
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(writer.header(_metadata(path.stem, shape, kind), tensors))
        for tensor in tensors:
            _write_data(file, tensor, random)
            file.write(writer.padding(tensor.num_bytes))
    return path


def weight_bytes(shape: Shape, kind: Kind) -> int:
    """Size of all tensors."""
    return sum(tensor.num_bytes for tensor in _tensors(shape, kind))


def _tensors(shape: Shape, kind: Kind) -> Iterator[Tensor]:
    """Every tensor of a Qwen2, in the order of the file."""
    width, kv_width = shape.width, shape.width // shape.heads * shape.kv_heads
    plain, fine = ("Q4_0", "Q4_0") if kind == "q4_0" else ("Q4_K", "Q6_K")
    yield Tensor("token_embd.weight", (shape.vocabulary, width), plain)
    yield Tensor("output_norm.weight", (width,), "F32")
    yield Tensor("output.weight", (shape.vocabulary, width), fine)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        chosen = fine if _more_bits(layer, shape.layers) else plain
        for name, rows, columns, type_ in (
            ("attn_q", width, width, plain),
            ("attn_k", kv_width, width, plain),
            ("attn_v", kv_width, width, chosen),
            ("attn_output", width, width, plain),
            ("ffn_gate", shape.feed_forward, width, plain),
            ("ffn_up", shape.feed_forward, width, plain),
            ("ffn_down", width, shape.feed_forward, chosen),
        ):
            yield Tensor(f"{block}{name}.weight", (rows, columns), type_)
        yield Tensor(f"{block}attn_q.bias", (width,), "F32")
        yield Tensor(f"{block}attn_k.bias", (kv_width,), "F32")
        yield Tensor(f"{block}attn_v.bias", (kv_width,), "F32")
        yield Tensor(f"{block}attn_norm.weight", (width,), "F32")
        yield Tensor(f"{block}ffn_norm.weight", (width,), "F32")


def _more_bits(layer: int, layers: int) -> bool:
    """Whether a layer is one of those to which llama.cpp's Q4_K_M gives Q6_K."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2  # noqa: PLR2004 - its own rule


def _metadata(name: str, shape: Shape, kind: Kind) -> Metadata:
    """The metadata llama.cpp needs of a Qwen2 of this shape."""
    return {
        "general.architecture": "qwen2",
        "general.name": f"random-{name}",
        "general.file_type": _FILE_TYPES[kind],
        "qwen2.context_length": 32_768,
        "qwen2.embedding_length": shape.width,
        "qwen2.block_count": shape.layers,
        "qwen2.feed_forward_length": shape.feed_forward,
        "qwen2.attention.head_count": shape.heads,
        "qwen2.attention.head_count_kv": shape.kv_heads,
        "qwen2.rope.freq_base": 1_000_000.0,
        "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
        **_tokenizer(shape.vocabulary),
    }


def _tokenizer(vocabulary: int) -> Metadata:
    """The tokens of all bytes, the special tokens, and filler words: any text can be tokenized."""
    tokens = [*byte_alphabet(), *_SPECIALS]
    types = [_NORMAL] * vocabulary
    types[len(tokens) - len(_SPECIALS) : len(tokens)] = [_CONTROL] * len(_SPECIALS)
    tokens += [f"word{index}" for index in range(vocabulary - len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["t h", "h e", "i n"],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
    }


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in plain}
    extra = (byte for byte in range(256) if byte not in table)
    table |= {byte: chr(256 + index) for index, byte in enumerate(extra)}
    return [table[byte] for byte in range(256)]


def _write_data(file: BinaryIO, tensor: Tensor, random: np.random.Generator) -> None:
    if tensor.type == "F32":
        ones = tensor.name.endswith("norm.weight")
        file.write(np.full(tensor.shape, float(ones), dtype="<f4").tobytes())
        return
    count = min(_CHUNK_BLOCKS, math.prod(tensor.shape) // tensor.kind.block_elements)
    deviation = 1.0 if tensor.name.startswith("token_embd") else tensor.shape[-1] ** -0.5
    chunk = memoryview(blocks(tensor.type, count, deviation, random).tobytes())
    left = tensor.num_bytes
    while left:
        left -= file.write(chunk[:left])


def blocks(
    type_: str, count: int, deviation: float, random: np.random.Generator
) -> NDArray[np.void]:
    """`count` random blocks whose weights have about mean 0 and this standard deviation."""
    layout = _BLOCKS[type_]
    made = np.frombuffer(random.bytes(count * layout.itemsize), dtype=layout).copy()
    if type_ == "Q4_0":  # w = d (q - 8), q uniform on 0..15
        made["d"] = deviation / _deviation(16)
    elif type_ == "Q4_K":  # w = s (d q - dmin): each group's minimum equals its scale
        made["d"] = deviation / _deviation(16) / _SCALE
        made["dmin"] = 7.5 * deviation / _deviation(16) / _SCALE
        scales = random.choice(_SCALES, (count, 8))
        made["scales"] = np.hstack((scales[:, :4], scales[:, :4], scales[:, 4:] * 0x11))
    else:  # w = s d (q - 32), q uniform on 0..63
        made["d"] = deviation / _deviation(64) / _SCALE
        made["scales"] = random.choice(_SCALES, (count, 16)).astype(np.int8)
    return made


def _deviation(levels: int) -> float:
    """Standard deviation of a uniform choice among `levels` neighbouring integers."""
    return float(((levels**2 - 1) / 12) ** 0.5)
