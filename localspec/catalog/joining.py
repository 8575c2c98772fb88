"""Joins a GGUF that was split into several files.

Pieces of a file that was cut at any byte ("m.gguf.part1of2") are concatenated. Otherwise the layout
is that of llama.cpp's `gguf-split`: the first part has all keys, each part has its own tensors, and
`split.no`, `split.count` and `split.tensors.count` number them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from localspec import paths
from localspec.catalog import filenames, header, writer
from localspec.catalog.reader import Parsed
from localspec.catalog.transfer import CHUNK_BYTES, disk_error, give_name
from localspec.errors import BadGGUF

_KEYS = ("split.no", "split.count", "split.tensors.count")


def stem(first: Path) -> str:
    """The name of the whole model, without the part number."""
    found = filenames.read(first.name)
    return Path(found.whole).stem if found else first.stem


def parts(first: Path) -> list[Path]:
    """All files of the model that `first` is part of, in order; only `first` if it is whole.

    Raises BadGGUF when one is missing.
    """
    ours = filenames.read(first.name)
    if ours is None or (ours.parts == 1 and not ours.cut):
        return [first]
    there = {}
    for path in first.parent.iterdir():
        name = filenames.read(path.name)
        if name and (name.whole, name.parts, name.cut) == (ours.whole, ours.parts, ours.cut):
            there[name.part] = path
    count = ours.parts or max(there)
    missing = [part for part in range(1, count + 1) if part not in there]
    if missing:
        raise BadGGUF(
            f"{first.name} is one of {count} parts, and part {missing[0]} is not beside it.",
            fix="Fetch all of them into one directory.",
        )
    return [there[part] for part in range(1, count + 1)]


def join(parts: Sequence[Path], destination: Path, on_bytes: Callable[[int], None]) -> None:
    """Write the model of these `parts`, which are in order, to one file; the parts are kept.

    `on_bytes` is called with the bytes written so far. `destination` appears only when all of it is
    on disk. Raises BadGGUF if the parts do not belong together, ModelError if the name is taken,
    DiskFull, PullError.
    """
    cut = filenames.read(parts[0].name)
    read = [] if cut and cut.cut else [header.parse(part) for part in parts]
    if read:
        _check(parts, read)
    total = sum(part.stat().st_size for part in parts)
    done = 0
    try:
        with paths.beside(destination) as temporary:
            with os.fdopen(paths.create(temporary, paths.MODEL_MODE), "wb") as file:
                pieces = _tensors(parts, read, file) if read else _pieces(parts, file)
                for done in pieces:
                    on_bytes(done)
                file.flush()
                os.fsync(file.fileno())
            give_name(temporary, destination)
    except OSError as error:
        raise disk_error(error, destination, total - done) from error


def _tensors(parts: Sequence[Path], read: Sequence[Parsed], file: BinaryIO) -> Iterator[int]:
    """Write one header and the tensors of all parts; yields the tensor bytes written so far."""
    file.write(_header(read))
    done = 0
    for part, parsed in zip(parts, read, strict=True):
        with part.open("rb") as source:
            for tensor in parsed.tensors:
                source.seek(parsed.data_start + tensor.offset)
                _copy(source, file, tensor.num_bytes)
                file.write(writer.padding(tensor.num_bytes, parsed.alignment))
                done += tensor.num_bytes
                yield done


def _pieces(parts: Sequence[Path], file: BinaryIO) -> Iterator[int]:
    """Concatenate the pieces of a cut file; yields the bytes written so far."""
    done = 0
    for part in parts:
        size = part.stat().st_size
        with paths.open_regular(part) as source:
            _copy(source, file, size)
        done += size
        yield done


def _check(parts: Sequence[Path], read: Sequence[Parsed]) -> None:
    """Refuse parts that are incomplete, out of order or of different models. Raises BadGGUF."""
    tensors = sum(len(parsed.tensors) for parsed in read)
    said = [tuple(parsed.metadata.get(key) for key in _KEYS) for parsed in read]
    if said != [(index, len(parts), tensors) for index in range(len(parts))]:
        raise BadGGUF(f"{parts[0].name} and the files beside it are not the parts of one model.")
    if len({parsed.alignment for parsed in read}) > 1:
        raise BadGGUF(f"{parts[0].name} and the files beside it are aligned differently.")


def _header(read: Sequence[Parsed]) -> bytes:
    first = read[0]
    kept = {key: value for key, value in first.metadata.items() if key not in _KEYS}
    tensors = [
        writer.Tensor(tensor.name, tensor.shape[::-1], tensor.type.name)
        for parsed in read
        for tensor in parsed.tensors
    ]
    values = {key: writer.packed(value, first.kinds[key]) for key, value in kept.items()}
    return writer.assemble(values, tensors, first.alignment)


def _copy(source: BinaryIO, file: BinaryIO, count: int) -> None:
    while count:
        chunk = source.read(min(CHUNK_BYTES, count))
        if not chunk:
            raise BadGGUF("A part became shorter while it was read.", fix="Fetch it again.")
        file.write(chunk)
        count -= len(chunk)
