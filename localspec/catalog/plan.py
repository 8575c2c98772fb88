"""A plan: what is loaded where, and the memory that takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from localspec.catalog.devices import Own
from localspec.catalog.memory import Outline, rounded
from localspec.config import Config, Placement

FLOOR_CELLS = 8192
"""Tokens of all sessions together that there must be memory for, before layers may stay on a GPU;
also what a context begins with."""

LEAST_ROWS = 32
"""Rows of a forward that the engine needs at least, to measure what they cost."""

DRAFT_ROWS = 256
"""Rows of one forward of the draft: as many as it reads of one text at a time."""

PROCESS_BYTES = 64 << 20
"""The memory of a worker beside its models: Python, llama.cpp and what they load."""

_TOKEN_BYTES, _DRAFT_TOKEN_BYTES = 960, 320
"""Bytes kept for each token of the vocabularies. llama.cpp's tables are 320 of them; the rest is
what prompts and grammars have to know of the target's."""

EMBEDDED_TEXTS, EMBEDDED_ROWS = 32, 2048
"""Texts of one forward of a model that embeds, and its tokens, where `engine.context` asks for no
more: so long is the longest text."""

_JUDGED_ROWS = 32
"""Rows of one session that may want logits in one forward, or more if it drafts more."""

_STATE_COPIES = 2
"""Of the state of each session, on the host: `engine/kv/rollback.py` keeps so many."""

_SEATS = 32
"""On GPUs llama.cpp keeps scratch memory of its own for each row count up to here, where it is
compiled with `engine/native/graphs.cmake`."""
_SEAT_SHARE = 4 / 3
"""The memory kept for their logits, as a share of their bytes: 420 MB in all for 152,000
tokens of vocabulary, on an H100."""


class Part(msgspec.Struct, frozen=True):
    """One device's share of one model ("target", "draft"): bytes, and blocks of it.

    `kv_bytes` are those of recurrent states too. `spare_bytes` are counted with the others, and
    take no memory of a CPU before they are used: what is reserved for the logits of many rows at
    once, and cells. "process" is what the worker itself takes, and "growing" what is there twice
    for a moment.
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
        """All of it."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes


class Layout(msgspec.Struct, frozen=True):
    """Where one model's blocks are: the last ones on `devices`, as many on each as `shares` say.

    The experts of the first `experts` of these are on the CPU.
    """

    devices: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    experts: int = 0

    @property
    def gpu_layers(self) -> int:
        """Blocks on GPUs: what llama.cpp calls n_gpu_layers."""
        return sum(self.shares)

    def sentence(self, how_many: str) -> str:
        """Where that is, for people."""
        if not self.devices:
            return "on the CPU"
        apart = f" but for the experts of {self.experts} on the CPU" if self.experts else ""
        return f"{how_many} on {' + '.join(self.devices)}{apart}"

    def without_idle(self) -> Layout:
        """Without devices that got no block."""
        used = [pair for pair in zip(self.devices, self.shares, strict=True) if pair[1]]
        names, shares = tuple(name for name, _ in used), tuple(count for _, count in used)
        return Layout(names, shares, self.experts)


