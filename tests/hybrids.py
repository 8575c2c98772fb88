"""Layers of models that mix recurrent layers, attention and experts, for `architectures.py`."""

from __future__ import annotations

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
    WIDTH,
    Building,
)

_STREAMS, _POOL = 4, 4
"""Residual streams, of which llama.cpp takes four only; and tokens in one pooled key."""
_INDEXED = 32
"""Length of a key of the indexer."""


def mamba2(make: Building, block: str, *, inner: int = 2 * WIDTH, heads: int = 4) -> None:
    """The tensors of one Mamba 2 layer, of one group."""
    conv = inner + 2 * STATE
    make.matrix(block + "ssm_in", inner + conv + heads, WIDTH)
    make.matrix(block + "ssm_conv1d", conv, KERNEL)
    make.vector(block + "ssm_conv1d", conv, value=0.0, suffix=".bias")
    make.vector(block + "ssm_dt", heads, value=0.1, suffix=".bias")
    make.vector(block + "ssm_a", heads, 1, value=-0.5, suffix="")
    make.vector(block + "ssm_d", heads, 1, suffix="")
    make.vector(block + "ssm_norm", 1, inner)
    make.matrix(block + "ssm_out", WIDTH, inner)


def states(make: Building, *, inner: int = 2 * WIDTH, heads: int = 4) -> None:
    """The keys of Mamba 2 layers."""
    make.numbers(
        **{
            "ssm.conv_kernel": KERNEL,
            "ssm.inner_size": inner,
            "ssm.state_size": STATE,
            "ssm.time_step_rank": heads,
            "ssm.group_count": 1,
        }
    )


def nemotron_h_moe(make: Building) -> None:
    """Layers that do one thing each: a state, attention, and two mixtures."""
    make.routed()
    states(make)
    make.lists(
        **{
            "attention.head_count_kv": [0, GROUPS, 0, 0],
            "feed_forward_length": [0, 0, INNER, INNER],
        }
    )
    make.numbers(expert_shared_count=1, expert_shared_feed_forward_length=INNER)
    make.fractions(**{"attention.layer_norm_epsilon": 1e-5})
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        if layer == 0:
            mamba2(make, block)
        elif layer == 1:
            make.attention(block)
        else:
            make.matrix(f"{block}ffn_gate_inp", EXPERTS, WIDTH)
            make.vector(block + "exp_probs_b", EXPERTS, value=0.1, suffix=".bias")
            make.matrix(f"{block}ffn_up_exps", EXPERTS, INNER, WIDTH)
            make.matrix(f"{block}ffn_down_exps", EXPERTS, WIDTH, INNER)
            make.matrix(f"{block}ffn_up_shexp", INNER, WIDTH)
            make.matrix(f"{block}ffn_down_shexp", WIDTH, INNER)


def glm5_next(make: Building) -> None:
    """Delta-rule layers and latent attention in turn, four residual streams, then mixtures."""
    make.routed()
    make.lists(**{"attention.head_count_kv": [0, 1] * (LAYERS // 2)})
    make.numbers(
        **{
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "attention.q_lora_rank": RANK,
            "attention.kv_lora_rank": RANK,
            "attention.key_length_mla": HEAD,
            "attention.value_length_mla": HEAD,
            "attention.indexer.head_count": HEADS,
            "attention.indexer.key_length": _INDEXED,
            "attention.indexer.top_k": 4 * _POOL,
            "attention.indexer.kpool": _POOL,
            "hyper_connection.count": _STREAMS,
            "hyper_connection.sinkhorn_iterations": 4,
            "ssm.conv_kernel": KERNEL,
            "kda.head_dim": STATE,
        }
    )
    make.fractions(**{"hyper_connection.epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-6})
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        make.vector(block + "attn_norm", WIDTH)
        make.vector(block + "ffn_norm", WIDTH)
        _streams(make, block)
        if layer % 2:
            _latent(make, block)
        else:
            _delta(make, block)
        if layer == 0:
            make.feed_forward(block)
            continue
        make.experts(block)
        make.shared_experts(block)
        make.vector(block + "exp_probs_b", EXPERTS, value=0.1, suffix=".bias")


def _streams(make: Building, block: str) -> None:
    """The mixing of residual streams around attention and feed-forward."""
    mixed = (2 + _STREAMS) * _STREAMS
    for part in ("attn", "ffn"):
        make.matrix(f"{block}hc_{part}_fn", mixed, _STREAMS * WIDTH)
        make.vector(f"{block}hc_{part}_base", mixed, value=0.1)
        make.vector(f"{block}hc_{part}_scale", 3, value=0.1)


def _delta(make: Building, block: str) -> None:
    """A layer of Kimi's delta attention."""
    inner = STATE * HEADS
    for name in ("q", "k", "v"):
        make.matrix(f"{block}ssm_conv1d_{name}", inner, 1, KERNEL)
        make.matrix(f"{block}attn_{name}", inner, WIDTH)
    for name in ("f", "g"):
        make.matrix(f"{block}ssm_{name}_a", STATE, WIDTH)
        make.matrix(f"{block}ssm_{name}_b", inner, STATE)
    make.matrix(block + "ssm_beta", HEADS, WIDTH)
    make.vector(block + "ssm_a", HEADS, value=-0.5, suffix="")
    make.vector(block + "ssm_dt", inner, value=0.1, suffix=".bias")
    make.vector(block + "ssm_norm", STATE)
    make.matrix(block + "attn_output", WIDTH, inner)


def _latent(make: Building, block: str) -> None:
    """Latent attention without positions, over keys that an indexer chooses."""
    make.vector(block + "attn_q_a_norm", RANK)
    make.vector(block + "attn_kv_a_norm", RANK)
    make.matrix(block + "attn_q_a", RANK, WIDTH)
    make.matrix(block + "attn_q_b", HEADS * HEAD, RANK)
    make.matrix(block + "attn_kv_a_mqa", RANK, WIDTH)
    make.matrix(block + "attn_k_b", HEADS, RANK, HEAD)
    make.matrix(block + "attn_v_b", HEADS, HEAD, RANK)
    make.matrix(block + "attn_output", WIDTH, HEADS * HEAD)
    make.vector(block + "indexer.k_norm", _INDEXED)
    make.vector(block + "indexer.k_norm", _INDEXED, value=0.1, suffix=".bias")
    make.matrix(block + "indexer.proj", HEADS, WIDTH)
    make.matrix(block + "indexer.attn_k", _INDEXED, WIDTH)
    make.matrix(block + "indexer.attn_q_b", HEADS * _INDEXED, RANK)
    make.matrix(block + "indexer_compressor_gate", _INDEXED, WIDTH)
    make.matrix(block + "indexer_compressor_ape", _POOL, _INDEXED)
