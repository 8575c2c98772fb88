"""Reads the weights that PyTorch programs publish: `.safetensors`, and `.pt` without running it.

A `.pt` is a pickle, which may name any function to be called. Here it may name only those that a
dictionary of tensors needs, with our own in place of torch's, so nothing in the file can run.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelError
from localspec.types import Floats

_MOST_BYTES = 16 << 20
"""The most bytes of a header, or of a pickle that only names tensors: real ones have kilobytes."""
_KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
}
_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, EOFError, MemoryError,
    RuntimeError, NotImplementedError, OSError, struct.error, zlib.error,
)  # fmt: skip
"""Raised by zipfile and pickle where a file is damaged, besides their own errors."""
_SAFER = "Take a .safetensors of it, or save it again by torch.save(model.state_dict(), FILE)."


class FileTensor(NamedTuple):
    """A tensor in a mapped file: its kind by safetensors' name, its shape, and its bytes."""

    kind: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def floats(self) -> Floats:
        """A copy as float32."""
        found = self.data.view(_KINDS[self.kind]).reshape(self.shape)
        if self.kind == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32)


def read(path: Path) -> dict[str, FileTensor]:
    """The tensors of a file by name, mapped into memory.

    Raises:
        ModelError: it is no such file, is cut off, or holds something else.
    """
    try:
        with path.open("rb") as file:
            first = file.read(4)
    except OSError as error:
        raise _refuse(path, f"it cannot be read: {error.strerror}", "Check the path.") from error
    if not first:
        raise _refuse(path, "it is empty")
    data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    return _zipped(path, data) if first[:2] == b"PK" else _safetensors(path, data)


def _refuse(path: Path, why: str, fix: str = "Fetch it again.") -> ModelError:
    return ModelError(f"{path.name} cannot be used: {why}.", fix=fix)


class _Entry(msgspec.Struct):
    """A tensor as the header of a .safetensors describes it."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _safetensors(path: Path, data: NDArray[np.uint8]) -> dict[str, FileTensor]:
    """Read a .safetensors: eight bytes of length, a header in JSON, and the tensors in a row."""
    if len(data) < struct.calcsize("<Q"):
        raise _refuse(path, "it ends before its header")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    if length > min(_MOST_BYTES, len(data) - 8):
        raise _refuse(path, "it is no .safetensors and no .pt that torch.save wrote, or is cut off")
    try:
        told = msgspec.json.decode(data[8 : 8 + length].tobytes(), type=dict[str, msgspec.Raw])
        told.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in told.items()}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _refuse(path, "its header is not that of a .safetensors") from None
    body = data[8 + length :]
    return {name: _placed(path, name, entry, body) for name, entry in entries.items()}


def _placed(path: Path, name: str, entry: _Entry, body: NDArray[np.uint8]) -> FileTensor:
    if entry.dtype not in _KINDS:
        raise _refuse(path, f"tensor {name[:80]} is {entry.dtype[:20]}", _SAFER)
    start, end = entry.data_offsets
    size = math.prod(entry.shape) * np.dtype(_KINDS[entry.dtype]).itemsize
    if min(entry.shape, default=0) < 0 or start < 0 or end - start != size:
        raise _refuse(path, f"tensor {name[:80]} has another size than its shape says")
    if end > len(body):
        raise _refuse(path, f"it is cut off: tensor {name[:80]} ends behind the file's end")
    return FileTensor(entry.dtype, tuple(entry.shape), np.ascontiguousarray(body[start:end]))


class _Storage(NamedTuple):
    """A part of the archive and the kind of its numbers."""

    kind: str
    key: str


class _TensorPlace(NamedTuple):
    """A tensor as the pickle describes it."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuilt(
    storage: _Storage, offset: int, shape: Sequence[int], strides: Sequence[int], *_: object
) -> _TensorPlace:
    """A tensor's place; stands in for torch's function that would make the tensor."""
    return _TensorPlace(storage, offset, tuple(shape), tuple(strides))


class _Tensors(pickle.Unpickler):
    """Unpickles dictionaries of tensors and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Allow only what a dictionary of tensors is made of. Raises UnpicklingError."""
        named = f"{module_name}.{global_name}"
        if named == "torch._utils._rebuild_tensor_v2":
            return _rebuilt
        if named == "collections.OrderedDict":
            return OrderedDict
        if module_name == "torch" and global_name in _STORAGES:
            return _STORAGES[global_name]
        raise pickle.UnpicklingError(f"it names {named[:80]}, which no dictionary of tensors needs")

    def persistent_load(self, pid: Any) -> _Storage:
        """The storage that a tensor is a part of. Raises UnpicklingError."""
        match pid:
            case ("storage", str(kind), str(key), *_) if kind in _KINDS:
                return _Storage(kind, key)
        raise pickle.UnpicklingError("it names a storage of another kind")


def _zipped(path: Path, data: NDArray[np.uint8]) -> dict[str, FileTensor]:
    """Read a .pt: an archive with the pickle and, each in a part of its own, the numbers."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = {each.filename: each for each in archive.infolist()}
            (told,) = [name for name in listed if name.rpartition("/")[2] == "data.pkl"]
            if listed[told].file_size > _MOST_BYTES:
                raise _refuse(path, "its pickle is larger than any that names tensors", _SAFER)
            found = _Tensors(io.BytesIO(archive.read(told))).load()
    except (pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise _refuse(path, str(error) or "it is damaged", _SAFER) from None
    except _DAMAGE:
        raise _refuse(path, "it holds no dictionary of tensors, or is cut off", _SAFER) from None
    if not isinstance(found, dict):
        raise _refuse(path, "it holds no dictionary of tensors", _SAFER)
    folder = told.removesuffix("data.pkl") + "data/"
    tensors = {str(name): each for name, each in found.items() if isinstance(each, _TensorPlace)}
    return {name: _part(path, name, each, folder, listed, data) for name, each in tensors.items()}


def _part(  # noqa: PLR0913, PLR0917 - all that one part is found by
    path: Path,
    name: str,
    lies: _TensorPlace,
    folder: str,
    listed: Mapping[str, zipfile.ZipInfo],
    data: NDArray[np.uint8],
) -> FileTensor:
    part, one = listed.get(folder + lies.storage.key), np.dtype(_KINDS[lies.storage.kind]).itemsize
    dense = tuple(math.prod(lies.shape[place + 1 :]) for place in range(len(lies.shape)))
    size = math.prod(lies.shape) * one
    if part is None or lies.strides != dense or not all(each >= 0 for each in lies.shape):
        raise _refuse(path, f"tensor {name[:80]} has no place of its own in it", _SAFER)
    if part.compress_type != zipfile.ZIP_STORED:
        raise _refuse(path, "its parts are compressed", _SAFER)
    at = part.header_offset
    if not 0 <= at <= len(data) - 30:
        raise _refuse(path, "its list of parts names places behind its end")
    names = struct.unpack("<HH", data[at + 26 : at + 30].tobytes())  # in the part's own header
    start = at + 30 + sum(names) + lies.offset * one
    if lies.offset < 0 or lies.offset * one + size > part.file_size or start + size > len(data):
        raise _refuse(path, f"it is cut off: tensor {name[:80]} ends behind its part's end")
    return FileTensor(
        lies.storage.kind, lies.shape, np.ascontiguousarray(data[start : start + size])
    )
