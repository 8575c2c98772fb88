"""Plans: which part of each model is loaded on which device, and the memory it takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.catalog import head_memory, parts
from localspec.catalog.devices import Own
from localspec.catalog.head_memory import FedOutline
from localspec.catalog.memory import Outline, rounded
from localspec.catalog.parts import How, Layout, Part, larger, taken
from localspec.config import Config, Placement

FLOOR_CELLS = 8192
"""Cells for all sessions together that come before layers on a GPU: layers leave the GPU to make
room for them. A context also begins with this many cells."""

LEAST_ROWS = 32
"""Least rows of a forward: the engine needs as many to measure costs."""

DRAFT_ROWS = 256
"""Rows of one forward of the draft: it reads at most this many rows of one text at a time."""

PROCESS_BYTES = 72 << 20
"""Memory of a worker besides its models: Python, llama.cpp and their libraries."""

PICTURE_BYTES = 192 << 20
"""Memory of the largest picture while it is decoded. The scratch memory of a projector depends on
the picture and is in no header, so it is assumed to equal the projector's weights."""

_TOKEN_BYTES, _DRAFT_TOKEN_BYTES = 960, 320
"""Bytes kept for each token of a vocabulary: 320 for llama.cpp's tables; for the target another 640
for prompts and grammars."""

EMBEDDED_TEXTS, EMBEDDED_ROWS = 32, 2048
"""Texts in one forward of an embedding model, and its tokens unless `engine.context` asks for more.
The longest text may have as many tokens."""

_JUDGED_ROWS = 32
"""Rows of one session with logits in one forward, unless it drafts more."""

MOST_SNAPSHOTS = 8
"""States that a forward leaves of each session besides the last one, where memory allows it. Drafts
of models are hardly ever longer; after a longer one a copy of the state is restored."""


