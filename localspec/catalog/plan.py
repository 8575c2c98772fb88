"""A plan: what is loaded where, and the memory that takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from localspec.catalog.memory import Outline, rounded
from localspec.config import Config

FLOOR_CELLS = 8192
"""Tokens of all sessions together that there must be memory for, before layers may stay on a GPU;
also what a context begins with."""

LEAST_ROWS = 32
"""Rows of a forward that the engine needs at least, to measure what they cost."""

DRAFT_ROWS = 256
"""Rows of one forward of the draft: as many as it reads of one text at a time."""

_JUDGED_ROWS = 32
"""Rows of one session that may want logits in one forward, or more if it drafts more."""

_STATE_COPIES = 2
"""Of the state of each session, on the host: `engine/rollback.py` keeps so many."""

_SEATS = 32
"""On GPUs llama.cpp keeps scratch memory of its own for each row count up to here, where it is
compiled with `engine/native/graphs.cmake`."""
_SEAT_SHARE = 4 / 3
"""What it keeps for the logits of these, as a share of their bytes: 420 MB in all for 152,000
tokens of vocabulary, on an H100."""


class Part(msgspec.Struct, frozen=True):
    """What one device holds of one model ("target", "draft"): bytes, and blocks of it.

    `kv_bytes` are those of recurrent states too.
    """

    device: str
    model: str
    blocks: int
    weight_bytes: int
    kv_bytes: int
    compute_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes


class Layout(msgspec.Struct, frozen=True):
    """Where one model's blocks are: the last ones on `devices`, as many on each as `shares` say."""

    devices: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()

    @property
    def gpu_layers(self) -> int:
        """Blocks on GPUs: what llama.cpp calls n_gpu_layers."""
        return sum(self.shares)

    def sentence(self, how_many: str) -> str:
        """Where that is, for people."""
        return f"{how_many} on {' + '.join(self.devices)}" if self.devices else "on the CPU"

    def without_idle(self) -> Layout:
        """Without devices that got no block."""
        used = [pair for pair in zip(self.devices, self.shares, strict=True) if pair[1]]
        return Layout(tuple(name for name, _ in used), tuple(count for _, count in used))


