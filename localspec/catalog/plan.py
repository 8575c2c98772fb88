"""A plan: which part of each model is loaded on which device, and the memory it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from localspec.catalog.devices import Own
from localspec.catalog.memory import Outline, rounded
from localspec.config import Config, Placement

FLOOR_CELLS = 8192
"""Tokens of all sessions together that must have memory before layers may stay on a GPU; also the
cells that a context begins with."""

LEAST_ROWS = 32
"""Least rows of a forward, which the engine needs to measure costs."""

DRAFT_ROWS = 256
"""Rows of one forward of the draft: it reads at most so many rows of one text at a time."""

PROCESS_BYTES = 64 << 20
"""Memory of a worker besides its models: Python, llama.cpp and their libraries."""

_TOKEN_BYTES, _DRAFT_TOKEN_BYTES = 960, 320
"""Bytes kept for each token of the vocabularies: 320 of llama.cpp's tables; the rest, for the
target only, is for prompts and grammars."""

EMBEDDED_TEXTS, EMBEDDED_ROWS = 32, 2048
"""Texts in one forward of an embedding model, and its tokens unless `engine.context` asks for
more: the longest text has as many."""

_JUDGED_ROWS = 32
"""Rows of one session with logits in one forward, unless it drafts more."""

_STATE_COPIES = 2
"""Copies of each session's state on the host, which `engine/kv/rollback.py` keeps."""

MOST_SNAPSHOTS = 8
"""States that a forward leaves of each session besides the last one, where memory bears it. Drafts
of models are hardly ever longer; behind longer ones a copy comes back."""

_GRAPH_ROWS = 32
"""Row counts up to this have a graph with scratch memory of its own on GPUs, where llama.cpp is
compiled with `engine/native/graphs.cmake`."""
_GRAPH_LOGITS_SHARE = 4 / 3
"""Memory kept for these graphs' logits, as a share of the logits' bytes: 420 MB in all for 152,000
tokens of vocabulary, on an H100."""


class Part(msgspec.Struct, frozen=True):
    """One model's ("target", "draft") share of one device: number of blocks, and bytes.

    `kv_bytes` include recurrent states. `spare_bytes` are part of the other figures, but on a CPU
    take no memory before they are used: cells, and what is reserved for the logits of many rows.
    Model "process" is the worker itself, and "growing" is memory that is held twice for a moment.
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
    """The placement of one model: its last blocks are on `devices`, `shares` of them on each.

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
        """The same layout without devices that have no block."""
        used = [pair for pair in zip(self.devices, self.shares, strict=True) if pair[1]]
        names, shares = tuple(name for name, _ in used), tuple(count for _, count in used)
        return Layout(names, shares, self.experts)


class Plan(msgspec.Struct, frozen=True):
    """A plan: the place of each part, and all sizes.

    `rows` are the most of one forward of the target, `outputs` those of them that may want logits.
    `cells` are the tokens that all sessions together may hold, `start_cells` those with KV at
    first, `context` the most of one session. `snapshots` are the states that a forward leaves of
    each session besides the last one. `parts` count the memory when all `cells` are in use.
    `fits` is False for a last attempt that exceeds the free memory.
    """

    slots: int
    context: int
    rows: int
    outputs: int
    cells: int
    start_cells: int
    target: Layout
    draft: Layout | None
    parts: list[Part]
    fits: bool = True
    embeds: bool = False
    snapshots: int = 0

    def taken(self) -> dict[str, int]:
        """Bytes by device."""
        return taken(self.parts)

    def sentence(self) -> str:
        """The plan as a sentence for people."""
        blocks = sum(part.blocks for part in self.parts if part.model == "target")
        target = self.target.sentence(f"{self.target.gpu_layers} of {blocks} blocks")
        draft = f"draft {self.draft.sentence('all')}" if self.draft else "no draft"
        sessions = "1 session" if self.slots == 1 else f"{self.slots} sessions"
        held = f"{sessions} of at most {self.context} tokens, together {self.cells}"
        if self.embeds:
            return f"model {target}; {self.slots} texts at once, {self.context} tokens together"
        return f"target {target}; {draft}; {held}"