class Plan(msgspec.Struct, frozen=True):
    """A plan: where each part is loaded, and how large everything is.

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
    embeds: bool = False

    def taken(self) -> dict[str, int]:
        """Bytes by device."""
        return taken(self.parts)

    def sentence(self) -> str:
        """The plan in a sentence, for people."""
        blocks = sum(part.blocks for part in self.parts if part.model == "target")
        target = self.target.sentence(f"{self.target.gpu_layers} of {blocks} blocks")
        draft = f"draft {self.draft.sentence('all')}" if self.draft else "no draft"
        sessions = "1 session" if self.slots == 1 else f"{self.slots} sessions"
        held = f"{sessions} of at most {self.context} tokens, together {self.cells}"
        if self.embeds:
            return f"model {target}; {self.slots} texts at once, {self.context} tokens together"
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
    """A wish: the files to load, how and with which build. `draft` is None where there is none."""

    config: Config
    target: Outline
    draft: Outline | None = None
    own: Own = field(default_factory=Own)

    @classmethod
    def of(cls, config: Config, outlines: Sequence[Outline], own: Own = Own()) -> Wish:  # noqa: B008 — frozen value
        """For a target and perhaps its draft.

        That is of no use where the memory is a state, or nothing is written.
        """
        target = outlines[0]
        alone = target.embeds or any(target.state_values)
        draft = None if alone or len(outlines) == 1 else outlines[1]
        return cls(config, target, draft, own)

    @property
    def strict(self) -> bool:
        """Whether every slot has a KV stream of its own."""
        return self.config.engine.exactness == "strict" and not self.target.embeds

    @property
    def slots(self) -> int:
        """Sessions that are wished for at the same time."""
        return EMBEDDED_TEXTS if self.target.embeds else self.config.engine.slots

    @property
    def context(self) -> int:
        """Tokens of the longest session that is wished for."""
        trained = self.target.context_length or FLOOR_CELLS
        usual = EMBEDDED_ROWS if self.target.embeds else trained
        return min(self.config.engine.context or usual, trained)

    def most_cells(self, slots: int) -> int:
        """Cells that are of use: a whole context for each session."""
        return rounded(self.context) * (1 if self.target.embeds else slots)

    def rows(self, slots: int) -> int:
        """Most rows of one forward of the target."""
        if self.target.embeds:  # a text is one forward
            return self.context
        most = slots * (1 + self.config.speculation.max_draft)
        return max(self.config.engine.prefill_rows, most, LEAST_ROWS)

    def outputs(self, slots: int) -> int:
        """Most rows of one forward that want logits, or get them unasked."""
        if self.target.embeds:
            return self.context if any(self.target.kv_values) else 0
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
            start_cells=self._start(rung, cells),
            target=target.without_idle(),
            draft=None if draft is None else draft.without_idle(),
            parts=self.parts(rung, target, draft, cells),
            embeds=self.target.embeds,
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
        """Cells that there is KV for at first."""
        return cells if self.target.embeds else min(cells, rung.start_cells)

    def _copied(self, rung: Rung, target: Layout, draft: Layout | None, cells: int) -> int:
        """The memory a growing context is saved in: half of it, at the last doubling; one at once.

        Nothing where all cells are there from the beginning and take memory when they are used.
        """
        engine, copies = self.config.engine, [0]
        if cells == self._start(rung, cells):
            return 0
        if not self._lazy(target, engine.target):
            states = self.target.state_bytes(rung.slots)
            copies.append(self.target.kv_bytes(cells, engine.target.kv_type) // 2 + states)
        if self.draft and draft and not self._lazy(draft, self._stepping(draft)):
            copies.append(self.draft.kv_bytes(cells, engine.draft.kv_type) // 2)
        return max(copies)

    def _lazy(self, layout: Layout, how: Placement) -> bool:
        return self.own.lazy(how, on_cpu=layout.gpu_layers == 0)

    def _stepping(self, layout: Layout) -> Placement:
        return self.own.stepping(self.config.engine.draft, on_cpu=layout.gpu_layers == 0)

    def at_first(self, plan: Plan) -> dict[str, int]:
        """Bytes by device, what is reserved included, while a context has its first cells."""
        return taken(self.first_parts(plan))

    def first_parts(self, plan: Plan) -> list[Part]:
        """Each device's share while a context has its first cells."""
        rung = Rung(plan.slots, plan.start_cells, plan.draft is not None)
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
        return _parts("draft", self.draft, layout, rung, cells, rows, how)


class _How(NamedTuple):
    """How a model attends; `seen` are the cells that a row looks at, `outputs` rows with logits.

    The file of a `locked` one stays in memory beside what llama.cpp repacks; cells of a `lazy` one
    take memory when they are used.
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

    A long prompt brings the host's blocks to a GPU one by one.
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
            kv += outline.state_bytes(rung.slots, at, end)
            last = end == outline.blocks
            compute = visiting + (logits if last else scratch)
            heads = last and how.outputs > 0
            compute += seats_bytes(outline, how.seen, flash=how.flash, last=heads)
            weights = sum(outline.device_bytes[at:end])
            weights -= outline.experts_bytes(range(max(at, apart.start), min(end, apart.stop)))
            parts.append(Part(name, model, count, weights, kv, compute))
            at = end
    weights = outline.input_bytes + sum(outline.host_bytes[:first]) + outline.experts_bytes(apart)
    weights *= 2 if how.locked else 1
    keys = outline.kv_bytes(cells, how.kv_type, 0, first)
    kv = keys + outline.state_bytes(rung.slots, 0, first)
    scratch = outline.attention_bytes(rows, how.seen, flash=how.flash, host=True)
    scratch *= first > 0 or len(apart) > 0
    compute = scratch
    if first == outline.blocks:
        compute = max(scratch, outline.logits_bytes(how.outputs))
    compute += how.outputs * 4 * outline.vocabulary
    spare = compute - scratch + (keys if how.lazy else 0)
    compute += _STATE_COPIES * outline.state_bytes(rung.slots)
    return [*parts, Part("CPU", model, first, weights, kv, compute, spare)]


def seats_bytes(outline: Outline, seen: int, *, flash: bool, last: bool) -> int:
    """A GPU's memory for the graphs of few rows; the `last` one computes the logits."""
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


class Amounts(msgspec.Struct, frozen=True):
    """Bytes by device that a plan comes to.

    Once it is loaded and has answered, when all cells are taken, and for a moment while they become
    that many.
    """

    loaded: dict[str, int]
    full: dict[str, int]
    peak: dict[str, int]

    @classmethod
    def of(cls, wish: Wish, plan: Plan) -> Amounts:
        """The memory that `plan` takes of the devices."""
        first = wish.first_parts(plan)
        loaded = taken(first)
        loaded["CPU"] -= sum(part.spare_bytes for part in first)
        return cls(
            loaded, taken([part for part in plan.parts if part.model != "growing"]), plan.taken()
        )
