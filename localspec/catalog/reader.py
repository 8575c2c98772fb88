"""A bounded GGUF parser: it allocates by the file's real size, never by sizes claimed in it.

`parse` is pure: bytes in, keys and tensors out, BadGGUF for everything else. `rules.py` has the
rules about keys that llama.cpp needs in order not to abort.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

from localspec.catalog.ggml_types import BY_ID, GgmlType
from localspec.errors import BadGGUF, escaped

MAX_HEADER_BYTES = 256 * 1024 * 1024
MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_STRING_BYTES = 16 * 1024 * 1024
MAX_KEY_BYTES = 1024
MAX_ARRAY_ELEMENTS = 16 * 1024 * 1024
MAX_TENSOR_NAME_BYTES = 63  # GGML_MAX_NAME less the closing NUL
MAX_DIMENSIONS = 4
MAX_ELEMENTS = (1 << 63) - 1
MAX_ALIGNMENT = 1 << 20
MAX_TRAILING_BYTES = 4096  # some writers pad the end to a page
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
NATIVE_ALIGNMENT = 8  # ggml aborts when tensor data lies closer than its own alignment allows

STRING, ARRAY, UINT32, INT32, FLOAT32, BOOL = 8, 9, 4, 5, 6, 7
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_PLAIN_KEY = re.compile(rb"[\x21-\x7e]+")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array of the metadata; each call decodes `raw` anew."""

    element_type: int
    count: int
    raw: bytes

    def __len__(self) -> int:
        return self.count

    def strings(self) -> list[bytes]:
        """The elements of an array of strings, as the bytes in the file."""
        found, position, raw, read = [], 0, self.raw, _U64.unpack_from
        for _ in range(self.count):
            start = position + 8
            position = start + read(raw, position)[0]
            found.append(raw[start:position])
        return found

    def numbers(self) -> tuple[Any, ...]:
        """The elements of an array of numbers or booleans."""
        return struct.unpack(f"<{self.count}{FORMATS[self.element_type]}", self.raw)


Value: TypeAlias = int | float | bool | str | Array