class Rung(NamedTuple):
    """The slots, the least number of cells (`floor`), whether there is a draft, and snapshots."""

    slots: int
    floor: int
    draft: bool
    snapshots: int = 0

    @property
    def states(self) -> int:
        """States of a recurrent layer, of all slots together."""
        return self.slots * (1 + self.snapshots)

    @property
    def start_cells(self) -> int:
        """Cells that a context begins with."""
        return min(self.floor, FLOOR_CELLS)


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for a plan: configuration, files and build. `draft` is None without one."""

    config: Config
    target: Outline
    draft: Outline | None = None
    own: Own = field(default_factory=Own)

    @classmethod
    def of(cls, config: Config, outlines: Sequence[Outline], own: Own = Own()) -> Wish:  # noqa: B008 — frozen value
        """The wish for a target and perhaps its draft.

        The draft is dropped where the target generates no text.
        """
        target = outlines[0]
        draft = None if target.embeds or len(outlines) == 1 else outlines[1]
        return cls(config, target, draft, own)

    @property
    def strict(self) -> bool:
        """Whether every slot has a KV stream of its own."""
        return self.config.engine.exactness == "strict" and not self.target.embeds

    @property
    def slots(self) -> int:
        """Sessions wanted at the same time."""
        return EMBEDDED_TEXTS if self.target.embeds else self.config.engine.slots

    @property
    def snapshots(self) -> int:
        """The states that a forward is to leave besides the last one, where memory bears it."""
        able = self.target.snaps and any(self.target.state_values) and not self.target.embeds
        return min(MOST_SNAPSHOTS, self.config.speculation.max_draft) if able else 0

    @property
    def context(self) -> int:
        """Tokens of the longest session wanted."""
        trained = self.target.context_length or FLOOR_CELLS
        usual = EMBEDDED_ROWS if self.target.embeds else trained
        return min(self.config.engine.context or usual, trained)

    def most_cells(self, slots: int) -> int:
        """The most cells that are of use: a whole context for each session."""
        return rounded(self.context) * (1 if self.target.embeds else slots)

    def rows(self, slots: int) -> int:
        """Most rows of one forward of the target."""
        if self.target.embeds:  # a text is one forward
            return self.context
        most = slots * (1 + self.config.speculation.max_draft)
        return max(self.config.engine.prefill_rows, most, LEAST_ROWS)

    def outputs(self, slots: int) -> int:
        """The most rows of one forward with logits, including rows that get them unasked."""
        if self.target.embeds:
            return self.context if any(self.target.kv_values) else 0
        judged = max(1 + self.config.speculation.max_draft, _JUDGED_ROWS)
        return min(slots * judged, self.rows(slots))

    def plan(self, rung: Rung, target: Layout, draft: Layout | None, cells: int) -> Plan:
        """The plan with `cells` cells of KV."""
        shared = cells // rung.slots if self.strict else cells
        return Plan(
            slots=rung.slots,
            context=min(self.context, shared),
            rows=self.rows(rung.slots),
            outputs=self.outputs(rung.slots),
            cells=cells,
            start_cells=self._start(rung, cells),
            target=target.without_idle(),
            draft=None if draft is None else draft.without_idle(),
            parts=self.parts(rung, target, draft, cells),
            embeds=self.target.embeds,
            snapshots=rung.snapshots,
        )

    def parts(self, rung: Rung, target: Layout, draft: Layout | None, cells: int) -> list[Part]:
        """Each device's share of each model, and the worker's own memory on the host."""
        both = [*self.target_parts(rung, target, cells), *self.draft_parts(rung, draft, cells)]
        known = self.target.vocabulary
        tables = known * (_DRAFT_TOKEN_BYTES if self.target.embeds else _TOKEN_BYTES)
        if draft is not None and self.draft is not None:
            tables += self.draft.vocabulary * _DRAFT_TOKEN_BYTES
        both.append(Part("CPU", "process", 0, 0, 0, PROCESS_BYTES + tables))
        if copied := self._copied(rung, target, draft, cells):
            both.append(Part("CPU", "growing", 0, 0, 0, copied))
        return both

    def _start(self, rung: Rung, cells: int) -> int:
        """Cells with KV at first."""
        return cells if self.target.embeds else min(cells, rung.start_cells)

    def _copied(self, rung: Rung, target: Layout, draft: Layout | None, cells: int) -> int:
        """Bytes of the copy made while a context grows: half of it at the last doubling.

        One model at a time. 0 where all cells are allocated at the start.
        """
        engine, copies = self.config.engine, [0]
        if cells == self._start(rung, cells):
            return 0
        if not self._lazy(target, engine.target):
            states = self.target.state_bytes(rung.slots)
            copies.append(self.target.kv_bytes(cells, engine.target.kv_type) // 2 + states)
        if self.draft and draft and not self._lazy(draft, self._stepping(draft)):
            states = self.draft.state_bytes(rung.slots)
            copies.append(self.draft.kv_bytes(cells, engine.draft.kv_type) // 2 + states)
        return max(copies)

    def _lazy(self, layout: Layout, how: Placement) -> bool:
        return self.own.lazy(how, on_cpu=layout.gpu_layers == 0)

    def _stepping(self, layout: Layout) -> Placement:
        return self.own.stepping(self.config.engine.draft, on_cpu=layout.gpu_layers == 0)

    def at_first(self, plan: Plan) -> dict[str, int]:
        """Bytes by device, reserves included, while a context has its first cells."""
        return taken(self.first_parts(plan))

    def first_parts(self, plan: Plan) -> list[Part]:
        """Each device's share while a context has its first cells."""
        rung = Rung(plan.slots, plan.start_cells, plan.draft is not None, plan.snapshots)
        return self.parts(rung, plan.target, plan.draft, plan.start_cells)

    def target_parts(self, rung: Rung, layout: Layout, cells: int) -> list[Part]:
        """The target's memory by device."""
        placement = self.config.engine.target
        seen = rounded(cells // rung.slots) if self.strict else cells
        flash = placement.flash_attention != "off"
        outputs = self.outputs(rung.slots)
        lazy = self._lazy(layout, placement)
        how = _How(placement.kv_type, flash, seen, outputs, placement.mlock, lazy)
        return _parts("target", self.target, layout, rung, cells, self.rows(rung.slots), how)

    def draft_parts(self, rung: Rung, layout: Layout | None, cells: int) -> list[Part]:
        """The draft's memory by device; [] without one."""
        if layout is None or self.draft is None:
            return []
        placement = self._stepping(layout)
        flash = placement.flash_attention != "off"
        alone = self.strict or not flash
        seen = rounded(cells // rung.slots) if alone else cells
        rows = min(DRAFT_ROWS, self.rows(rung.slots))
        outputs = min(rows, self.outputs(rung.slots))
        lazy = self._lazy(layout, placement)
        how = _How(placement.kv_type, flash, seen, outputs, placement.mlock, lazy)
        return _parts("draft", self.draft, layout, rung._replace(snapshots=0), cells, rows, how)


class _How(NamedTuple):
    """How a model attends.

    `seen` are the cells that a row attends to, `outputs` the rows with logits. The file of a
    `locked` model stays in memory beside the repacked weights; cells of a `lazy` one take memory
    when they are used.
    """

    kv_type: str
    flash: bool
    seen: int
    outputs: int
    locked: bool
    lazy: bool


def _parts(  # noqa: PLR0913, PLR0917 - everything that memory depends on
    model: str,
    outline: Outline,
    layout: Layout,
    rung: Rung,
    cells: int,
    rows: int,
    how: _How,
) -> list[Part]:
    """Each device's share of one model, the host last.

    A long prompt copies the host's blocks to a GPU one by one.
    """
    first = at = outline.blocks - layout.gpu_layers
    scratch = outline.attention_bytes(rows, how.seen, flash=how.flash)
    logits = max(scratch, outline.logits_bytes(how.outputs))
    apart = outline.apart(layout.experts, first)
    visitors = [*outline.host_bytes[:first], *outline.expert_bytes[apart.start : apart.stop]]
    visiting = max(visitors, default=0)
    parts = []
    for name, count in zip(layout.devices, layout.shares, strict=True):
        if count:
            end = at + count
            kv = outline.kv_bytes(cells, how.kv_type, at, end)
            kv += outline.state_bytes(rung.states, at, end)
            last = end == outline.blocks
            compute = visiting + (logits if last else scratch)
            heads = last and how.outputs > 0
            compute += graphs_bytes(outline, how.seen, flash=how.flash, last=heads)
            weights = sum(outline.device_bytes[at:end])
            weights -= outline.experts_bytes(range(max(at, apart.start), min(end, apart.stop)))
            parts.append(Part(name, model, count, weights, kv, compute))
            at = end
    weights = outline.input_bytes + sum(outline.host_bytes[:first]) + outline.experts_bytes(apart)
    weights *= 2 if how.locked else 1
    keys = outline.kv_bytes(cells, how.kv_type, 0, first)
    kv = keys + outline.state_bytes(rung.states, 0, first)
    scratch = outline.attention_bytes(rows, how.seen, flash=how.flash, host=True)
    scratch *= first > 0 or len(apart) > 0
    compute = scratch
    if first == outline.blocks:
        compute = max(scratch, outline.logits_bytes(how.outputs))
    compute += how.outputs * 4 * outline.vocabulary
    spare = compute - scratch + (keys if how.lazy else 0)
    compute += _STATE_COPIES * outline.state_bytes(rung.slots)
    return [*parts, Part("CPU", model, first, weights, kv, compute, spare)]


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


class Amounts(msgspec.Struct, frozen=True):
    """A plan's bytes by device: after the first answer, with all cells used, and while growing."""

    loaded: dict[str, int]
    full: dict[str, int]
    peak: dict[str, int]

    @classmethod
    def of(cls, wish: Wish, plan: Plan) -> Amounts:
        """The memory that `plan` takes on the devices."""
        first = wish.first_parts(plan)
        loaded = taken(first)
        loaded["CPU"] -= sum(part.spare_bytes for part in first)
        return cls(
            loaded, taken([part for part in plan.parts if part.model != "growing"]), plan.taken()
        )
