"""Writes headers of the GGUF files that LocalSpec makes itself.

The format is the one that `reader.parse` reads: version 3, little-endian, tensors one after the
other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from localspec.catalog.ggml_types import BY_ID, GgmlType
from localspec.catalog.reader import (
    ARRAY,
    BOOL,
    DEFAULT_ALIGNMENT,
    FLOAT32,
    FORMATS,
    INT32,
    STRING,
    UINT32,
    Array,
    Value,
)

_IDS = {kind.name: number for number, kind in BY_ID.items()}

Metadata: TypeAlias = Mapping[str, str | int | float | bool | list[str] | list[int]]
"""Values by key. Integers become UINT32, integers in a list INT32, floats FLOAT32."""


class Tensor(NamedTuple):
    """A tensor to be written: `shape` outermost first, `type` by ggml's name."""

    name: str
    shape: tuple[int, ...]
    type: str

    @property
    def kind(self) -> GgmlType:
        """The layout of its elements."""
        return BY_ID[_IDS[self.type]]

    @property
    def num_bytes(self) -> int:
        """Bytes of its data."""
        return math.prod(self.shape) // self.kind.block_elements * self.kind.block_bytes


def header(metadata: Metadata, tensors: Sequence[Tensor]) -> bytes:
    """Everything before the first tensor's data, padded to where these data begin.

    The caller writes each tensor's data, followed by `padding`.
    """
    return assemble({key: _value(value) for key, value in metadata.items()}, tensors)


def assemble(
    values: Mapping[str, bytes], tensors: Sequence[Tensor], alignment: int = DEFAULT_ALIGNMENT
) -> bytes:
    """The header, from encoded metadata values, each of which begins with its GGUF type."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    for key, value in values.items():
        parts += [_string(key), value]
    offset = 0
    for tensor in tensors:
        lengths = tensor.shape[::-1]
        parts += [
            _string(tensor.name),
            struct.pack(f"<I{len(lengths)}Q", len(lengths), *lengths),
            struct.pack("<IQ", _IDS[tensor.type], offset),
        ]
        offset += tensor.num_bytes + len(padding(tensor.num_bytes, alignment))
    whole = b"".join(parts)
    return whole + padding(len(whole), alignment)


def packed(value: Value, kind: int) -> bytes:
    """The GGUF type and the bytes of a value that `reader.parse` found."""
    if isinstance(value, Array):
        return struct.pack("<IIQ", ARRAY, value.element_type, value.count) + value.raw
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    return struct.pack(f"<I{FORMATS[kind]}", kind, value)


def padding(num_bytes: int, alignment: int = DEFAULT_ALIGNMENT) -> bytes:
    """The padding after `num_bytes` bytes that aligns the next tensor."""
    return bytes(-num_bytes % alignment)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: str | float | list[str] | list[int]) -> bytes:
    match value:
        case str():
            return struct.pack("<I", STRING) + _string(value)
        case bool():
            return struct.pack("<I?", BOOL, value)
        case int():
            return struct.pack("<II", UINT32, value)
        case float():
            return struct.pack("<If", FLOAT32, value)
    return struct.pack("<I", ARRAY) + _array(value)


def _array(values: list[str] | list[int]) -> bytes:
    kind = STRING if values and isinstance(values[0], str) else INT32
    elements: Iterable[bytes] = (
        _string(value) if isinstance(value, str) else struct.pack("<i", value) for value in values
    )
    return struct.pack("<IQ", kind, len(values)) + b"".join(elements)