class Tensor(NamedTuple):
    """The place of one tensor: `shape` innermost first, `offset` from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    num_bytes: int
    num_elements: int


class Parsed(NamedTuple):
    """The content of a header. `kinds` gives the GGUF type id of each key's value.

    Tensor data begin at byte `data_start`; each tensor is aligned to `alignment`.
    """

    version: int
    metadata: Mapping[str, Value]
    kinds: Mapping[str, int]
    tensors: tuple[Tensor, ...]
    data_start: int
    alignment: int


class Incomplete(Exception):
    """The header continues beyond the given bytes."""


def _nothing(_count: int) -> bytes:
    return b""


_REASON_CHARS = 300
"""Most characters of a refusal: it may quote the file, whose text has no limit."""


def refuse(reason: str, fix: str = "") -> NoReturn:
    """Raise BadGGUF: the file cannot be used; `reason` is a full sentence."""
    said = escaped(reason)
    cut = said if len(said) <= _REASON_CHARS else f"{said[:_REASON_CHARS]}…"
    raise BadGGUF(cut, fix=fix)


def parse(data: bytes, file_bytes: int, more: Callable[[int], bytes] = _nothing) -> Parsed:
    """Parse the header at the start of `data`, the first bytes of a file of `file_bytes` bytes.

    `more(n)` returns up to n further bytes, like a file's `read`. Raises Incomplete if the bytes
    end before the header although the file is longer, and BadGGUF for any fault of the file.
    """
    cursor = _Cursor(data, file_bytes, more)
    version, num_tensors, num_keys = _preamble(cursor)
    metadata: dict[str, Value] = {}
    kinds: dict[str, int] = {}
    for index in range(num_keys):
        key = _key(cursor, index)
        if key in metadata:
            refuse(f"Key {key} appears twice.")
        kinds[key] = cursor.u32()
        metadata[key] = _value(cursor, key, kinds[key])
    alignment = _alignment(metadata, kinds)
    tensors = [_tensor(cursor, index) for index in range(num_tensors)]
    data_start = -(-cursor.position // alignment) * alignment
    _check_layout(tensors, data_start, alignment, file_bytes)
    return Parsed(version, metadata, kinds, tuple(tensors), data_start, alignment)


class _Cursor:
    """A position in `data` that cannot leave the file."""

    def __init__(self, data: bytes, file_bytes: int, more: Callable[[int], bytes]) -> None:
        self.data = data
        self.position = 0
        self._file_bytes = file_bytes
        self._more = more

    def advance(self, num_bytes: int) -> int:
        """Move over `num_bytes` bytes and return where they start."""
        start, end = self.position, self.position + num_bytes
        if end > self._file_bytes:
            refuse(
                f"The file ends inside its header: it has {self._file_bytes} bytes.",
                "It is truncated; fetch it again.",
            )
        if end > MAX_HEADER_BYTES:
            refuse(f"The header is longer than {MAX_HEADER_BYTES} bytes.")
        if end > (there := len(self.data)):
            self.data += self._more(max(end - there, there))
        if end > len(self.data):
            raise Incomplete
        self.position = end
        return start

    def u32(self) -> int:
        return int(self.number(_U32))

    def u64(self) -> int:
        return int(self.number(_U64))

    def number(self, layout: struct.Struct) -> Any:
        """Read one number; `data` may grow by reading more of the file."""
        start = self.advance(layout.size)
        return layout.unpack_from(self.data, start)[0]

    def string(self, limit: int, what: str) -> bytes:
        length = self.u64()
        if length > limit:
            refuse(f"{what} claims {length} bytes; at most {limit} are allowed.")
        start = self.advance(length)
        return self.data[start : start + length]

    def skip_strings(self, count: int, what: str) -> None:
        """Move over `count` strings in one tight loop, because vocabularies are long."""
        data, position, read = self.data, self.position, _U64.unpack_from
        for _ in range(count):
            if position + 8 > len(data):
                self.advance(position + 8 - self.position)
                data = self.data
            length = read(data, position)[0]
            if length > MAX_STRING_BYTES:
                refuse(f"{what} holds a string that claims {length} bytes.")
            position += 8 + length
        self.advance(position - self.position)


def _preamble(cursor: _Cursor) -> tuple[int, int, int]:
    start = cursor.advance(4)
    magic = cursor.data[start : start + 4]
    if magic != b"GGUF":
        refuse(f"It starts with {magic!r}, not with GGUF.", "Only GGUF files can be used.")
    version = cursor.u32()
    if version in {int.from_bytes(_U32.pack(known), "big") for known in VERSIONS}:
        refuse("It was written for big-endian machines.", "Fetch the little-endian file.")
    if version not in VERSIONS:
        refuse(f"It is GGUF version {version}; versions 2 and 3 can be read.")
    num_tensors, num_keys = cursor.u64(), cursor.u64()
    if num_tensors > MAX_TENSORS:
        refuse(f"It claims {num_tensors} tensors; at most {MAX_TENSORS} are allowed.")
    if num_keys > MAX_KEYS:
        refuse(f"It claims {num_keys} keys; at most {MAX_KEYS} are allowed.")
    return version, num_tensors, num_keys


def _key(cursor: _Cursor, index: int) -> str:
    raw = cursor.string(MAX_KEY_BYTES, f"Key {index}")
    if not _PLAIN_KEY.fullmatch(raw):
        refuse(f"Key {index} is empty or not plain ASCII: {raw[:40]!r}.")
    return raw.decode("ascii")


def _value(cursor: _Cursor, key: str, kind: int) -> Value:
    if kind == STRING:
        return cursor.string(MAX_STRING_BYTES, f"The value of {key}").decode("utf-8", "replace")
    if kind == ARRAY:
        return _array(cursor, key)
    if kind not in FORMATS:
        refuse(f"Key {key} has a value of unknown type {kind}.")
    value: int | float | bool = cursor.number(struct.Struct("<" + FORMATS[kind]))
    return value


def _array(cursor: _Cursor, key: str) -> Array:
    kind, count = cursor.u32(), cursor.u64()
    if kind != STRING and kind not in FORMATS:
        refuse(f"Key {key} is an array of unknown type {kind}.")
    if count > MAX_ARRAY_ELEMENTS:
        refuse(f"Key {key} claims {count} elements; at most {MAX_ARRAY_ELEMENTS} are allowed.")
    start = cursor.position
    if kind == STRING:
        cursor.skip_strings(count, f"Key {key}")
    else:
        cursor.advance(count * struct.calcsize("<" + FORMATS[kind]))
    return Array(kind, count, cursor.data[start : cursor.position])


def _alignment(metadata: Mapping[str, Value], kinds: Mapping[str, int]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if kinds.get("general.alignment", UINT32) != UINT32 or not isinstance(value, int):
        refuse("general.alignment is not an unsigned 32-bit number.")
    if not NATIVE_ALIGNMENT <= value <= MAX_ALIGNMENT or value & (value - 1):
        refuse(f"general.alignment is {value}, not a power of two that can be used.")
    return value


def _tensor(cursor: _Cursor, index: int) -> Tensor:
    raw = cursor.string(MAX_TENSOR_NAME_BYTES, f"The name of tensor {index}")
    if not _PLAIN_KEY.fullmatch(raw):
        refuse(f"Tensor {index} has an empty or strange name: {raw!r}.")
    name = raw.decode("ascii")
    num_dimensions = cursor.u32()
    if num_dimensions > MAX_DIMENSIONS:
        refuse(f"Tensor {name} has {num_dimensions} dimensions; at most 4 are allowed.")
    shape = tuple(cursor.u64() for _ in range(num_dimensions)) or (1,)
    num_elements = 1
    for length in shape:
        num_elements *= length
    if not 0 < num_elements <= MAX_ELEMENTS:
        refuse(f"Tensor {name} has an impossible shape {shape}.")
    type_id = cursor.u32()
    if type_id not in BY_ID:
        refuse(f"Tensor {name} has unknown type {type_id}.")
    kind = BY_ID[type_id]
    if shape[0] % kind.block_elements:
        refuse(
            f"Tensor {name}: rows of {shape[0]} do not divide into blocks of {kind.block_elements}."
        )
    num_bytes = num_elements // kind.block_elements * kind.block_bytes
    return Tensor(name, shape, kind, cursor.u64(), num_bytes, num_elements)


def _check_layout(tensors: list[Tensor], start: int, alignment: int, file_bytes: int) -> None:
    """Check that tensors follow each other, aligned, inside the file, with nothing after them."""
    if len({tensor.name for tensor in tensors}) != len(tensors):
        refuse("Two tensors have the same name.")
    expected = end = 0
    for tensor in tensors:
        if tensor.offset % alignment:
            refuse(f"Tensor {tensor.name} lies at {tensor.offset}, not aligned to {alignment}.")
        if tensor.offset < expected:
            refuse(f"Tensor {tensor.name} overlaps the one before it.")
        if tensor.offset > expected:
            refuse(f"There is a gap before tensor {tensor.name}.")
        end = tensor.offset + tensor.num_bytes
        expected = -(-end // alignment) * alignment
        missing = start + end - file_bytes
        if missing > 0:
            refuse(
                f"Tensor {tensor.name} ends {missing} bytes behind the end of the file.",
                "The file is truncated; fetch it again.",
            )
    surplus = file_bytes - (start + max(end, expected))
    if tensors and surplus > MAX_TRAILING_BYTES:
        refuse(
            f"{surplus} bytes follow the last tensor.",
            "Something was appended to the file; fetch it again.",
        )