class Plan(msgspec.Struct, frozen=True):
    """What is loaded where, and how much of everything there is.

    `rows` are the most of one forward of the target, `outputs` those of them that may want logits.
    `cells` are the tokens that all sessions together may come to hold, `start_cells` those that
    there is KV for at first, `context` the most of one session. `parts` count what is taken when
    all `cells` are. `fits` is False for a last attempt that free memory does
    not promise to bear.
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

    def taken(self) -> dict[str, int]:
        """Bytes by device."""
        return taken(self.parts)

    def sentence(self) -> str:
        """What is where, for people."""
        blocks = sum(part.blocks for part in self.parts if part.model == "target")
        target = self.target.sentence(f"{self.target.gpu_layers} of {blocks} blocks")
        draft = f"draft {self.draft.sentence('all')}" if self.draft else "no draft"
        sessions = "1 session" if self.slots == 1 else f"{self.slots} sessions"
        held = f"{sessions} of at most {self.context} tokens, together {self.cells}"
        return f"target {target}; {draft}; {held}"


class Rung(NamedTuple):
    """How much is given up: `floor` are cells that there must be, `draft` whether there is one."""

    slots: int
    floor: int
    draft: bool

    @property
    def start_cells(self) -> int:
        """Cells that a context begins with."""
        return min(self.floor, FLOOR_CELLS)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be loaded, and how. `draft` is None where there is none."""

    config: Config
    target: Outline
    draft: Outline | None = None

    @classmethod
    def of(cls, config: Config, outlines: Sequence[Outline]) -> Wish:
        """For a target and perhaps its draft, which is of no use where the memory is a state."""
        return cls(config, *(outlines[:1] if any(outlines[0].state_values) else outlines))

    @property
    def strict(self) -> bool:
        """Whether every slot has a KV stream of its own."""
        return self.config.engine.exactness == "strict"

    @property
    def context(self) -> int:
        """Tokens of the longest session that is wished for."""
        trained = self.target.context_length or FLOOR_CELLS
        return min(self.config.engine.context or trained, trained)

    def rows(self, slots: int) -> int:
        """Most rows of one forward of the target."""
        most = slots * (1 + self.config.speculation.max_draft)
        return max(self.config.engine.prefill_rows, most, LEAST_ROWS)

    def outputs(self, slots: int) -> int:
        """Most rows of one forward that want logits."""
        judged = max(1 + self.config.speculation.max_draft, _JUDGED_ROWS)
        return min(slots * judged, self.rows(slots))

    def plan(self, rung: Rung, target: Layout, draft: Layout | None, cells: int) -> Plan:
        """The plan with that much KV."""
        shared = cells // rung.slots if self.strict else cells
        return Plan(
            slots=rung.slots,
            context=min(self.context, shared),
            rows=self.rows(rung.slots),
            outputs=self.outputs(rung.slots),
            cells=cells,
            start_cells=min(cells, rung.start_cells),
            target=target.without_idle(),
            draft=None if draft is None else draft.without_idle(),
            parts=[
                *self.target_parts(rung, target, cells),
                *self.draft_parts(rung, draft, cells),
            ],
        )

    def at_first(self, plan: Plan) -> dict[str, int]:
        """Bytes by device before anything was said, when a context has its first cells."""
        rung = Rung(plan.slots, plan.start_cells, plan.draft is not None)
        return self.plan(rung, plan.target, plan.draft, plan.start_cells).taken()

    def target_parts(self, rung: Rung, layout: Layout, cells: int) -> list[Part]:
        """What the target takes, by device."""
        placement = self.config.engine.target
        seen = rounded(cells // rung.slots) if self.strict else cells
        flash = placement.flash_attention != "off"
        outputs = self.outputs(rung.slots)
        how = _How(placement.kv_type, flash, seen, outputs, placement.mlock)
        return _parts("target", self.target, layout, rung, cells, self.rows(rung.slots), how)

    def draft_parts(self, rung: Rung, layout: Layout | None, cells: int) -> list[Part]:
        """What the draft takes, by device; [] without one."""
        if layout is None or self.draft is None:
            return []
        placement = self.config.engine.draft
        flash = placement.flash_attention != "off" and not self.steps(layout)
        alone = self.strict or not flash
        seen = rounded(cells // rung.slots) if alone else cells
        rows = min(DRAFT_ROWS, self.rows(rung.slots))
        outputs = min(rows, self.outputs(rung.slots))
        how = _How(placement.kv_type, flash, seen, outputs, placement.mlock)
        return _parts("draft", self.draft, layout, rung, cells, rows, how)

    def steps(self, layout: Layout) -> bool:
        """Whether the draft may decode without flash attention, as it does on some CPUs."""
        how = self.config.engine.draft
        on_cpu = layout.gpu_layers == 0
        return on_cpu and how.flash_attention == "auto" and how.kv_type == "f16"


class _How(NamedTuple):
    """How a model attends; `seen` are the cells that a row looks at, `outputs` rows with logits.

    The file of a `locked` one stays in memory beside what llama.cpp repacks.
    """

    kv_type: str
    flash: bool
    seen: int
    outputs: int
    locked: bool


def _parts(  # noqa: PLR0913, PLR0917 - everything that memory depends on
    model: str,
    outline: Outline,
    layout: Layout,
    rung: Rung,
    cells: int,
    rows: int,
    how: _How,
) -> list[Part]:
    """What each device holds of one model, the host last.

    A long prompt brings the host's blocks to a GPU one by one. A context that grows is saved on the
    host meanwhile: half of it, at the last doubling, and all states.
    """
    first = at = outline.blocks - layout.gpu_layers
    scratch = outline.attention_bytes(rows, how.seen, flash=how.flash)
    logits = max(scratch, outline.logits_bytes(how.outputs))
    visiting = max(outline.host_bytes[:first], default=0)
    parts = []
    for name, count in zip(layout.devices, layout.shares, strict=True):
        if count:
            end = at + count
            kv = outline.kv_bytes(cells, how.kv_type, at, end)
            kv += outline.state_bytes(rung.slots, at, end)
            last = end == outline.blocks
            compute = visiting + (logits if last else scratch)
            compute += seats_bytes(outline, how.seen, flash=how.flash, last=last)
            parts.append(Part(name, model, count, sum(outline.device_bytes[at:end]), kv, compute))
            at = end
    weights = (outline.input_bytes + sum(outline.host_bytes[:first])) * (2 if how.locked else 1)
    kv = outline.kv_bytes(cells, how.kv_type, 0, first) + outline.state_bytes(rung.slots, 0, first)
    compute = 0 if first == 0 else scratch if first < outline.blocks else logits
    states = outline.state_bytes(rung.slots)
    compute += how.outputs * 4 * outline.vocabulary + _STATE_COPIES * states
    if cells > rung.start_cells:
        compute += outline.kv_bytes(cells, how.kv_type) // 2 + states
    return [*parts, Part("CPU", model, first, weights, kv, compute)]


def seats_bytes(outline: Outline, seen: int, *, flash: bool, last: bool) -> int:
    """What a GPU keeps for the graphs of few rows; the `last` one computes the logits."""
    row = outline.attention_bytes(1, seen, flash=flash)
    if last:
        row = max(row, int(_SEAT_SHARE * 4 * outline.vocabulary))
    return row * _SEATS * (_SEATS + 1) // 2


def taken(parts: Sequence[Part]) -> dict[str, int]:
    """Bytes by device."""
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.device] = sums.get(part.device, 0) + part.total_bytes
    return sums