class Plan(msgspec.Struct, frozen=True):
    """A plan: the place of each part, and all sizes.

    `rows` are the most rows of one forward of the target, and `outputs` the most of them with
    logits. `cells` are the tokens that all sessions together may hold, `start_cells` those that
    have KV at first, `context` the most tokens of one session. `snapshots` are the states that a
    forward leaves of each session besides the last one. `head` is the place of the head that the
    target feeds. `parts` count the memory when all `cells` are in use. `fits` is False for a last
    attempt that exceeds the free memory.
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
    head: Layout | None = None

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
        head = f"; head {self.head.sentence('all')}" if self.head else ""
        return f"target {target}; {draft}{head}; {held}"


class PlanCandidate(NamedTuple):
    """The choices of a plan: slots, the least number of cells (`floor`), a draft and a head or not.

    `snapshots` are those of `Plan`.
    """

    slots: int
    floor: int
    draft: bool
    snapshots: int = 0
    head: bool = False

    @property
    def states(self) -> int:
        """States of a recurrent layer, for all slots together."""
        return self.slots * (1 + self.snapshots)

    @property
    def start_cells(self) -> int:
        """Cells that a context begins with if it may hold `floor` cells."""
        return min(self.floor, FLOOR_CELLS)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan: configuration, files and build.

    `draft` and `head` may be None. A projector is planned on the target's first device.
    """

    config: Config
    target: Outline
    draft: Outline | None = None
    own: Own = field(default_factory=Own)
    head: FedOutline | None = None
    projector_bytes: int = 0

    @classmethod
    def of(
        cls,
        config: Config,
        outlines: Sequence[Outline],
        own: Own = Own(),  # noqa: B008 - frozen value
        head: FedOutline | None = None,
    ) -> PlanRequest:
        """The request for a target and perhaps its draft and head.

        Both are dropped if the target generates no text.
        """
        target = outlines[0]
        if target.embeds:
            return cls(config, target, None, own)
        return cls(config, target, outlines[1] if len(outlines) > 1 else None, own, head)

    def seeing(self, projector: str | Path | None) -> PlanRequest:
        """The request with a projector of images, if there is such a file."""
        file = Path(projector) if projector else None
        return replace(self, projector_bytes=file.stat().st_size if file and file.exists() else 0)

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
        """The states that a forward should leave besides the last one, where memory allows it."""
        able = self.target.snaps and any(self.target.state_values) and not self.target.embeds
        return min(MOST_SNAPSHOTS, self.config.speculation.max_draft) if able else 0

    @property
    def context(self) -> int:
        """Tokens of the longest session wanted."""
        trained = self.target.context_length or FLOOR_CELLS
        usual = EMBEDDED_ROWS if self.target.embeds else trained
        return min(self.config.engine.context or usual, trained)

    def most_cells(self, slots: int) -> int:
        """The most cells that can be used: a whole context for each session."""
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

    def plan(
        self, candidate: PlanCandidate, target: Layout, draft: Layout | None, cells: int
    ) -> Plan:
        """The plan with `cells` cells of KV."""
        shared = cells // candidate.slots if self.strict else cells
        return Plan(
            slots=candidate.slots,
            context=min(self.context, shared),
            rows=self.rows(candidate.slots),
            outputs=self.outputs(candidate.slots),
            cells=cells,
            start_cells=self._start(candidate, cells),
            target=target.without_idle(),
            draft=None if draft is None else draft.without_idle(),
            parts=self.parts(candidate, target, draft, cells),
            embeds=self.target.embeds,
            snapshots=candidate.snapshots,
            head=self._home(target) if candidate.head and self.head else None,
        )

    def parts(
        self, candidate: PlanCandidate, target: Layout, draft: Layout | None, cells: int
    ) -> list[Part]:
        """Each device's share of each model, and the worker's own memory on the host."""
        both = [
            *self.target_parts(candidate, target, cells),
            *self.draft_parts(candidate, draft, cells),
        ]
        both += self.head_parts(candidate, target)
        known = self.target.vocabulary
        tables = known * (_DRAFT_TOKEN_BYTES if self.target.embeds else _TOKEN_BYTES)
        if draft is not None and self.draft is not None:
            tables += self.draft.vocabulary * _DRAFT_TOKEN_BYTES
        if candidate.head and self.head and self.head.apart:
            tables += self.head.model.vocabulary * _DRAFT_TOKEN_BYTES
        both.append(Part("CPU", "process", 0, 0, 0, PROCESS_BYTES + tables))
        if size := self.projector_bytes:
            device = target.devices[0] if target.devices else "CPU"
            both.append(Part(device, "images", 0, size, 0, size))
            both.append(Part("CPU", "images", 0, 0, 0, PICTURE_BYTES, PICTURE_BYTES))
        if copied := self._copied(candidate, target, draft, cells):
            both.append(Part("CPU", "growing", 0, 0, 0, copied))
        return both

    def _start(self, candidate: PlanCandidate, cells: int) -> int:
        """Cells with KV at first."""
        return cells if self.target.embeds else min(cells, candidate.start_cells)

    def _copied(
        self, candidate: PlanCandidate, target: Layout, draft: Layout | None, cells: int
    ) -> int:
        """Bytes of the copy made while a context grows: half of its KV at the last doubling.

        Models grow one at a time. 0 if all cells are allocated at the start.
        """
        engine, copies = self.config.engine, [0]
        if cells == self._start(candidate, cells):
            return 0
        if not self._lazy(target, engine.target):
            states = self.target.state_bytes(candidate.slots)
            copies.append(self.target.kv_bytes(cells, engine.target.kv_type) // 2 + states)
        if self.draft and draft and not self._lazy(draft, self._stepping(draft)):
            states = self.draft.state_bytes(candidate.slots)
            copies.append(self.draft.kv_bytes(cells, engine.draft.kv_type) // 2 + states)
        return max(copies)

    def _lazy(self, layout: Layout, how: Placement) -> bool:
        return self.own.lazy(how, on_cpu=layout.gpu_layers == 0)

    def _stepping(self, layout: Layout) -> Placement:
        return self.own.stepping(self.config.engine.draft, on_cpu=layout.gpu_layers == 0)

    def at_first(self, plan: Plan) -> dict[str, int]:
        """Bytes by device, reserves included, while the contexts have only their first cells."""
        return taken(self.first_parts(plan))

    def first_parts(self, plan: Plan) -> list[Part]:
        """Each device's share while the contexts have only their first cells."""
        has_draft, has_head = plan.draft is not None, plan.head is not None
        candidate = PlanCandidate(plan.slots, plan.start_cells, has_draft, plan.snapshots, has_head)
        return self.parts(candidate, plan.target, plan.draft, plan.start_cells)

    def target_parts(self, candidate: PlanCandidate, layout: Layout, cells: int) -> list[Part]:
        """The target's memory by device."""
        placement = self.config.engine.target
        seen = rounded(cells // candidate.slots) if self.strict else cells
        how = How(
            kv_type=placement.kv_type,
            flash=placement.flash_attention != "off",
            cells=cells,
            seen=seen,
            rows=self.rows(candidate.slots),
            outputs=self.outputs(candidate.slots),
            slots=candidate.slots,
            states=candidate.states,
            locked=placement.mlock,
            lazy=self._lazy(layout, placement),
        )
        return parts.parts("target", self.target, layout, how)

    def draft_parts(
        self, candidate: PlanCandidate, layout: Layout | None, cells: int
    ) -> list[Part]:
        """The draft's memory by device; [] without one."""
        if layout is None or self.draft is None:
            return []
        placement = self._stepping(layout)
        flash = placement.flash_attention != "off"
        alone = self.strict or not flash
        seen = rounded(cells // candidate.slots) if alone else cells
        rows = min(DRAFT_ROWS, self.rows(candidate.slots))
        how = How(
            kv_type=placement.kv_type,
            flash=flash,
            cells=cells,
            seen=seen,
            rows=rows,
            outputs=min(rows, self.outputs(candidate.slots)),
            slots=candidate.slots,
            states=candidate.slots,
            locked=placement.mlock,
            lazy=self._lazy(layout, placement),
        )
        return parts.parts("draft", self.draft, layout, how)

    def _home(self, target: Layout) -> Layout:
        """The place of the head: the target's last device, where its output is."""
        blocks = self.head.model.blocks if self.head else 0
        last = [pair for pair in zip(target.devices, target.shares, strict=True) if pair[1]][-1:]
        return Layout(tuple(name for name, _ in last), (blocks,) * len(last))

    def head_parts(self, candidate: PlanCandidate, target: Layout) -> list[Part]:
        """The head's memory by device, for this layout of the target; [] without a head."""
        if not candidate.head or self.head is None:
            return []
        placement, layout, own = self.config.engine.target, self._home(target), self.head
        seen = rounded(min(head_memory.CELLS, self.context))
        rows = max(head_memory.ROWS, candidate.slots)
        how = How(
            kv_type="f16",
            flash=placement.flash_attention != "off",
            cells=candidate.slots * seen,
            seen=seen,
            rows=rows,
            outputs=rows,
            slots=candidate.slots,
            states=candidate.slots,
            locked=placement.mlock,
            lazy=self._lazy(layout, placement),
        )
        *devices, host = parts.parts("head", own.model, layout, how)
        found = [*devices, larger(host, compute=4 * own.inputs * self.rows(candidate.slots))]
        if own.beside:
            keys = self.target.kv_bytes(head_memory.ANCHOR_CELLS, placement.kv_type)
            keys += self.target.state_bytes(1)
            logits = self.target.logits_bytes(head_memory.ANCHOR_ROWS)
            found[0] = larger(found[0], kv=keys, compute=logits)
        return found


class Amounts(msgspec.Struct, frozen=True):
    """A plan's bytes by device: after the first answer, with all cells used, and while growing."""

    loaded: dict[str, int]
    full: dict[str, int]
    peak: dict[str, int]

    @classmethod
    def of(cls, request: PlanRequest, plan: Plan) -> Amounts:
        """The memory that `plan` takes on the devices."""
        first = request.first_parts(plan)
        loaded = taken(first)
        loaded["CPU"] -= sum(part.spare_bytes for part in first)
        return cls(
            loaded, taken([part for part in plan.parts if part.model != "growing"]), plan.taken()
        )
