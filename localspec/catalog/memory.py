"""Memory that a model needs, computed from its header alone."""

from __future__ import annotations

from localspec.catalog.header import Header

_CELL_STEP = 256  # llama.cpp rounds the cells of a cache up to this
_BYTES_PER_VALUE = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}


def kv_bytes(header: Header, context: int, kv_type: str = "f16") -> int:
    """Bytes of the KV cache for `context` tokens, over all layers.

    An upper bound for architectures that keep less, such as sliding windows.
    """
    heads = header.per_layer("attention.head_count")
    groups = header.per_layer("attention.head_count_kv", heads[0])
    width = header.number("embedding_length")
    values_per_token = 0
    for head_count, group_count in zip(heads, groups, strict=True):
        own = width // head_count if head_count else 0
        key = header.number("attention.key_length", own)
        value = header.number("attention.value_length", own)
        values_per_token += group_count * (key + value)
    cells = -(-context // _CELL_STEP) * _CELL_STEP
    return int(cells * values_per_token * _BYTES_PER_VALUE[kv_type])


def show_bytes(num_bytes: int) -> str:
    """A size for people: "1.12 GB", "360.7 MB", "12 kB", "5 B"."""
    for limit, unit, digits in ((10**9, "GB", 2), (10**6, "MB", 1), (10**3, "kB", 0)):
        if num_bytes >= limit:
            return f"{num_bytes / limit:.{digits}f} {unit}"
    return f"{num_bytes} B"
