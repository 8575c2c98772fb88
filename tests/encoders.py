"""A tiny random BERT in a real GGUF file, and its forward in numpy to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import tiny
from numpy.typing import NDArray

WIDTH, INNER, HEADS, LAYERS, PLACES, EPSILON = 64, 128, 4, 2, 96, 1e-5

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Encoder:
    """A model of random weights: its file, and the same weights here."""

    path: Path
    weights: dict[str, Vectors]
    pooling: gguf.PoolingType

    def embedding(self, tokens: list[int]) -> Vectors:
        """The vector of a text, not yet scaled to any length."""
        its = self.weights
        x = its["token_embd.weight"][tokens] + its["position_embd.weight"][: len(tokens)]
        x = self._normed(x + its["token_types.weight"][0], "token_embd_norm")
        for layer in range(LAYERS):
            block = f"blk.{layer}."
            x = self._normed(x + self._attended(x, block), f"{block}attn_output_norm")
            inner = self._through(x, f"{block}ffn_up")
            inner *= 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
            x = self._normed(
                x + self._through(inner, f"{block}ffn_down"), f"{block}layer_output_norm"
            )
        if self.pooling is gguf.PoolingType.RANK:
            inner = np.tanh(self._through(x[:1], "cls"))
            scores: Vectors = self._through(inner, "cls.output")[0]
            return scores
        rows: dict[gguf.PoolingType, Vectors] = {
            gguf.PoolingType.MEAN: x.mean(axis=0),
            gguf.PoolingType.CLS: x[0],
            gguf.PoolingType.LAST: x[-1],
        }
        return rows[self.pooling]

    def _attended(self, x: Vectors, block: str) -> Vectors:
        """Every token looks at every other one."""
        size = WIDTH // HEADS
        query, key, value = (
            self._through(x, f"{block}attn_{name}").reshape(len(x), HEADS, size) for name in "qkv"
        )
        scores = np.einsum("ihd,jhd->hij", query, key) / math.sqrt(size)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, value).reshape(len(x), WIDTH)
        return self._through(mixed, f"{block}attn_output")

    def _through(self, x: Vectors, name: str) -> Vectors:
        found: Vectors = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return found

    def _normed(self, x: Vectors, name: str) -> Vectors:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        found: Vectors = scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return found


def bert(
    path: Path,
    pooling: gguf.PoolingType = gguf.PoolingType.MEAN,
    seed: int = 0,
    *,
    places: int = PLACES,
    rank_template: str = "",
) -> Encoder:
    """Write one; with a `rank_template` it says how a query and a document become one text."""
    writer, vocabulary = tiny.begun(path, "bert", seed, context=places)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(pooling)
    writer.add_token_type_count(1)
    if rank_template:
        writer.add_string("tokenizer.chat_template.rerank", rank_template)
    random, weights = np.random.default_rng(seed), {}

    def add(name: str, *shape: int, scale: float, around: float = 0.0) -> None:
        weights[name] = random.normal(around, scale, shape).astype(np.float32)
        writer.add_tensor(name, weights[name])

    def linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns, scale=columns**-0.5)
        add(f"{name}.bias", rows, scale=0.1)

    def norm(name: str) -> None:
        add(f"{name}.weight", WIDTH, scale=0.1, around=1.0)
        add(f"{name}.bias", WIDTH, scale=0.1)

    add("token_embd.weight", vocabulary, WIDTH, scale=1.0)
    add("position_embd.weight", places, WIDTH, scale=0.3)
    add("token_types.weight", 1, WIDTH, scale=0.3)
    norm("token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(block + name, WIDTH, WIDTH)
        linear(f"{block}ffn_up", INNER, WIDTH)
        linear(f"{block}ffn_down", WIDTH, INNER)
        norm(f"{block}attn_output_norm")
        norm(f"{block}layer_output_norm")
    if pooling is gguf.PoolingType.RANK:
        linear("cls", WIDTH, WIDTH)
        linear("cls.output", 1, WIDTH)
    return Encoder(tiny.ended(writer, path), weights, pooling)
