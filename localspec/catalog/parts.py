"""Computes each device's share of one model: its weights, KV and scratch memory. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from localspec.catalog.memory import Outline

_STATE_COPIES = 2
"""Copies of each session's state on the host, which `engine/kv/rollback.py` keeps."""

_GRAPH_ROWS = 32
"""Up to this row count, each number of rows has a graph with its own scratch memory on a GPU, if
llama.cpp is compiled with `engine/native/graphs.cmake`."""
_GRAPH_LOGITS_SHARE = 4 / 3
"""Memory kept for the logits of these graphs, relative to the logits' own bytes: 420 MB in all for
a vocabulary of 152,000 tokens, on an H100."""


class Part(msgspec.Struct, frozen=True):
    """One model's share of one device: its number of blocks, and bytes.

    `model` is "target", "draft", "head", or "images" for the projector. It is also "process" for
    the worker itself, and "growing" for memory that is held twice while a context grows.

    `kv_bytes` include recurrent states. `spare_bytes` are included in the other figures, but on a
    CPU they take no memory until they are used: cells, and the buffer for the logits of many rows.
    """

    device: str
    model: str
    blocks: int
    weight_bytes: int
    kv_bytes: int
    compute_bytes: int
    spare_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """The sum of all bytes."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes


class Layout(msgspec.Struct, frozen=True):
    """The placement of one model: its last blocks are on `devices`, with `shares` blocks on each.

    The experts of the first `experts` of these blocks are on the CPU.
    """

    devices: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    experts: int = 0

    @property
    def gpu_layers(self) -> int:
        """The number of blocks on GPUs, llama.cpp's n_gpu_layers."""
        return sum(self.shares)

    def sentence(self, how_many: str) -> str:
        """The placement in words."""
        if not self.devices:
            return "on the CPU"
        apart = f" but for the experts of {self.experts} on the CPU" if self.experts else ""
        return f"{how_many} on {' + '.join(self.devices)}{apart}"

    def without_idle(self) -> Layout:
        """The same layout without the devices that hold no block."""
        used = [pair for pair in zip(self.devices, self.shares, strict=True) if pair[1]]
        names, shares = tuple(name for name, _ in used), tuple(count for _, count in used)
        return Layout(names, shares, self.experts)


class How(NamedTuple):
    """How a model is used.

    It has KV for `cells` tokens, of which a row attends to `seen`. Its `slots` sessions have
    `states` recurrent states together. A forward has `rows` rows, `outputs` of them with logits.
    The file of a `locked` model stays in memory beside the repacked weights. Cells of a `lazy`
    model take memory only once they are used.
    """

    kv_type: str
    flash: bool
    cells: int
    seen: int
    rows: int
    outputs: int
    slots: int
    states: int
    locked: bool
    lazy: bool


def parts(model: str, outline: Outline, layout: Layout, how: How) -> list[Part]:
    """Each device's share of one model, the host last.

    For a long prompt, blocks on the host are copied to a GPU one by one, which needs room for one.
    """
    first = at = outline.blocks - layout.gpu_layers
    scratch = outline.attention_bytes(how.rows, how.seen, flash=how.flash)
    logits = max(scratch, outline.logits_bytes(how.outputs))
    apart = outline.apart(layout.experts, first)
    visitors = [*outline.host_bytes[:first], *outline.expert_bytes[apart.start : apart.stop]]
    visiting = max(visitors, default=0)
    found = []
    for name, count in zip(layout.devices, layout.shares, strict=True):
        if count:
            end = at + count
            kv = outline.kv_bytes(how.cells, how.kv_type, at, end)
            kv += outline.state_bytes(how.states, at, end)
            last = end == outline.blocks
            compute = visiting + (logits if last else scratch)
            heads = last and how.outputs > 0
            compute += graphs_bytes(outline, how.seen, flash=how.flash, last=heads)
            weights = sum(outline.device_bytes[at:end])
            weights -= outline.experts_bytes(range(max(at, apart.start), min(end, apart.stop)))
            found.append(Part(name, model, count, weights, kv, compute))
            at = end
    weights = outline.input_bytes + sum(outline.host_bytes[:first]) + outline.experts_bytes(apart)
    weights *= 2 if how.locked else 1
    keys = outline.kv_bytes(how.cells, how.kv_type, 0, first)
    kv = keys + outline.state_bytes(how.states, 0, first)
    scratch = outline.attention_bytes(how.rows, how.seen, flash=how.flash, host=True)
    scratch *= first > 0 or len(apart) > 0
    compute = scratch
    if first == outline.blocks:
        compute = max(scratch, outline.logits_bytes(how.outputs))
    compute += how.outputs * 4 * outline.vocabulary
    spare = compute - scratch + (keys if how.lazy else 0)
    compute += _STATE_COPIES * outline.state_bytes(how.slots)
    return [*found, Part("CPU", model, first, weights, kv, compute, spare)]


def larger(part: Part, *, kv: int = 0, compute: int = 0) -> Part:
    """A part with more bytes of KV and scratch memory."""
    return msgspec.structs.replace(
        part, kv_bytes=part.kv_bytes + kv, compute_bytes=part.compute_bytes + compute
    )


def graphs_bytes(outline: Outline, seen: int, *, flash: bool, last: bool) -> int:
    """GPU memory for the graphs of few rows; the `last` device also computes logits."""
    row = outline.attention_bytes(1, seen, flash=flash)
    if last:
        row = max(row, int(_GRAPH_LOGITS_SHARE * 4 * outline.vocabulary))
    return row * _GRAPH_ROWS * (_GRAPH_ROWS + 1) // 2


def taken(parts: Sequence[Part]) -> dict[str, int]:
    """Bytes by device."""
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.device] = sums.get(part.device, 0) + part.total_bytes
    return sums
