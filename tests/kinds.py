"""Tiny random models of every kind of memory and layer, as real GGUF files.

Sizes are such that all that a quantized file packs is packed here: widths and time steps are whole
blocks of 32 weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import mixture
import recurrent
import tiny
from recurrent import INNER, STATE, WIDTH, WINDOW, Tensors

HEADS, KV_HEADS, HEAD = 4, 2, 16
EXPERTS, CHOSEN = 4, 2
STEPS = 32
GROUPS = 2


def sliding(path: Path) -> Path:
    """Attention of which three layers of four see the last tokens alone (Command R7B's)."""
    writer, vocabulary = tiny.begun(path, "cohere2")
    _sizes(writer, layers=4)
    _heads(writer)
    writer.add_sliding_window(8)
    writer.add_logit_scale(1.0)
    writer.add_layer_norm_eps(1e-5)
    add = _begun(writer, vocabulary)
    for layer in range(4):
        block = f"blk.{layer}."
        add.ones(block + "attn_norm.weight")
        _attention(add, block)
        _feed_forward(add, block)
    return tiny.ended(writer, path)


def mamba(path: Path) -> Path:
    """States, whose time steps come of packed weights by rows that lie apart."""
    return recurrent.mamba(path, steps=STEPS)


def mamba2(path: Path) -> Path:
    """States of several heads in groups."""
    writer, vocabulary = tiny.begun(path, "mamba2")
    _sizes(writer, layers=2)
    writer.add_head_count(0)
    heads = 8
    _states(writer, INNER, STATE, heads, GROUPS)
    add = _begun(writer, vocabulary)
    _output(add, vocabulary)
    convolved = INNER + 2 * GROUPS * STATE
    for block in ("blk.0.", "blk.1."):
        add.ones(block + "attn_norm.weight")
        add.matrix(block + "ssm_in.weight", INNER + convolved + heads, WIDTH)
        add.matrix(block + "ssm_conv1d.weight", convolved, WINDOW, 0.5)
        add.constant(block + "ssm_conv1d.bias", (convolved,), 0.0)
        add.constant(block + "ssm_dt.bias", (heads,), -2.0)
        add.constant(block + "ssm_a", (heads, 1), -1.0)
        add.constant(block + "ssm_d", (heads, 1), 1.0)
        add.constant(block + "ssm_norm.weight", (GROUPS, INNER // GROUPS), 1.0)
        add.matrix(block + "ssm_out.weight", WIDTH, INNER)
    return tiny.ended(writer, path)


def delta_net(path: Path) -> Path:
    """A gated delta net, then attention, both with a mixture of experts (Qwen3-Next's)."""
    architecture, head, keys, values = "qwen3next", 32, 2, 4
    writer, vocabulary = tiny.begun(path, architecture)
    _sizes(writer, layers=2)
    _heads(writer)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(CHOSEN)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_expert_shared_feed_forward_length(INNER)
    writer.add_uint32(f"{architecture}.full_attention_interval", 2)
    _states(writer, head * values, head, values, keys)
    add = _begun(writer, vocabulary)
    _output(add, vocabulary)
    convolved = head * (2 * keys + values)
    for block in ("blk.0.", "blk.1."):
        add.ones(block + "attn_norm.weight")
        add.ones(block + "post_attention_norm.weight")
        _mixture(add, block)
        add.constant(block + "ffn_gate_inp_shexp.weight", (WIDTH,), 0.1)
        for name, rows, columns in _MATRICES:
            add.matrix(f"{block}ffn_{name}_shexp.weight", rows, columns)
    add.matrix("blk.0.attn_qkv.weight", convolved, WIDTH)
    add.matrix("blk.0.attn_gate.weight", head * values, WIDTH)
    add.matrix("blk.0.ssm_conv1d.weight", convolved, WINDOW, 0.5)
    add.constant("blk.0.ssm_dt.bias", (values,), -2.0)
    add.constant("blk.0.ssm_a", (values,), -1.0)
    add.matrix("blk.0.ssm_ba.weight", 2 * values, WIDTH)
    add.constant("blk.0.ssm_norm.weight", (head,), 1.0)
    add.matrix("blk.0.ssm_out.weight", WIDTH, head * values)
    _attention(add, "blk.1.", gates=2)
    for name in ("q", "k"):
        add.constant(f"blk.1.attn_{name}_norm.weight", (HEAD,), 1.0)
    return tiny.ended(writer, path)


KINDS: dict[str, Callable[[Path], Path]] = {
    "attention": tiny.build,
    "sliding": sliding,
    "experts": mixture.build,
    "mamba": mamba,
    "mamba2": mamba2,
    "convolution": recurrent.lfm2,
    "delta_net": delta_net,
}
_MATRICES = (("gate", INNER, WIDTH), ("up", INNER, WIDTH), ("down", WIDTH, INNER))
_DECISIVE = 2.0
"""Of a router's weights: no two experts are so close that rounding chooses between them."""


def _sizes(writer: gguf.GGUFWriter, *, layers: int) -> None:
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)


def _heads(writer: gguf.GGUFWriter) -> None:
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD)


def _states(writer: gguf.GGUFWriter, inner: int, state: int, steps: int, groups: int) -> None:
    writer.add_ssm_conv_kernel(WINDOW)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(steps)
    writer.add_ssm_group_count(groups)
    writer.add_layer_norm_rms_eps(1e-5)


def _begun(writer: gguf.GGUFWriter, vocabulary: int) -> Tensors:
    add = Tensors(writer, 0)
    add.matrix("token_embd.weight", vocabulary, WIDTH, 1.0)
    add.ones("output_norm.weight")
    return add


def _output(add: Tensors, vocabulary: int) -> None:
    """Rows that are not the embeddings: by these a random model says the last token again."""
    add.matrix("output.weight", vocabulary, WIDTH, 0.5)


def _attention(add: Tensors, block: str, gates: int = 1) -> None:
    """Of queries with as many gates, keys and values."""
    for name, heads in (("q", HEADS * gates), ("k", KV_HEADS), ("v", KV_HEADS)):
        add.matrix(f"{block}attn_{name}.weight", heads * HEAD, WIDTH)
    add.matrix(f"{block}attn_output.weight", WIDTH, HEADS * HEAD)


def _feed_forward(add: Tensors, block: str) -> None:
    for name, rows, columns in _MATRICES:
        add.matrix(f"{block}ffn_{name}.weight", rows, columns)


def _mixture(add: Tensors, block: str) -> None:
    add.loose(f"{block}ffn_gate_inp.weight", EXPERTS, WIDTH, _DECISIVE)
    for name, rows, columns in _MATRICES:
        add.matrices(f"{block}ffn_{name}_exps.weight", EXPERTS, rows, columns)
