"""Writes a smaller model of some layers of a larger one, which drafts for it. Pure Python.

A file's tensors name their layer by number (`blk.N.*`), and arrays in its metadata hold a value for
each layer. Both are reduced to the kept layers and renumbered; all other tensors stay as they are.
The new file names the model that it was made from by the SHA-256 of its last norm, as heads do.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from localspec import paths
from localspec.catalog import compact_heads, header, writer
from localspec.catalog.header import Header
from localspec.catalog.memory import outline, show_bytes
from localspec.catalog.reader import INT32, STRING, Array, Parsed, Tensor
from localspec.errors import ConfigError, DiskFull, ModelError

LAYERS = "localspec.layers"
"""Key of a pruned file that lists the layers of its target that it has."""
_NUMBERED = re.compile(r"blk\.(\d{1,4})\.(.+)")
_COPIED_BYTES = 1 << 22
_BY_NUMBER = frozenset(
    {"afmoe", "bert", "deepseek4", "ernie4_5-moe", "gemma3n", "gemma4", "granite-swa", "hrm-text",
     "kimi-k3", "llama4", "minimax-01", "nanbeige", "nomic-bert-moe", "qwen35", "qwen35moe",
     "qwen3next", "qwen3vl", "qwen3vlmoe", "qwen4exp", "rwkv6", "smallthinker", "smollm3"}
)  # fmt: skip
"""Architectures where a layer's number decides what llama.cpp computes in it (`src/models`)."""
_EQUAL = frozenset({"llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2"})
"""Architectures where a sliding window, if the file names one, holds for every layer."""


def refusal(target: Header) -> str:
    """The reason why a model cannot be pruned; "" if it can be."""
    name, count = target.architecture, trunk(target)
    if count < 2:  # noqa: PLR2004 - one has to be left, and one to go
        return "It has one layer, and one has to be left."
    if not any(tensor.name == compact_heads.NORM for tensor in target.tensors):
        return "It has no last norm, by which its drafts are known."
    windows = target.metadata.get(f"{name}.attention.sliding_window_pattern")
    alternates = target.number("attention.sliding_window") and not isinstance(windows, Array)
    if name in _BY_NUMBER or (alternates and name not in _EQUAL):
        return f'What a layer of a "{name}" computes depends on its number.'
    kinds = {frozenset(tensors) for tensors in _by_layer(target).values()}
    told = any(_per_layer(value, target.layers) for value in target.metadata.values())
    if len(kinds) > 1 and not told and not target.number("leading_dense_block_count"):
        return "Its layers are of several kinds, and its file does not say which is which."
    return ""


def _missed(target: Header, layers: Sequence[int]) -> str:
    """A sentence if a mixed model keeps no layer of one kind, for which llama.cpp would abort."""
    known = outline(target)
    for values, kind in ((known.kv_values, "attention"), (known.state_values, "a state")):
        if any(values) and not any(values[layer] for layer in layers):
            return f"None of them has {kind}, as others of the model have."
    return ""


def trunk(target: Header) -> int:
    """The number of layers that compute a token; prediction layers come after them."""
    return target.layers - target.number("nextn_predict_layers")


def listed(text: str, count: int) -> list[int]:
    """The layers in a list such as "0-7,24-27", for a model of `count`. Raises ConfigError."""
    found = list[int]()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4}))?\s*", part)
        if ends is None:
            raise ConfigError(f'"{text[:80]}" is no list of layers.', fix="For example: 0-7,24-27.")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    if sorted(set(found)) != found or not found:
        raise ConfigError(f'"{text[:80]}" is no list of layers in ascending order, each once.')
    if found[-1] >= count or len(found) == count:
        raise ConfigError(
            f"Layers 0 to {count - 1} are all that the model has; some of them can be kept."
        )
    return found


