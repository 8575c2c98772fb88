"""Tiny random projectors of images in real GGUF files, run by the real libmtmd; and pictures."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import tiny

WIDTH, PATCH = 32, 8
LLAVA, GEMMA, QWEN = "mlp", "gemma3", "qwen2vl_merger"
"""The oldest kind, an image's rows one after the other; one whose rows see each other; and one with
positions of two dimensions, and as many rows as the picture has room for."""


def build(
    path: Path,
    *,
    kind: str = LLAVA,
    side: int = 72,
    width: int = 64,
    seed: int = 0,
    torn: bool = False,
) -> Path:
    """Write a projector to `path` and return it.

    Args:
        path: Where the GGUF goes.
        kind: Of llama.cpp's clip.cpp.
        side: Pixels of an image's side: (side / 8)² rows of LLAVA, a fourth of that of GEMMA.
        width: Of the model that reads its rows.
        seed: Chooses the weights.
        torn: Without a tensor that llama.cpp takes for granted, and whose loader it ends.
    """
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "image_size": side,
        "patch_size": PATCH,
        "embedding_length": WIDTH,
        "feed_forward_length": 2 * WIDTH,
        "projection_dim": width,
        "block_count": 2,
        "attention.head_count": 2,
        "projector.scale_factor": 2,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    random = np.random.default_rng(seed)

    def add(name: str, *shape: int, scale: float = WIDTH**-0.5) -> None:
        writer.add_tensor(name, random.normal(0, scale, shape).astype(np.float32))

    add("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH, scale=PATCH**-1.0)
    if kind == QWEN:
        add("v.patch_embd.weight.1", WIDTH, 3, PATCH, PATCH, scale=PATCH**-1.0)
    else:
        add("v.position_embd.weight", (side // PATCH) ** 2, WIDTH)
    for block in ("v.blk.0.", "v.blk.1."):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"{block}{part}.weight", WIDTH, WIDTH)
            add(f"{block}{part}.bias", WIDTH)
        add(f"{block}ffn_up.weight", 2 * WIDTH, WIDTH)
        add(f"{block}ffn_down.weight", WIDTH, 2 * WIDTH)
        for part in ("ln1", "ln2"):
            writer.add_tensor(f"{block}{part}.weight", np.ones(WIDTH, np.float32))
            writer.add_tensor(f"{block}{part}.bias", np.zeros(WIDTH, np.float32))
    if kind == QWEN:
        add("mm.0.weight", 4 * WIDTH, 4 * WIDTH)
        add("mm.0.bias", 4 * WIDTH)
        add("mm.2.weight", width, 4 * WIDTH, scale=1.0)
        add("mm.2.bias", width)
    elif kind == LLAVA:
        add("mm.0.weight", width, WIDTH, scale=1.0)
        add("mm.0.bias", width)
        if not torn:
            add("mm.2.weight", width, width, scale=width**-0.5)
            add("mm.2.bias", width)
    else:
        add("mm.input_projection.weight", WIDTH, width)
        writer.add_tensor("mm.soft_emb_norm.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def reader(
    path: Path,
    *,
    seed: int = 0,
    like: int | None = None,
    noise: float = 0.0,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_0,
) -> Path:
    """A model that places images in two dimensions."""
    writer, vocabulary = tiny.begun(path, "qwen2vl", seed)
    writer.add_rope_dimension_sections([2, 3, 3, 0])
    tiny.weights(writer, vocabulary, seed=seed, like=like, noise=noise, quantization=quantization)
    return tiny.ended(writer, path)


def pixels(seed: int, width: int = 40, height: int = 40) -> bytes:
    """RGB pixels, row by row: stripes of random colours."""
    random = np.random.default_rng(seed)
    columns = random.integers(0, 256, (1, width, 3)) * random.integers(0, 2, (height, 1, 1))
    return columns.astype(np.uint8).tobytes()
