"""Parts of headers, and changes to the keys of one that was read."""

from __future__ import annotations

import struct
from typing import Any

from localspec.catalog import reader
from localspec.catalog.reader import Array


def text(value: str | bytes) -> bytes:
    """A GGUF string."""
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def changed(parsed: reader.Parsed, **values: Any) -> reader.Parsed:
    """`parsed` with other values; None removes a key, and "__" stands for a dot in its name."""
    metadata, kinds = dict(parsed.metadata), dict(parsed.kinds)
    for name, value in values.items():
        key = name.replace("__", ".")
        metadata.pop(key, None)
        kinds.pop(key, None)
        if value is not None:
            metadata[key] = value
            kinds[key] = {int: 4, str: 8, float: 6, bool: 7, Array: 9}[type(value)]
    return parsed._replace(metadata=metadata, kinds=kinds)


def numbers(*values: int) -> Array:
    """An array of signed 32-bit numbers."""
    return Array(5, len(values), struct.pack(f"<{len(values)}i", *values))


def strings(*values: bytes) -> Array:
    """An array of strings."""
    return Array(8, len(values), b"".join(text(value) for value in values))
