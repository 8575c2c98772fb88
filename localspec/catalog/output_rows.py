"""Writes a copy of a model with other output rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from localspec import paths
from localspec.catalog import header, writer
from localspec.catalog.memory import show_bytes
from localspec.catalog.reader import STRING
from localspec.errors import DiskFull

_COPIED_BYTES = 16 << 20


def replace(
    model: Path,
    destination: Path,
    output: writer.Tensor,
    rows: Iterable[bytes],
    name: str,
) -> None:
    """Write the model with these output rows to `destination`, replacing it.

    A model that used its embeddings as its output gets an output of its own.

    Args:
        model: A checked file.
        destination: The new file, in a directory that exists.
        output: The new output matrix.
        rows: The bytes of all rows, in parts.
        name: The new model's own name.

    Raises:
        BadGGUF: the model cannot be used.
        DiskFull: there is no room for the file.
        OSError: it cannot be written.
    """
    parsed = header.parse(model)
    kept = [tensor for tensor in parsed.tensors if tensor.name != output.name]
    tensors = [writer.Tensor(each.name, each.shape[::-1], each.type.name) for each in kept]
    needed = sum(each.num_bytes for each in (*tensors, output))
    if needed > shutil.disk_usage(destination.parent).free:
        raise DiskFull(f"{destination.name} needs {show_bytes(needed)}, and there is no room.")
    values = {
        key: writer.packed(value, parsed.kinds.get(key, STRING))
        for key, value in {**parsed.metadata, "general.name": name}.items()
    }
    with paths.beside(destination) as temporary:
        handle = paths.create(temporary, paths.MODEL_MODE)
        with os.fdopen(handle, "wb") as file, model.open("rb") as source:
            file.write(writer.assemble(values, [*tensors, output], parsed.alignment))
            for tensor in kept:
                source.seek(parsed.data_start + tensor.offset)
                left = tensor.num_bytes
                while left:
                    left -= file.write(source.read(min(left, _COPIED_BYTES)))
                file.write(writer.padding(tensor.num_bytes, parsed.alignment))
            for part in rows:
                file.write(part)
            file.write(writer.padding(output.num_bytes, parsed.alignment))
        header.read(temporary)
        temporary.replace(destination)
