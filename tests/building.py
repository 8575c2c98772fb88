"""Writes a tiny random model of any architecture: its keys, its tokenizer and its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny

WIDTH, INNER, HEADS, GROUPS, HEAD, LAYERS, EXPERTS = 64, 128, 4, 2, 16, 4, 8
STATE, STEPS, KERNEL = 32, 4, 4
RANK = 32
"""Of the latent vector that multi-head latent attention keeps of a token."""
TIED = frozenset({"gemma2"})
OWN_KEYS: dict[str, dict[str, int | None]] = {
    "deepseek2": {
        "attention.head_count_kv": 1,
        "attention.key_length": 48,
        "attention.value_length": 32,
    },
    "lfm2moe": {"attention.head_count_kv": None},
    "granitehybrid": {"attention.head_count_kv": None},
    "nemotron_h_moe": {"attention.head_count_kv": None, "feed_forward_length": None},
    "glm5-next": {
        "attention.head_count_kv": None,
        "attention.key_length": RANK,
        "attention.value_length": RANK,
        "rope.dimension_count": 0,
    },
}
"""Keys with other values than those of most; None where a list of them is written instead."""


class Building:
    """A file on its way: keys of its architecture, and random tensors."""

    def __init__(
        self,
        path: Path,
        architecture: str,
        *,
        sentencepiece: bool = False,
        packed: bool = False,
        **more: Any,
    ) -> None:
        self.path, self.architecture, self.packed = path, architecture, packed
        self.writer, self.vocabulary = tiny.begun(
            path, architecture, sentencepiece=sentencepiece, **more
        )
        self._random = np.random.default_rng(7)
        plain = {
            "embedding_length": WIDTH,
            "block_count": LAYERS,
            "feed_forward_length": INNER,
            "attention.head_count": HEADS,
            "attention.head_count_kv": GROUPS,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_count": HEAD,
        }
        own = OWN_KEYS.get(architecture, {})
        self.numbers(**{name: value for name, value in (plain | own).items() if value is not None})
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.matrix("token_embd", self.vocabulary, WIDTH)
        norm = "token_embd_norm" if architecture == "lfm2moe" else "output_norm"
        self.vector(norm, WIDTH)
        if architecture not in TIED:
            self.matrix("output", self.vocabulary, WIDTH)

    def numbers(self, **values: int) -> None:
        """Whole numbers that the architecture defines."""
        for name, value in values.items():
            self.writer.add_uint32(f"{self.architecture}.{name}", value)

    def lists(self, **values: list[int] | list[bool]) -> None:
        """A number or a mark for each layer."""
        for name, value in values.items():
            self.writer.add_array(f"{self.architecture}.{name}", value)

    def fractions(self, **values: float) -> None:
        """Fractions that it defines."""
        for name, value in values.items():
            self.writer.add_float32(f"{self.architecture}.{name}", value)

    def matrix(self, name: str, *shape: int) -> None:
        """Random weights, in blocks of four bits where the file is `packed` and they fit."""
        values = self._random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        if self.packed and shape[-1] % 32 == 0 and "_inp" not in name and "conv" not in name:
            quantized = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
            kind = gguf.GGMLQuantizationType.Q4_0
            self.writer.add_tensor(f"{name}.weight", quantized, raw_dtype=kind)
        else:
            self.writer.add_tensor(f"{name}.weight", values)

    def vector(self, name: str, *shape: int, value: float = 1.0, suffix: str = ".weight") -> None:
        """The same number everywhere: norms and biases."""
        self.writer.add_tensor(f"{name}{suffix}", np.full(shape, value, dtype=np.float32))

    def attention(self, block: str, *, norms: int = 0, bias: bool = False, width: int = 1) -> None:
        """Queries, keys and values of their own; `norms` is the length of what scales them."""
        for name, rows in (("q", HEADS * width), ("k", GROUPS), ("v", GROUPS)):
            self.matrix(f"{block}attn_{name}", rows * HEAD, WIDTH)
            if bias:
                self.vector(f"{block}attn_{name}", rows * HEAD, value=0.1, suffix=".bias")
        self.matrix(f"{block}attn_output", WIDTH, HEADS * HEAD)
        if norms:
            self.vector(f"{block}attn_q_norm", norms)
            self.vector(f"{block}attn_k_norm", norms)

    def feed_forward(self, block: str) -> None:
        """With a gate."""
        for name, rows, columns in (
            ("gate", INNER, WIDTH), ("up", INNER, WIDTH), ("down", WIDTH, INNER),
        ):  # fmt: skip
            self.matrix(f"{block}ffn_{name}", rows, columns)

    def experts(self, block: str) -> None:
        """A router and what it chooses from."""
        self.matrix(f"{block}ffn_gate_inp", EXPERTS, WIDTH)
        self.matrix(f"{block}ffn_gate_exps", EXPERTS, INNER, WIDTH)
        self.matrix(f"{block}ffn_up_exps", EXPERTS, INNER, WIDTH)
        self.matrix(f"{block}ffn_down_exps", EXPERTS, WIDTH, INNER)

    def shared_experts(self, block: str) -> None:
        """The experts that every token goes through."""
        for name, rows, columns in (
            ("gate", INNER, WIDTH), ("up", INNER, WIDTH), ("down", WIDTH, INNER),
        ):  # fmt: skip
            self.matrix(f"{block}ffn_{name}_shexp", rows, columns)

    def routed(self) -> None:
        """The keys of a mixture."""
        self.numbers(expert_count=EXPERTS, expert_used_count=2, expert_feed_forward_length=INNER)

    def done(self) -> Path:
        """Written."""
        return tiny.ended(self.writer, self.path)
