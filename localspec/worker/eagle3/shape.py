"""Chooses the sizes of a new EAGLE-3 head by its target."""

from __future__ import annotations

from typing import NamedTuple

from localspec.catalog.compact_heads import Sizes
from localspec.catalog.header import Header
from localspec.errors import ModelError

BLOCK = 32
"""Weights in a block of the formats that heads are stored in."""
_HEADS = (128, 64, 32, 16)
"""Widths of an attention head, best first; the first with `_FEWEST` or more heads is used."""
_FEWEST = 4
_SHARING = 6
"""Attention heads that share keys and values, so that the KV cache is small and read quickly."""
_INNER = 8 / 3
"""Width of the feed-forward as a multiple of the head's; usual for a gated one."""
_SHALLOW = 8
_ROPE_BASE = 10_000.0
"""A head attends to near tokens; the base of its target may be meant for long texts."""
_EPSILON = 1e-6


class Shape(NamedTuple):
    """A head to be trained: sizes, the layers that are tapped, norms and positions.

    `vocabulary` is the number of its target's tokens, `context` the length that the target was
    trained for.
    """

    sizes: Sizes
    layers: tuple[int, int, int]
    vocabulary: int
    context: int
    epsilon: float = _EPSILON
    rope_base: float = _ROPE_BASE


def chosen(target: Header, words: int) -> Shape:
    """The shape of a head that drafts at most `words` of the target's tokens.

    Raises:
        ModelError: there is no shape for this model.
    """
    width, vocabulary = target.number("embedding_length"), target.vocabulary_size
    if width % (BLOCK * _FEWEST // 2):
        raise ModelError(f"An EAGLE-3 head is for models whose width is a multiple of 64: {width}.")
    words = min(words, vocabulary) // BLOCK * BLOCK
    if not words:
        raise ModelError(f"With fewer than {BLOCK} tokens a head cannot draft.")
    layers = taps(target.layers - target.number("nextn_predict_layers"))
    return Shape(sizes(width, words), layers, vocabulary, max(target.context_length, 1))


def sizes(width: int, words: int) -> Sizes:
    """The sizes of a head that drafts `words` tokens; `width` is a multiple of 64."""
    head = next(each for each in _HEADS if not width % each and width // each >= _FEWEST)
    unit = 256 if width % 256 == 0 else BLOCK
    heads = width // head
    return Sizes(width, round(_INNER * width / unit) * unit, heads, _groups(heads), words)


def _groups(heads: int) -> int:
    """The most key heads that divide `heads` evenly, with `_SHARING` heads or more for each."""
    return max(each for each in range(1, max(1, heads // _SHARING) + 1) if heads % each == 0)


def taps(layers: int) -> tuple[int, int, int]:
    """Layers near the first, in the middle and near the last, whose inputs a head is given.

    The same ones as in EAGLE-3 (Li et al., 2025) where there are enough layers.
    """
    first, last = (2, layers - 3) if layers >= _SHALLOW else (1, layers - 1)
    if not first < layers // 2 < last:
        raise ModelError(
            f"An EAGLE-3 head is fed by three layers, and this model has {layers}.",
            fix="localspec models head makes the other kind for it.",
        )
    return first, layers // 2, last
