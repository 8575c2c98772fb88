"""Tiny targets with draft heads in real GGUF files: random ones, and pairs that count.

In a pair that counts a token's embedding is a point that one rotation moves on to the next one's;
the target says the next number. So a head may be made by hand that is right every time, by its
token alone or by what it is given of the target alone: with either off by one it never is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import tiny
from numpy.typing import NDArray

WIDTH, LAYERS, EXPERTS, INNER = 64, 4, 2, 64
VOCABULARY = 262
"""Tokens of `tiny.begun`."""
Matrix = NDArray[np.float32]
By = Literal["token", "features", "chance"]
"""The thing that a head goes by; `chance` are random weights."""


class _Circle:
    """Points of a vocabulary, and the rotation from one to the next."""

    def __init__(self, count: int) -> None:
        turns = np.random.default_rng(3).permutation(np.arange(1, count // 2))[: WIDTH // 2]
        angles = 2 * np.pi * turns / count
        self.points = np.empty((count, WIDTH), np.float32)
        place = np.arange(count)[:, None] * angles
        self.points[:, 0::2], self.points[:, 1::2] = np.cos(place), np.sin(place)
        self.step = np.zeros((WIDTH, WIDTH), np.float32)
        for pair, angle in enumerate(angles):
            c, s = np.cos(angle), np.sin(angle)
            self.step[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[c, -s], [s, c]]


def points() -> Matrix:
    """Embeddings of a target that counts, (vocabulary, WIDTH)."""
    return _Circle(VOCABULARY).points


class _Writer:
    """A file on its way, with the keys of a small attention."""

    def __init__(self, path: Path, architecture: str, layers: int, *, seed: int) -> None:
        self.path, self.file_and_count = path, tiny.begun(path, architecture, seed)
        self.file, self.vocabulary = self.file_and_count
        self._dice = np.random.default_rng(seed)
        self.file.add_embedding_length(WIDTH)
        self.file.add_block_count(layers)
        self.file.add_feed_forward_length(INNER)
        self.file.add_head_count(1)
        self.file.add_head_count_kv(1)
        self.file.add_key_length(WIDTH)
        self.file.add_value_length(WIDTH)
        self.file.add_rope_dimension_count(WIDTH)
        self.file.add_layer_norm_rms_eps(1e-6)

    def add(self, name: str, *values: Matrix | float, shape: tuple[int, ...] = ()) -> None:
        """A matrix, the same number everywhere, or random weights of a shape."""
        if values:
            (value,) = values
            found = np.full(shape, value, np.float32) if isinstance(value, float) else value
        else:
            found = self._dice.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        self.file.add_tensor(name, np.ascontiguousarray(found, np.float32))

    def layer(self, layer: int, *, counts: bool, wide: int = 1) -> None:
        """Attention of a layer; one that counts adds nothing."""
        block = f"blk.{layer}."
        self.add(block + "attn_norm.weight", 1.0, shape=(WIDTH,))
        for name in ("attn_q", "attn_k", "attn_v"):
            self.add(f"{block}{name}.weight", shape=(WIDTH, wide * WIDTH))
        none = (0.0,) if counts else ()
        self.add(f"{block}attn_output.weight", *none, shape=(WIDTH, WIDTH))

    def feed_forward(self, layer: int, *, counts: bool, norm: str = "ffn_norm") -> None:
        """Of a layer, with a gate, behind the norm of that name."""
        block, none = f"blk.{layer}.", (0.0,) if counts else ()
        self.add(f"{block}{norm}.weight", 1.0, shape=(WIDTH,))
        self.add(block + "ffn_gate.weight", shape=(INNER, WIDTH))
        self.add(block + "ffn_up.weight", shape=(INNER, WIDTH))
        self.add(block + "ffn_down.weight", *none, shape=(WIDTH, INNER))

    def predicts(self, layer: int, by: By) -> None:
        """Tensors that make a prediction layer of it, which goes by its token or by its vector."""
        block = f"blk.{layer}.nextn."
        one, none = np.eye(WIDTH, dtype=np.float32), np.zeros((WIDTH, WIDTH), np.float32)
        parts = [one, none] if by == "token" else [none, _Circle(self.vocabulary).step]
        joined = [] if by == "chance" else [np.concatenate(parts, 1)]
        self.add(block + "eh_proj.weight", *joined, shape=(WIDTH, 2 * WIDTH))
        for name in ("enorm", "hnorm", "shared_head_norm"):
            self.add(f"{block}{name}.weight", 1.0, shape=(WIDTH,))

    def words(self, *, counts: bool, tied: bool = False) -> None:
        """Embeddings and output of a target; one that counts says the next number.

        Of one that is `tied` they are the same.
        """
        points = _Circle(self.vocabulary).points
        shape = (self.vocabulary, WIDTH)
        self.add("token_embd.weight", *([points] if counts else []), shape=shape)
        if not tied:
            self.add("output.weight", *([np.roll(points, 1, 0)] if counts else []), shape=shape)
        self.add("output_norm.weight", 1.0, shape=(WIDTH,))

    def done(self) -> Path:
        """Written."""
        return tiny.ended(self.file, self.path)


def qwen2(path: Path, *, counts: bool = False, tied: bool = False) -> Path:
    """A dense target."""
    file = _Writer(path, "qwen2", LAYERS, seed=11)
    file.words(counts=counts, tied=tied)
    for layer in range(LAYERS):
        file.layer(layer, counts=counts)
        file.feed_forward(layer, counts=counts)
        for name in ("q", "k", "v"):
            file.add(f"blk.{layer}.attn_{name}.bias", 0.0, shape=(WIDTH,))
    return file.done()


def eagle3(
    path: Path,
    by: By = "chance",
    *,
    words: NDArray[np.int64] | None = None,
    layers: tuple[int, ...] = (1, 2, 3),
    hidden: int = WIDTH,
    shares: bool = True,
) -> Path:
    """A head for `qwen2` that drafts `words`; without `shares` it has embeddings of its own."""
    file = _Writer(path, "eagle3", 1, seed=12)
    file.file.add_array("eagle3.target_layers", list(layers))
    file.file.add_uint32("eagle3.target_hidden_size", hidden)
    circle, counts = _Circle(file.vocabulary), by != "chance"
    spoken = np.arange(file.vocabulary) if words is None else words
    # It says the point that its vector is at, or by its token the one behind.
    points = circle.points if by == "features" else np.roll(circle.points, 1, 0)
    file.add("fc.weight", *(_fused(circle) if counts else ()), shape=(WIDTH, 3 * hidden))
    file.layer(0, counts=False, wide=2) if not counts else _self_attention(file, circle, by)
    file.add("blk.0.attn_norm_2.weight", 1.0, shape=(WIDTH,))
    file.feed_forward(0, counts=counts)
    file.add("output_norm.weight", 1.0, shape=(WIDTH,))
    file.add("output.weight", *([points[spoken]] if counts else []), shape=(len(spoken), WIDTH))
    if words is not None:
        file.file.add_tensor("d2t", words)
    if not shares:
        file.add("token_embd.weight", circle.points)
    return file.done()


def _fused(circle: _Circle) -> tuple[Matrix]:
    """The first tap, one number on."""
    return (np.concatenate([circle.step, np.zeros((WIDTH, 2 * WIDTH), np.float32)], 1),)


def _self_attention(file: _Writer, circle: _Circle, by: By) -> None:
    """Each row attends to itself, by its token; its vector goes, and what it goes by comes."""
    one, none = np.eye(WIDTH, dtype=np.float32), np.zeros((WIDTH, WIDTH), np.float32)
    length = np.float32(0.5**0.5)  # of a point's numbers, which norms make 1
    value = [length * one, -length * one] if by == "token" else [none, length * (circle.step - one)]
    file.add("blk.0.attn_norm.weight", 1.0, shape=(WIDTH,))
    file.add("blk.0.attn_q.weight", np.concatenate([4 * one, none], 1))
    file.add("blk.0.attn_k.weight", np.concatenate([one, none], 1))
    file.add("blk.0.attn_v.weight", np.concatenate(value, 1))
    file.add("blk.0.attn_output.weight", one)


Part = Literal["whole", "trunk", "predicts"]


def glm4moe(path: Path, by: By = "chance", *, part: Part = "whole") -> Path:
    """A target of experts with one prediction layer inside; it counts unless by chance.

    Or its trunk alone, and the prediction layer in a file of its own.
    """
    counts = by != "chance"
    file = _Writer(path, "glm4moe", LAYERS + 1, seed=13)
    for key, value in (
        ("nextn_predict_layers", 1), ("expert_count", EXPERTS), ("expert_used_count", 1),
        ("expert_shared_count", 1), ("expert_feed_forward_length", INNER),
        ("leading_dense_block_count", 1), ("expert_gating_func", 2),
    ):  # fmt: skip
        file.file.add_uint32(f"glm4moe.{key}", value)
    file.file.add_float32("glm4moe.expert_weights_scale", 1.0)
    file.file.add_bool("glm4moe.expert_weights_norm", True)
    file.words(counts=counts)
    first, end = LAYERS * (part == "predicts"), LAYERS + (part != "trunk")
    for layer in range(first, end):
        file.layer(layer, counts=counts)
        file.add(f"blk.{layer}.post_attention_norm.weight", 1.0, shape=(WIDTH,))
        if layer:
            _experts(file, layer, counts=counts)
        else:
            for name in ("gate", "up"):
                file.add(f"blk.0.ffn_{name}.weight", shape=(INNER, WIDTH))
            none = (0.0,) if counts else ()
            file.add("blk.0.ffn_down.weight", *none, shape=(WIDTH, INNER))
    if part == "trunk":
        return file.done()
    file.predicts(LAYERS, by)
    return file.done()


def _experts(file: _Writer, layer: int, *, counts: bool) -> None:
    block, none = f"blk.{layer}.", (0.0,) if counts else ()
    file.add(block + "ffn_gate_inp.weight", shape=(EXPERTS, WIDTH))
    file.add(block + "exp_probs_b.bias", 0.0, shape=(EXPERTS,))
    for name in ("gate", "up"):
        file.add(f"{block}ffn_{name}_exps.weight", shape=(EXPERTS, INNER, WIDTH))
        file.add(f"{block}ffn_{name}_shexp.weight", shape=(INNER, WIDTH))
    file.add(f"{block}ffn_down_exps.weight", *none, shape=(EXPERTS, WIDTH, INNER))
    file.add(f"{block}ffn_down_shexp.weight", *none, shape=(WIDTH, INNER))


STATE, STEPS, KERNEL = 16, 4, 4
"""Of gated delta nets: numbers of a head, heads, and tokens of the convolution."""


def qwen35(path: Path, by: By = "chance") -> Path:
    """A hybrid with one prediction layer inside: three layers whose memory is a state, one attends.

    The states change with every token also where it counts; only nothing is made of them.
    """
    counts = by != "chance"
    file = _Writer(path, "qwen35", LAYERS + 1, seed=14)
    for key, value in (
        ("nextn_predict_layers", 1), ("full_attention_interval", LAYERS),
        ("ssm.conv_kernel", KERNEL), ("ssm.inner_size", STATE * STEPS), ("ssm.state_size", STATE),
        ("ssm.time_step_rank", STEPS), ("ssm.group_count", 2),
    ):  # fmt: skip
        file.file.add_uint32(f"qwen35.{key}", value)
    file.file.add_array("qwen35.rope.dimension_sections", [11, 11, 10, 0])
    file.words(counts=counts)
    for layer in range(LAYERS + 1):
        if layer < LAYERS - 1:
            _delta_net(file, layer, counts=counts)
        else:
            _gated(file, layer, counts=counts)
        file.feed_forward(layer, counts=counts, norm="post_attention_norm")
    file.predicts(LAYERS, by)
    return file.done()


def _gated(file: _Writer, layer: int, *, counts: bool) -> None:
    """Attention whose queries bring a gate along."""
    block, none = f"blk.{layer}.", (0.0,) if counts else ()
    for name in ("attn_norm", "attn_q_norm", "attn_k_norm"):
        file.add(f"{block}{name}.weight", 1.0, shape=(WIDTH,))
    file.add(block + "attn_q.weight", shape=(2 * WIDTH, WIDTH))
    for name in ("attn_k", "attn_v"):
        file.add(f"{block}{name}.weight", shape=(WIDTH, WIDTH))
    file.add(block + "attn_output.weight", *none, shape=(WIDTH, WIDTH))


def _delta_net(file: _Writer, layer: int, *, counts: bool) -> None:
    block, none = f"blk.{layer}.", (0.0,) if counts else ()
    inner = STATE * STEPS
    through = 2 * 2 * STATE + inner
    file.add(block + "attn_norm.weight", 1.0, shape=(WIDTH,))
    file.add(block + "attn_qkv.weight", shape=(through, WIDTH))
    file.add(block + "attn_gate.weight", shape=(inner, WIDTH))
    file.add(block + "ssm_conv1d.weight", shape=(through, KERNEL))
    file.add(block + "ssm_dt.bias", 0.1, shape=(STEPS,))
    file.add(block + "ssm_a", -0.5, shape=(STEPS,))
    for name in ("beta", "alpha"):
        file.add(f"{block}ssm_{name}.weight", shape=(STEPS, WIDTH))
    file.add(block + "ssm_norm.weight", 1.0, shape=(STATE,))
    file.add(block + "ssm_out.weight", *none, shape=(WIDTH, inner))


def mimo2(path: Path, by: By = "chance", *, layers: int = 1) -> Path:
    """A dense target with so many prediction layers inside; the first one goes `by` something."""
    counts = by != "chance"
    every = LAYERS + layers
    file = _Writer(path, "mimo2", every, seed=15)
    for key, value in (
        ("nextn_predict_layers", layers), ("expert_feed_forward_length", INNER),
        ("attention.sliding_window", WINDOW),
    ):  # fmt: skip
        file.file.add_uint32(f"mimo2.{key}", value)
    file.file.add_array(
        "mimo2.attention.sliding_window_pattern", [n % 2 == 1 for n in range(every)]
    )
    file.words(counts=counts)
    for layer in range(every):
        block, none = f"blk.{layer}.", (0.0,) if counts else ()
        file.add(block + "attn_norm.weight", 1.0, shape=(WIDTH,))
        file.add(block + "attn_qkv.weight", shape=(3 * WIDTH, WIDTH))
        file.add(block + "attn_output.weight", *none, shape=(WIDTH, WIDTH))
        file.feed_forward(layer, counts=counts)
        if layer >= LAYERS:
            file.predicts(layer, by if layer == LAYERS else "chance")
    return file.done()


WINDOW = 24
"""Tokens that every second layer of a `mimo2` looks back."""
