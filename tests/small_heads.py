"""Compact EAGLE-3 heads of tiny targets, with random weights, and the same ones as whole files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from localspec.catalog import header
from localspec.catalog.compact_heads import Sizes, Trained, compact
from localspec.worker import heads

WIDTH, LAYERS = 64, 4
SIZES = Sizes(width=WIDTH, inner=160, heads=4, groups=2, words=96)
TAPS = (1, 2, 3)


def weights(
    sizes: Sizes = SIZES, seed: int = 0
) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Random ones of all tensors; norms are near one."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.normal(0, shape[1] ** -0.5, shape)
            if len(shape) > 1
            else random.uniform(0.5, 1.5, shape)
        ).astype(np.float32)
        for name, shape in sizes.shapes().items()
    }


def words(target: Path, count: int = SIZES.words, seed: int = 0) -> list[int]:
    """Some of a target's tokens, in order."""
    most = header.read(target).vocabulary_size
    return sorted(map(int, np.random.default_rng(seed).permutation(most)[:count]))


def trained(target: Path, sizes: Sizes = SIZES, kind: str = "Q4_0", **changed: Any) -> Trained:
    """A head for this target, but for what is changed."""
    packing = gguf.GGMLQuantizationType[kind]
    told: dict[str, Any] = {
        "name": "small",
        "key": heads.key(heads.File.open(target)),
        "sizes": sizes,
        "vocabulary": header.read(target).vocabulary_size,
        "layers": TAPS,
        "context": 4096,
        "epsilon": 1e-6,
        "rope_base": 10_000.0,
        "words": words(target, sizes.words),
        "weights": {
            name: ("F32", each.tobytes())
            if each.ndim == 1
            else (kind, gguf.quants.quantize(each, packing).tobytes())
            for name, each in weights(sizes).items()
        },
    }
    return Trained(**(told | changed))


def write(path: Path, target: Path, **changed: Any) -> Path:
    """A compact file of such a head."""
    path.write_bytes(compact(trained(target, **changed)))
    return path


def whole(path: Path, target: Path) -> Path:
    """The same head as another program writes it: with output rows and tokenizer of its own."""
    head, model = trained(target), gguf.GGUFReader(target)
    tensors = {tensor.name: tensor for tensor in model.tensors}
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_name(head.name)
    writer.add_context_length(head.context)
    writer.add_embedding_length(head.sizes.width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(head.sizes.inner)
    writer.add_head_count(head.sizes.heads)
    writer.add_head_count_kv(head.sizes.groups)
    writer.add_layer_norm_rms_eps(head.epsilon)
    writer.add_rope_freq_base(head.rope_base)
    writer.add_rope_dimension_count(head.sizes.head)
    writer.add_vocab_size(head.vocabulary)
    writer.add_array("eagle3.target_layers", list(head.layers))
    writer.add_uint32("eagle3.target_hidden_size", head.sizes.width)
    writer.add_bool("eagle3.norm_before_fc", True)
    for key, field in model.fields.items():
        if key.startswith("tokenizer.") and key != "tokenizer.chat_template":
            sub = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub)
    for name, each in weights(head.sizes).items():
        if each.ndim == 1:
            writer.add_tensor(name, each)
        else:
            packed = gguf.quants.quantize(each, gguf.GGMLQuantizationType.Q4_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    rows = tensors.get("output.weight", tensors["token_embd.weight"])
    writer.add_tensor(
        "output.weight", np.array(rows.data)[list(head.words)], raw_dtype=rows.tensor_type
    )
    writer.add_tensor("d2t", np.array(head.words, np.int64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
