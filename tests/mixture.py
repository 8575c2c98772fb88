"""Tiny random mixtures of experts in real GGUF files."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import tiny

PACKED = gguf.GGMLQuantizationType.Q4_0


def build(
    path: Path,
    seed: int = 0,
    *,
    layers: int = 3,
    width: int = 64,
    experts: int = 8,
    used: int = 2,
    inner: int = 64,
    template: str = tiny.TEMPLATE,
) -> Path:
    """A random Qwen3 mixture: every layer has `experts`, of which a token wakes `used`."""
    writer, vocabulary = tiny.begun(path, "qwen3moe", seed, template=template)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_expert_feed_forward_length(inner)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(used)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(width // 4)
    writer.add_value_length(width // 4)
    writer.add_rope_dimension_count(width // 4)
    writer.add_layer_norm_rms_eps(1e-6)
    random = np.random.default_rng(seed)

    def matrix(name: str, *shape: int, scale: float | None = None) -> None:
        values = random.normal(0, shape[-1] ** -0.5 if scale is None else scale, shape)
        packed = gguf.quants.quantize(values.astype(np.float32), PACKED)
        writer.add_tensor(name, packed, raw_dtype=PACKED)

    def ones(name: str, length: int) -> None:
        writer.add_tensor(name, np.ones(length, dtype=np.float32))

    matrix("token_embd.weight", vocabulary, width, scale=1.0)
    ones("output_norm.weight", width)
    matrix("output.weight", vocabulary, width, scale=0.5)
    for block in (f"blk.{layer}." for layer in range(layers)):
        ones(block + "attn_norm.weight", width)
        ones(block + "ffn_norm.weight", width)
        ones(block + "attn_q_norm.weight", width // 4)
        ones(block + "attn_k_norm.weight", width // 4)
        for name, rows in (("q", width), ("k", width // 2), ("v", width // 2), ("output", width)):
            matrix(f"{block}attn_{name}.weight", rows, width)
        gate = random.normal(0, 1, (experts, width)).astype(np.float32)
        writer.add_tensor(block + "ffn_gate_inp.weight", gate)
        matrix(block + "ffn_gate_exps.weight", experts, inner, width)
        matrix(block + "ffn_up_exps.weight", experts, inner, width)
        matrix(block + "ffn_down_exps.weight", experts, width, inner)
    return tiny.ended(writer, path)
