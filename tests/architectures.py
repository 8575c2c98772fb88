"""Tiny random models of the architectures that the catalog has, in real GGUF files.

Tensors and keys are those that llama.cpp's loader asks for (`src/models/*.cpp`); the tokenizer kind
is the one that the family's files name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hybrids
from building import (
    EXPERTS,
    GROUPS,
    HEAD,
    HEADS,
    INNER,
    KERNEL,
    LAYERS,
    RANK,
    STATE,
    STEPS,
    WIDTH,
    Building,
)


def _blocks(
    make: Building,
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm"),
    *,
    scaled: int = 0,
    bias: bool = False,
    width: int = 1,
) -> None:
    """Plain layers of one kind."""
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        for name in norms:
            make.vector(block + name, WIDTH)
        make.attention(block, norms=scaled, bias=bias, width=width)
        make.feed_forward(block)


def _qwen3moe(make: Building) -> None:
    make.routed()
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        make.attention(block, norms=HEAD)
        make.experts(block)


def _gpt_oss(make: Building) -> None:
    make.routed()
    make.numbers(**{"attention.sliding_window": 128})
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "post_attention_norm", WIDTH)
        make.attention(block, bias=True)
        make.vector(block + "attn_output", WIDTH, value=0.1, suffix=".bias")
        make.vector(block + "attn_sinks", HEADS, value=0.5)
        make.experts(block)
        make.vector(block + "ffn_gate_inp", EXPERTS, value=0.1, suffix=".bias")
        for name, rows in (("gate", INNER), ("up", INNER), ("down", WIDTH)):
            make.vector(f"{block}ffn_{name}_exps", EXPERTS, rows, value=0.1, suffix=".bias")


def _qwen35(make: Building, *, mixture: bool = False) -> None:
    """Three layers of gated delta nets, whose memory is a state, and one that attends."""
    make.writer.add_array(f"{make.architecture}.rope.dimension_sections", [2, 2, 2, 2])
    value, conv = STATE * STEPS, 2 * STATE * GROUPS + STATE * STEPS
    make.numbers(
        **{
            "ssm.conv_kernel": KERNEL,
            "ssm.inner_size": value,
            "ssm.state_size": STATE,
            "ssm.time_step_rank": STEPS,
            "ssm.group_count": GROUPS,
            "full_attention_interval": 4,
        }
    )
    if mixture:
        make.routed()
        make.numbers(expert_shared_feed_forward_length=INNER)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "post_attention_norm", WIDTH)
        if layer == LAYERS - 1:
            make.attention(block, norms=HEAD, width=2)
        else:
            make.matrix(block + "attn_qkv", conv, WIDTH)
            make.matrix(block + "attn_gate", value, WIDTH)
            make.matrix(block + "ssm_conv1d", conv, KERNEL)
            make.vector(block + "ssm_dt", STEPS, value=0.1, suffix=".bias")
            make.vector(block + "ssm_a", STEPS, value=-0.5, suffix="")
            if make.architecture == "qwen3next":
                make.matrix(block + "ssm_ba", 2 * STEPS, WIDTH)
            else:
                make.matrix(block + "ssm_beta", STEPS, WIDTH)
                make.matrix(block + "ssm_alpha", STEPS, WIDTH)
            make.vector(block + "ssm_norm", STATE)
            make.matrix(block + "ssm_out", WIDTH, value)
        if mixture:
            make.experts(block)
            make.vector(block + "ffn_gate_inp_shexp", WIDTH, value=0.1)
            make.matrix(block + "ffn_gate_shexp", INNER, WIDTH)
            make.matrix(block + "ffn_up_shexp", INNER, WIDTH)
            make.matrix(block + "ffn_down_shexp", WIDTH, INNER)
        else:
            make.feed_forward(block)


def _qwen3next(make: Building) -> None:
    _qwen35(make, mixture=True)


def _gemma4(make: Building) -> None:
    """Two kinds of attention: windows of smaller heads, and every second layer all."""
    make.lists(**{"attention.sliding_window_pattern": [True, False] * (LAYERS // 2)})
    make.numbers(
        **{
            "attention.sliding_window": 128,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "rope.dimension_count_swa": HEAD,
            "embedding_length_per_layer_input": 0,
        }
    )
    make.vector("rope_freqs", HEAD // 2)
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            make.vector(block + name, WIDTH)
        make.attention(block, norms=HEAD)
        make.feed_forward(block)


def _olmo2(make: Building) -> None:
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        make.attention(block)
        make.vector(block + "attn_q_norm", WIDTH)
        make.vector(block + "attn_k_norm", GROUPS * HEAD)
        make.vector(block + "post_attention_norm", WIDTH)
        make.vector(block + "post_ffw_norm", WIDTH)
        make.feed_forward(block)


def _deepseek2(make: Building) -> None:
    """One dense layer, then mixtures with shared experts; keys are one latent vector."""
    make.routed()
    make.numbers(
        **{
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "attention.q_lora_rank": RANK,
            "attention.kv_lora_rank": RANK,
            "attention.key_length_mla": 2 * HEAD,
            "attention.value_length_mla": HEAD,
        }
    )
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        make.vector(block + "attn_q_a_norm", RANK)
        make.vector(block + "attn_kv_a_norm", RANK)
        make.matrix(block + "attn_q_a", RANK, WIDTH)
        make.matrix(block + "attn_q_b", HEADS * 2 * HEAD, RANK)
        make.matrix(block + "attn_kv_a_mqa", RANK + HEAD, WIDTH)
        make.matrix(block + "attn_k_b", HEADS, RANK, HEAD)
        make.matrix(block + "attn_v_b", HEADS, HEAD, RANK)
        make.matrix(block + "attn_output", WIDTH, HEADS * HEAD)
        if layer == 0:
            make.feed_forward(block)
            continue
        make.experts(block)
        make.shared_experts(block)


def _lfm2moe(make: Building) -> None:
    make.routed()
    make.lists(**{"attention.head_count_kv": [0, GROUPS] * (LAYERS // 2)})
    make.numbers(**{"shortconv.l_cache": 3, "leading_dense_block_count": 1})
    make.numbers(expert_gating_func=2)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        if layer % 2:
            make.attention(block, norms=HEAD)
        else:
            make.matrix(block + "shortconv.conv", WIDTH, 3)
            make.matrix(block + "shortconv.in_proj", 3 * WIDTH, WIDTH)
            make.matrix(block + "shortconv.out_proj", WIDTH, WIDTH)
        if layer == 0:
            make.feed_forward(block)
        else:
            make.experts(block)
            make.vector(block + "exp_probs_b", EXPERTS, value=0.1, suffix=".bias")


def _granitehybrid(make: Building) -> None:
    """Layers of Mamba 2, and every second one attends."""
    make.lists(**{"attention.head_count_kv": [0, GROUPS] * (LAYERS // 2)})
    hybrids.states(make)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        make.feed_forward(block)
        if layer % 2:
            make.attention(block)
        else:
            hybrids.mamba2(make, block)


def _phi3(make: Building) -> None:
    for block in (f"blk.{layer}." for layer in range(LAYERS)):
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        make.matrix(block + "attn_qkv", WIDTH + 2 * WIDTH // 2, WIDTH)
        make.matrix(block + "attn_output", WIDTH, WIDTH)
        make.matrix(block + "ffn_up", 2 * INNER, WIDTH)
        make.matrix(block + "ffn_down", WIDTH, INNER)


def _granite(make: Building) -> None:
    make.fractions(logit_scale=8.0)
    _blocks(make)


def _gemma(make: Building, scaled: int = 0) -> None:
    make.numbers(**{"attention.sliding_window": 128})
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    _blocks(make, norms, scaled=scaled)


KINDS: dict[str, Callable[[Building], None]] = {
    "llama": _blocks,
    "qwen2": lambda make: _blocks(make, bias=True),
    "qwen3": lambda make: _blocks(make, scaled=HEAD),
    "qwen3moe": _qwen3moe,
    "qwen35": _qwen35,
    "qwen35moe": lambda make: _qwen35(make, mixture=True),
    "smollm3": _blocks,
    "mistral3": _blocks,
    "granite": _granite,
    "gemma2": _gemma,
    "gemma3": lambda make: _gemma(make, HEAD),
    "phi3": _phi3,
    "seed_oss": lambda make: _blocks(make, ("attn_norm", "post_attention_norm"), bias=True),
    "gpt-oss": _gpt_oss,
    "qwen3next": _qwen3next,
    "gemma4": _gemma4,
    "olmo2": _olmo2,
    "deepseek2": _deepseek2,
    "lfm2moe": _lfm2moe,
    "granitehybrid": _granitehybrid,
    "nemotron_h_moe": hybrids.nemotron_h_moe,
    "glm5-next": hybrids.glm5_next,
}
"""The writer of each one's layers."""
SENTENCEPIECE = frozenset({"gemma2", "gemma3", "gemma4"})


def build(path: Path, architecture: str, *, packed: bool = False, **more: Any) -> Path:
    """A model of that architecture; `packed` as quantized files are, `more` as for `tiny.begun`."""
    more = {"sentencepiece": architecture in SENTENCEPIECE, **more}
    make = Building(path, architecture, packed=packed, **more)
    KINDS[architecture](make)
    return make.done()