def write(target: Path, layers: Sequence[int], destination: Path) -> None:
    """Write a model of these layers, in ascending order, to `destination`, replacing it.

    Raises:
        BadGGUF: the target cannot be used.
        ModelError: it cannot be pruned.
        DiskFull: there is no room for the file.
        OSError: it cannot be written.
    """
    checked, parsed = header.read(target), header.parse(target)
    if reason := refusal(checked):
        raise ModelError(f"{target.name} cannot be pruned. {reason}")
    if missed := _missed(checked, layers):
        raise ModelError(f"{target.name} cannot be pruned to these layers. {missed}")
    key = compact_heads.key_of(target)
    kept = _kept(parsed, layers)
    needed = sum(tensor.num_bytes for _, tensor in kept)
    if needed > shutil.disk_usage(destination.parent).free:
        raise DiskFull(f"{destination.name} needs {show_bytes(needed)}, and there is no room.")
    alignment = parsed.alignment
    tensors = [writer.Tensor(name, each.shape[::-1], each.type.name) for name, each in kept]
    start = writer.assemble(_metadata(checked, parsed, layers, key), tensors, alignment)
    with paths.beside(destination) as temporary:
        handle = paths.create(temporary, paths.MODEL_MODE)
        with os.fdopen(handle, "wb") as made, target.open("rb") as source:
            made.write(start)
            for _, tensor in kept:
                source.seek(parsed.data_start + tensor.offset)
                left = tensor.num_bytes
                while left:
                    left -= made.write(source.read(min(left, _COPIED_BYTES)))
                made.write(writer.padding(tensor.num_bytes, alignment))
        header.read(temporary)
        temporary.replace(destination)


def _kept(parsed: Parsed, layers: Sequence[int]) -> list[tuple[str, Tensor]]:
    """The tensors of these layers, and those of no layer, under their new names."""
    places = {layer: place for place, layer in enumerate(layers)}
    kept = list[tuple[str, Tensor]]()
    for tensor in parsed.tensors:
        found = _NUMBERED.fullmatch(tensor.name)
        if found is None:
            kept.append((tensor.name, tensor))
        elif int(found[1]) in places:
            kept.append((f"blk.{places[int(found[1])]}.{found[2]}", tensor))
    return kept


def _metadata(target: Header, parsed: Parsed, layers: Sequence[int], key: str) -> dict[str, bytes]:
    """The metadata of the smaller model, as `writer.assemble` takes it."""
    name, values = target.architecture, dict(parsed.metadata)
    for each, value in parsed.metadata.items():
        if each.startswith(f"{name}.") and _per_layer(value, target.layers):
            assert isinstance(value, Array)  # noqa: S101 - a list for each layer
            values[each] = _cut(value, layers)
    values[f"{name}.block_count"] = len(layers)
    dense = f"{name}.leading_dense_block_count"
    if dense in values:
        first = target.number("leading_dense_block_count")
        values[dense] = sum(layer < first for layer in layers)
    if f"{name}.nextn_predict_layers" in values:
        values[f"{name}.nextn_predict_layers"] = 0
    values["general.name"] = f"{target.text('general.name') or target.file}, {spoken(layers)}"
    packed = {
        each: writer.packed(value, parsed.kinds.get(each, STRING)) for each, value in values.items()
    }
    numbers = b"".join(layer.to_bytes(4, "little") for layer in layers)
    packed[LAYERS] = writer.packed(Array(INT32, len(layers), numbers), INT32)
    return packed | {compact_heads.KEY: writer.packed(key, STRING)}


def spoken(layers: Sequence[int]) -> str:
    """A list of layers in words, such as "layers 0-7,24-27"."""
    runs = list[list[int]]()
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return "layers " + ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs
    )


def _per_layer(value: object, layers: int) -> bool:
    return isinstance(value, Array) and value.element_type != STRING and len(value) == layers


def _cut(value: Array, layers: Sequence[int]) -> Array:
    size = len(value.raw) // value.count
    raw = b"".join(value.raw[layer * size : (layer + 1) * size] for layer in layers)
    return Array(value.element_type, len(layers), raw)


def _by_layer(target: Header) -> dict[int, set[str]]:
    """The names of the tensors of each layer, without prediction layers."""
    found: dict[int, set[str]] = {}
    for tensor in target.tensors:
        named = _NUMBERED.fullmatch(tensor.name)
        if named is not None and int(named[1]) < trunk(target):
            found.setdefault(int(named[1]), set()).add(named[2])
    return found
