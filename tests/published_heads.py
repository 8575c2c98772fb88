"""Heads as Medusa and Hydra publish them, for the tiny model that counts, in both file formats."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import heads
import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def medusa(count: int = 3, *, off: int = 0, random: bool = False) -> dict[str, NDArray[np.float32]]:
    """Heads of one block: head i says the number i + 2 behind the one whose state it is given.

    Or `off` more, or at random.
    """
    width, points = heads.WIDTH, heads.points()
    dice = np.random.default_rng(1)
    found: dict[str, NDArray[np.float32]] = {}
    for place in range(count):
        block = dice.normal(0, width**-0.5, (width, width)) if random else np.zeros((width, width))
        rows = dice.normal(0, 1, points.shape) if random else np.roll(points, place + 2 + off, 0)
        found[f"{place}.0.linear.weight"] = block.astype(np.float32)
        found[f"{place}.0.linear.bias"] = np.zeros(width, np.float32)
        found[f"{place}.1.weight"] = rows.astype(np.float32)
    return found


def hydra(count: int = 3, *, looks_at: int = -1, off: int = 0) -> dict[str, NDArray[np.float32]]:
    """Heads of one block that say the number behind the vector that they look at, or `off` more.

    Of a head's vectors, the state and the tokens since, -1 is the latest token and 0 the state.
    """
    width, points = heads.WIDTH, heads.points()
    found: dict[str, NDArray[np.float32]] = {}
    for place in range(count):
        at = range(place + 2)[looks_at]
        kept = np.zeros((width, (place + 2) * width), np.float32)
        kept[:, at * width : (at + 1) * width] = np.eye(width)
        steps = place + 2 - at
        found[f"hydra_mlp.{place}.0.linear.weight"] = np.zeros_like(kept)
        found[f"hydra_mlp.{place}.0.linear.bias"] = np.zeros(width, np.float32)
        found[f"hydra_mlp.{place}.0.res_connection.weight"] = kept
        found[f"hydra_mlp.{place}.0.res_connection.bias"] = np.zeros(width, np.float32)
        found[f"hydra_lm_head.{place}.weight"] = np.roll(points, steps + off, 0)
        found[f"hydra_lm_head.{place}.bias"] = np.zeros(len(points), np.float32)
    return found


_SAFE = {"float32": "F32", "float16": "F16", "float64": "F64"}


def safetensors(path: Path, tensors: Arrays) -> Path:
    """Written by the format's own description."""
    told: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, each in tensors.items():
        kind = _SAFE[str(each.dtype)]
        told[name] = {"dtype": kind, "shape": each.shape, "data_offsets": [at, at + each.nbytes]}
        at += each.nbytes
    header = json.dumps(told).encode()
    data = b"".join(each.tobytes() for each in tensors.values())
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


_STORAGES = {"float32": b"FloatStorage", "float16": b"HalfStorage"}


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"


def pt(path: Path, tensors: Arrays, *, calls: bytes = b"") -> Path:
    """An archive as torch.save writes it, with opcodes written one by one; `calls` come first."""
    told = [b"\x80\x02", calls, b"ccollections\nOrderedDict\n)R("]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for key, (name, each) in enumerate(tensors.items()):
            strides = tuple(stride // each.itemsize for stride in each.strides)
            kind = b"ctorch\n" + _STORAGES[str(each.dtype)] + b"\n"
            place = b"(" + _text("storage") + kind + _text(str(key)) + _text("cpu")
            place += _number(each.size) + b"tQ"
            rest = _number(0) + _numbers(each.shape) + _numbers(strides) + b"\x89"
            rest += b"ccollections\nOrderedDict\n)R"
            told += [_text(name), b"ctorch._utils\n_rebuild_tensor_v2\n(", place, rest, b"tR"]
            archive.writestr(f"heads/data/{key}", each.tobytes())
        archive.writestr("heads/data.pkl", b"".join([*told, b"u."]))
        archive.writestr("heads/version", b"3\n")
    return path
