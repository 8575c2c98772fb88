"""A GGUF taken apart into keys, tensors and bytes, and put together again with anything wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

STRING, ARRAY = 8, 9
UINT32, INT32, FLOAT32, UINT64 = 4, 5, 6, 10
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = 32


def text(value: str | bytes, claimed: int | None = None) -> bytes:
    """A string as the file has it; `claimed` is the length that it gives, if another."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if claimed is None else claimed) + data


def u32(value: int) -> tuple[int, bytes]:
    """An unsigned number of 32 bits."""
    return UINT32, struct.pack("<I", value)


def i32(value: int) -> tuple[int, bytes]:
    """A signed number of 32 bits."""
    return INT32, struct.pack("<i", value)


def f32(value: float) -> tuple[int, bytes]:
    """A floating number of 32 bits."""
    return FLOAT32, struct.pack("<f", value)


def array(kind: int, values: list[bytes], claimed: int | None = None) -> tuple[int, bytes]:
    """An array of packed values; `claimed` is the count that it gives, if another."""
    count = len(values) if claimed is None else claimed
    return ARRAY, struct.pack("<IQ", kind, count) + b"".join(values)


@dataclass(slots=True)
class Info:
    """A tensor as the header has it: name, lengths, ggml's number of its type, place."""

    name: str
    lengths: list[int]
    kind: int
    offset: int


@dataclass(slots=True)
class Gguf:
    """A whole file. `tensors_claimed` and `keys_claimed` are the counts it gives, if others."""

    keys: list[tuple[str, int, bytes]] = field(default_factory=list)
    infos: list[Info] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    tensors_claimed: int | None = None
    keys_claimed: int | None = None

    def set(self, key: str, value: tuple[int, bytes] | None) -> None:
        """Replace a key in its place, add it at the end, or without a value take it out."""
        places = [at for at, (name, _, _) in enumerate(self.keys) if name == key]
        if value is None:
            self.keys = [one for one in self.keys if one[0] != key]
        elif places:
            self.keys[places[0]] = (key, *value)
        else:
            self.keys.append((key, *value))

    def values(self, key: str) -> list[bytes]:
        """The packed values of an array."""
        (found,) = (data for name, _, data in self.keys if name == key)
        kind, count = struct.unpack_from("<IQ", found)
        at, values = 12, []
        for _ in range(count):
            end = _end(found, at, kind)
            values.append(found[at:end])
            at = end
        return values

    def tensor(self, name: str) -> Info:
        """The tensor of that name."""
        (found,) = (info for info in self.infos if info.name == name)
        return found

    def header(self) -> bytes:
        """All that stands before the weights, without what fills it up."""
        tensors = len(self.infos) if self.tensors_claimed is None else self.tensors_claimed
        keys = len(self.keys) if self.keys_claimed is None else self.keys_claimed
        parts = [b"GGUF", struct.pack("<IQQ", self.version, tensors, keys)]
        for key, kind, value in self.keys:
            parts += [text(key), struct.pack("<I", kind), value]
        for info in self.infos:
            parts += [text(info.name), struct.pack("<I", len(info.lengths))]
            parts += [struct.pack("<Q", length) for length in info.lengths]
            parts.append(struct.pack("<IQ", info.kind, info.offset))
        return b"".join(parts)

    def bytes(self) -> bytes:
        """The file."""
        header = self.header()
        return header + bytes(-len(header) % _ALIGNMENT) + self.data


def apart(path: Path) -> Gguf:
    """A sound file, taken apart."""
    data = path.read_bytes()
    version, tensors, keys = struct.unpack_from("<IQQ", data, 4)
    found, at = Gguf(version=version), 24
    for _ in range(keys):
        end = _end(data, at, STRING)
        (kind,) = struct.unpack_from("<I", data, end)
        last = _end(data, end + 4, kind)
        found.keys.append((data[at + 8 : end].decode(), kind, data[end + 4 : last]))
        at = last
    for _ in range(tensors):
        end = _end(data, at, STRING)
        (count,) = struct.unpack_from("<I", data, end)
        lengths = struct.unpack_from(f"<{count}Q", data, end + 4)
        kind, offset = struct.unpack_from("<IQ", data, end + 4 + 8 * count)
        found.infos.append(Info(data[at + 8 : end].decode(), [*lengths], kind, offset))
        at = end + 4 + 8 * count + 12
    found.data = data[at + -at % _ALIGNMENT :]
    return found


def _end(data: bytes, at: int, kind: int) -> int:
    """Where the value that begins at `at` ends."""
    if kind == STRING:
        return at + 8 + int(struct.unpack_from("<Q", data, at)[0])
    if kind != ARRAY:
        return at + _WIDTHS[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _end(data, at, inner)
    return at
