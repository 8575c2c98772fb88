"""An EAGLE-3 head in torch, with the numbers of llama.cpp's graph (`src/models/eagle3.cpp`).

Weights are a dict by llama.cpp's names; the functions compute with them. At position p a head reads
the pair of token p + 1 and the vector g of position p, and predicts token p + 2. When it drafts
further, the vector of the next pair is its own output: the sum behind its layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from localspec.worker.eagle3.shape import Shape

Weights = Mapping[str, Tensor]
_SPREAD = 0.6
"""Standard deviation of initial weights, times the square root of their number of inputs."""
_CALM = 0.3
"""Factor on initial weights that add to the vector: small, so that training begins stable."""
_HALVED = 0.5
_STEADY = 50.0
"""The most by which the first norm enlarges a number of a tap."""


def begun(shape: Shape, norm: Tensor, taps: Tensor, seed: int) -> dict[str, Tensor]:
    """The initial weights, float32, on the device of `norm`.

    The last norm begins as `norm`, the target's. `taps` (rows, 3 width) are some of the target's;
    the first norm begins so that all of their numbers have the same spread.
    """
    chosen = torch.Generator().manual_seed(seed)
    made = {}
    for name, lengths in shape.sizes.shapes().items():
        if len(lengths) == 1:
            made[name] = torch.full(lengths, _HALVED)
            continue
        calm = _CALM if name in {"blk.0.attn_output.weight", "blk.0.ffn_down.weight"} else 1.0
        spread = calm * _SPREAD / lengths[1] ** 0.5
        made[name] = torch.randn(lengths, generator=chosen) * spread
    alike = _normed(taps.float(), torch.ones(taps.shape[1], device=taps.device), shape.epsilon)
    made["enc.output_norm.weight"] = (
        _HALVED / alike.std(0, correction=0).clamp(min=_HALVED / _STEADY)
    ).cpu()
    made["blk.0.ffn_norm.weight"] = torch.ones(shape.sizes.width)
    made["output_norm.weight"] = norm.float().cpu().clone()
    return {name: weight.to(norm.device).requires_grad_() for name, weight in made.items()}


def fused(weights: Weights, shape: Shape, taps: Tensor) -> Tensor:
    """The vectors (..., width) that a head reads, made of taps (..., 3 width)."""
    normed = _normed(taps, weights["enc.output_norm.weight"], shape.epsilon)
    return _product(normed, weights["fc.weight"])


def logits(weights: Weights, shape: Shape, vectors: Tensor, output: Tensor) -> Tensor:
    """The logits (..., words) of vectors, by the target's output rows (words, width)."""
    return functional.linear(_normed(vectors, weights["output_norm.weight"], shape.epsilon), output)


def drafted(  # noqa: PLR0913 - all that a chain is made of
    weights: Weights,
    shape: Shape,
    vectors: Tensor,
    tokens: Tensor,
    *,
    mask: Tensor,
    depths: int,
) -> Iterator[Tensor]:
    """Draft along the text from every position at once; yields the vectors of each depth.

    The chain from position p attends to the pairs up to p, which have the target's vectors, and to
    its own pairs of the depths before. So at depths after the first a position sees only its own
    chain ("training-time test").

    Args:
        weights: Float32, cast to the type of `vectors` to compute.
        shape: The shape of the weights.
        vectors: (windows, length, width) of the target.
        tokens: (windows, length, width) embeddings of the tokens at the same positions.
        mask: (windows, 1, length, length) which positions each one sees.
        depths: How many are yielded. The vector at index p of depth d predicts token p + d + 2.
    """
    length = vectors.shape[1]
    positions = torch.arange(length, device=vectors.device)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for depth in range(depths):
        embedded = torch.roll(tokens, -1 - depth, 1)
        read = torch.cat(
            (
                _normed(embedded, weights["blk.0.attn_norm.weight"], shape.epsilon),
                _normed(vectors, weights["blk.0.attn_norm_2.weight"], shape.epsilon),
            ),
            -1,
        )
        queries, key, value = _heads(weights, shape, read, positions + depth)
        keys.append(key)
        values.append(value)
        seen = _attended(queries, keys, values, mask)
        vectors = _layer(weights, shape, vectors, seen)
        yield vectors


def _heads(
    weights: Weights, shape: Shape, read: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (windows, heads, length, numbers) of the rows `read`."""
    sizes = shape.sizes
    shared = sizes.heads // sizes.groups

    def part(name: str, count: int) -> Tensor:
        found = _product(read, weights[f"blk.0.attn_{name}.weight"])
        return found.view(*read.shape[:2], count, sizes.head)

    queries = _rotated(part("q", sizes.heads), positions, shape.rope_base)
    key = _rotated(part("k", sizes.groups), positions, shape.rope_base)
    value = part("v", sizes.groups)
    return (
        queries.transpose(1, 2),
        key.repeat_interleave(shared, 2).transpose(1, 2),
        value.repeat_interleave(shared, 2).transpose(1, 2),
    )


def _attended(queries: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> Tensor:
    """Attention's sum of values: of depth 0 by the mask, of later depths at its own position."""
    if len(keys) == 1:
        return functional.scaled_dot_product_attention(queries, keys[0], values[0], attn_mask=mask)
    first = (queries @ keys[0].transpose(-1, -2)).float().masked_fill(~mask, -1e30)
    own = [(queries * key).sum(-1, keepdim=True).float() for key in keys[1:]]
    shares = torch.softmax(torch.cat([first, *own], -1) * queries.shape[-1] ** -0.5, -1)
    shares = shares.to(queries.dtype)
    length = first.shape[-1]
    seen = shares[..., :length] @ values[0]
    for place, value in enumerate(values[1:], length):
        seen = seen + shares[..., place : place + 1] * value
    return seen


def _layer(weights: Weights, shape: Shape, vectors: Tensor, seen: Tensor) -> Tensor:
    """The vectors behind attention and feed-forward."""
    joined = seen.transpose(1, 2).flatten(2)
    summed = vectors + _product(joined, weights["blk.0.attn_output.weight"])
    normed = _normed(summed, weights["blk.0.ffn_norm.weight"], shape.epsilon)
    gate = functional.silu(_product(normed, weights["blk.0.ffn_gate.weight"]))
    inner = gate * _product(normed, weights["blk.0.ffn_up.weight"])
    return summed + _product(inner, weights["blk.0.ffn_down.weight"])


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(rows, weight.to(rows.dtype))


def _normed(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm, computed in float32."""
    found = rows.float()
    scaled = found * torch.rsqrt(found.pow(2).mean(-1, keepdim=True) + epsilon)
    return (scaled * weight.float()).to(rows.dtype)


def _rotated(rows: Tensor, positions: Tensor, base: float) -> Tensor:
    """Apply rotary positions to (windows, length, heads, numbers), in neighbouring pairs."""
    half = rows.shape[-1] // 2
    steps = torch.arange(half, device=rows.device, dtype=torch.float32) / half
    angles = positions.float()[:, None] * base**-steps
    cosine, sine = (each[None, :, None].to(rows.dtype) for each in (angles.cos(), angles.sin()))
    even, odd = rows[..., 0::2], rows[..., 1::2]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return turned.flatten(-2)
