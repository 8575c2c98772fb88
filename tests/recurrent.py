"""Tiny random models whose memory is a state: it cannot forget its last tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny

_PACKED = gguf.GGMLQuantizationType.Q4_0
WIDTH, INNER, STATE, STEPS, WINDOW = 64, 128, 8, 4, 4


def mamba(path: Path, seed: int = 0, *, packed: bool = True, steps: int = STEPS) -> Path:
    """Two layers of states, and nothing that attends; `packed` as quantized files are.

    `steps` is the rank of time steps, whose weights are packed as well if it is whole blocks.
    """
    writer, vocabulary = tiny.begun(path, "mamba", seed)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(WINDOW)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(steps)
    writer.add_layer_norm_rms_eps(1e-5)
    add = Tensors(writer, seed, packed=packed)
    add.matrix("token_embd.weight", vocabulary, WIDTH, 1.0)
    add.ones("output_norm.weight")
    add.matrix("output.weight", vocabulary, WIDTH, 0.5)
    for block in ("blk.0.", "blk.1."):
        add.ones(block + "attn_norm.weight")
        add.matrix(block + "ssm_in.weight", 2 * INNER, WIDTH)
        add.matrix(block + "ssm_conv1d.weight", INNER, WINDOW, 0.5)
        add.matrix(block + "ssm_x.weight", steps + 2 * STATE, INNER)
        add.matrix(block + "ssm_dt.weight", INNER, steps)
        add.matrix(block + "ssm_out.weight", WIDTH, INNER)
        add.constant(block + "ssm_conv1d.bias", (INNER,), 0.0)
        add.constant(block + "ssm_dt.bias", (INNER,), -2.0)
        add.constant(block + "ssm_a", (INNER, STATE), -1.0)
        add.constant(block + "ssm_d", (INNER,), 1.0)
    return tiny.ended(writer, path)


def lfm2(path: Path, seed: int = 0, **more: Any) -> Path:
    """A hybrid: one layer of a short convolution, whose window is a state, and one that attends."""
    writer, vocabulary = tiny.begun(path, "lfm2", seed, **more)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_head_count_kv([0, 2])
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_shortconv_l_cache(WINDOW)
    writer.add_layer_norm_rms_eps(1e-5)
    add = Tensors(writer, seed)
    add.matrix("token_embd.weight", vocabulary, WIDTH, 0.5)
    add.ones("token_embd_norm.weight")
    for block in ("blk.0.", "blk.1."):
        add.ones(block + "attn_norm.weight")
        add.ones(block + "ffn_norm.weight")
        add.matrix(block + "ffn_gate.weight", INNER, WIDTH)
        add.matrix(block + "ffn_up.weight", INNER, WIDTH)
        add.matrix(block + "ffn_down.weight", WIDTH, INNER)
    add.matrix("blk.0.shortconv.conv.weight", WIDTH, WINDOW, 0.5)
    add.matrix("blk.0.shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
    add.matrix("blk.0.shortconv.out_proj.weight", WIDTH, WIDTH)
    for name, rows in (("q", WIDTH), ("k", WIDTH // 2), ("v", WIDTH // 2), ("output", WIDTH)):
        add.matrix(f"blk.1.attn_{name}.weight", rows, WIDTH)
    add.constant("blk.1.attn_q_norm.weight", (WIDTH // 4,), 1.0)
    add.constant("blk.1.attn_k_norm.weight", (WIDTH // 4,), 1.0)
    return tiny.ended(writer, path)


class Tensors:
    """The weights added to a file, from one seed; `packed` where its format can be."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int, *, packed: bool = True) -> None:
        self._writer = writer
        self._packed = packed
        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, columns: int, scale: float | None = None) -> None:
        """Random weights; by default such that what comes out is as large as what goes in."""
        scale = columns**-0.5 if scale is None else scale
        values = self._random.normal(0, scale, (rows, columns)).astype(np.float32)
        if not self._packed or columns % 32 or "conv" in name:
            self._writer.add_tensor(name, values)
        else:
            packed = gguf.quants.quantize(values, _PACKED)
            self._writer.add_tensor(name, packed, raw_dtype=_PACKED)

    def matrices(self, name: str, count: int, rows: int, columns: int) -> None:
        """So many of them in one tensor, as experts are."""
        values = self._random.normal(0, columns**-0.5, (count, rows, columns)).astype(np.float32)
        packed = gguf.quants.quantize(values, _PACKED)
        self._writer.add_tensor(name, packed, raw_dtype=_PACKED)

    def loose(self, name: str, rows: int, columns: int, scale: float) -> None:
        """Random weights that no file quantizes."""
        values = self._random.normal(0, scale, (rows, columns)).astype(np.float32)
        self._writer.add_tensor(name, values)

    def ones(self, name: str) -> None:
        """The weights of a norm."""
        self.constant(name, (WIDTH,), 1.0)

    def constant(self, name: str, shape: tuple[int, ...], value: float) -> None:
        """The same number everywhere."""
        self._writer.add_tensor(name, np.full(shape, value, dtype=np.float32))
