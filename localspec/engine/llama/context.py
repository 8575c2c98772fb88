"""A context: one model's memory of its sessions, and the forward that extends it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from localspec.config import Placement
from localspec.engine.images import ImageRows
from localspec.engine.kv.cells import KEPT_CELLS, Cells
from localspec.engine.kv.places import SlotPositions
from localspec.engine.kv.rollback import Checkpoints, Rollback, Snapshots
from localspec.engine.llama.batch import fill
from localspec.engine.llama.copies import Copies
from localspec.engine.llama.cores import performance_cores
from localspec.engine.llama.images import seen
from localspec.engine.llama.kernels import UNLISTED_LOGIT
from localspec.engine.llama.library import log, native, ours
from localspec.engine.llama.model import FLASH, KV_TYPES, Model, made
from localspec.engine.llama.shortlist import Shortlist
from localspec.engine.llama.slot_memory import SlotMemory
from localspec.engine.llama.threads import ThreadTuner
from localspec.engine.llama.vectors import Taps, VectorContext, Vectors
from localspec.errors import EngineError, ModelError, NoRoom, OutOfMemory
from localspec.types import ForwardOutput, Row


class Context(SlotMemory, VectorContext):
    """One llama_context with its KV cache: a `Backend`. Used by the thread that made it.

    In strict use (`streams=True`) every slot has its own KV stream, so that no other session can
    move its cells; otherwise all slots share one, and any mixture of rows is one forward.

    There may be KV for fewer tokens than it may hold. Where cells take memory only when they are
    used (`lazy`), all of them exist, and it counts how many may be used. Elsewhere a decode that
    finds no room makes the cache larger and copies the sequences over. Before it grows beyond
    `KEPT_CELLS`, and where it cannot grow enough, `on_full` is asked to forget something (with
    `truncate`); it returns whether it did. `rollback` is how its memory goes back, as the model has
    it; `find_rollback` tries it. On a device a forward goes on after llama_decode has returned:
    there it is `Waiting`.
    """

    def __init__(  # noqa: PLR0913 - made by `open`
        self,
        model: Model,
        params: Any,
        cells: Cells,
        context: int,
        *,
        lazy: bool,
        adapts: bool = False,
    ) -> None:
        self._params = params
        self._cells = cells
        self._lazy = lazy
        self._context = context
        self.model = model
        self.n_vocab = model.n_vocab
        self.n_slots = len(cells.held)
        self.max_rows = int(params.n_ubatch)
        self.rollback: Rollback = "restore" if model.has_state else "trim"
        self._checkpoints = Checkpoints()
        self._snapshots = Snapshots()
        self._places = SlotPositions()
        self._forks = {}
        self._copies = Copies(lambda: self._handle, model)
        self._team: ThreadTuner | None = None
        self._words: Shortlist | None = None
        self.on_full: Callable[[], bool] = lambda: False
        self._vectors = Vectors(model)
        self._scales = (1.0,) * len(model.adapters) if adapts else ()
        self.waits = not model.on_cpu
        self.meanwhile: Callable[[], None] = lambda: None
        self._make()
        self._batch = native.llama_batch_init(self.max_rows, 0, 1)

    @classmethod
    def open(  # noqa: PLR0913 — llama_context_params has sixty
        cls,
        model: Model,
        placement: Placement = Placement(),  # noqa: B008 — frozen value
        *,
        slots: int,
        context: int,
        rows: int,
        outputs: int | None = None,
        streams: bool = False,
        cells: int | None = None,
        most_cells: int | None = None,
        lazy: bool = False,
        snapshots: int = 0,
        adapts: bool = False,
    ) -> Context:
        """A context for `slots` sessions of at most `context` tokens each.

        Args:
            model: Its weights; must outlive the context.
            placement: Threads, flash attention, KV type.
            slots: Concurrent sessions.
            context: Tokens of one session.
            rows: Most rows of one `decode`.
            outputs: Most of these that want logits; by default all. llama.cpp keeps scratch memory
                for their logits.
            streams: One KV stream for each slot, for strict exactness.
            cells: Tokens of all slots together that there is KV for at first; by default for all.
            most_cells: Tokens of all slots together that there may be KV for; by default as many.
            lazy: Cells take memory only when they are used; `KernelInfo.cells` says it of those on
                the host. Needs flash attention: without it a row of values spans all cells.
            snapshots: States that a forward leaves of each slot besides the last one, where the
                memory is a state and llama.cpp knows how; less than `rows` - 1.
            adapts: Forwards have the model's LoRA adapters, at first each with a scale of 1.

        Raises:
            OutOfMemory: there is no memory for it.
            ModelError: the model cannot make such a context.
        """
        now = cells or context * slots
        params = native.llama_context_default_params()
        params.n_batch = params.n_ubatch = rows
        params.n_seq_max = slots
        params.n_outputs_max = max(slots, min(outputs or rows, rows))
        params.n_threads = params.n_threads_batch = placement.threads or performance_cores()
        params.flash_attn_type = FLASH[placement.flash_attention]
        params.type_k = params.type_v = KV_TYPES[placement.kv_type]
        params.kv_unified = not streams
        params.no_perf = True
        params.swa_full = True  # a windowed cache cannot forget a rejected draft
        params.n_rs_seq = snapshots
        there = Cells(slots, now, most_cells or now, streams=streams)
        return cls(model, params, there, context, lazy=lazy, adapts=adapts)

    def _make(self) -> None:
        """The native context, with as many cells as `_cells` says. Raises ModelError."""
        cells = self._cells
        self._params.n_ctx = cells.most if self._lazy else cells.now
        try:
            self._handle, buffers = made(self.model, self._params)
        except OutOfMemory:
            if not self._lazy:
                raise
            self._lazy = False  # there may be no addresses for all cells
            self._make()
            return
        used = cells.now / self._params.n_ctx
        self.buffers = [
            replace(each, bytes=int(each.bytes * (used if each.what == "KV" else 1)))
            for each in buffers
        ]
        self._memory = native.llama_get_memory(self._handle)
        # The gain of trees on a device has not been measured.
        able = self.model.on_cpu and not self.streams and ours.trees
        memory = ctypes.c_void_p(self._memory)
        self.trees = able and bool(ours.call("trees", ctypes.c_bool, memory))
        self._snapshots = Snapshots(native.llama_n_rs_seq(self._handle))
        self._vectors.begin(self._handle)
        self._adapt()

    @property
    def adapters(self) -> int:
        """How many LoRA adapters its forwards may have."""
        return len(self._scales)

    def adapt(self, scales: Sequence[float]) -> None:
        """Give the adapters these scales from the next forward on; those left out get 0."""
        scales = (*scales, *(0.0,) * len(self._scales))[: len(self._scales)]
        if scales != self._scales:
            self._scales = scales
            self._adapt()

    def _adapt(self) -> None:
        count = len(self._scales)
        if count:
            handles = (native.llama_adapter_lora_p_ctypes * count)(*self.model.adapters)
            scales = (ctypes.c_float * count)(*self._scales)
            native.llama_set_adapters_lora(self._handle, handles, count, scales)

    def close(self) -> None:
        """Free the context and its KV cache."""
        if self._handle is not None:
            native.llama_batch_free(self._batch)
            native.llama_free(self._handle)
            self._handle = None

    @property
    def context(self) -> int:
        """Tokens that one session may have; fewer once memory has turned out to be short."""
        return min(self._context, self._cells.longest)

    @property
    def shared_cells(self) -> int | None:
        """Tokens that all slots together may hold; None where each has its own stream."""
        return None if self._cells.streams else self._cells.most

    @property
    def streams(self) -> bool:
        """Whether each slot has a KV stream of its own."""
        return self._cells.streams

    @property
    def held(self) -> Sequence[int]:
        """Tokens of each slot."""
        return self._cells.held

    @property
    def kv_cells(self) -> int:
        """Tokens of all slots together for which there is KV now."""
        return self._cells.now

    def has_room(self, rows: Sequence[Row]) -> bool:
        """Whether there are cells for these rows, so that a decode makes no room."""
        return self._cells.needed(rows) <= self._cells.now

    def foresee(self, slot: int, tokens: int) -> None:
        """Note that the slot is going to hold so many tokens: a smaller cache then grows once."""
        self._cells.foreseen[slot] = tokens

    def _make_room(self, rows: Sequence[Row]) -> None:
        """Make cells for these rows: grow, then forget idle texts. Raises NoRoom."""
        cells = self._cells
        if cells.now < (foreseen := cells.grown(cells.wanted(rows))) <= KEPT_CELLS:
            self._grow(foreseen)  # once, while there is little to take over
        while (needed := cells.needed(rows)) > cells.now:
            enough, larger = cells.grown(needed), cells.grown(max(needed, cells.wanted(rows)))
            kept = larger <= KEPT_CELLS and needed <= larger
            if not kept and self.on_full():
                continue
            if needed > larger or not (self._grow(larger) or self._grow(enough)):
                raise NoRoom(
                    f"{needed} tokens of KV are needed, and there is memory for {cells.now}.",
                    fix="Shorten the text, or lower engine.slots in config.toml.",
                )

    def _grow(self, size: int) -> bool:
        """Grow to `size` cells, and keep what is held; False, with as many as now, without memory.

        Lazy cells are there already. Otherwise all sessions wait while cells are made and cleared,
        and what is held is copied out and in.
        """
        cells, before = self._cells, self._cells.now
        if not before < size <= cells.most:
            return False
        if self._lazy:
            cells.now = size
            return True
        try:
            saved = {
                slot: self._copies.saved(slot) for slot, length in enumerate(cells.held) if length
            }
        except MemoryError:  # there is no memory even for the copies
            cells.fail(size)
            return False
        native.llama_free(self._handle)
        self._handle, cells.now = None, size
        try:
            self._make()
        except ModelError:
            cells.now = before
            cells.fail(size)
            self._make()
        for slot, state in saved.items():
            self._copies.load(slot, state)
        return cells.now == size

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """One forward over all rows (llama_decode).

        Args:
            rows: At most `max_rows`; each one after the row that it follows.

        Returns:
            Views of llama.cpp's own buffers, overwritten by the next call (`Vectors`).

        Raises:
            NoRoom: there are no cells for them and none can be made; nothing was changed.
            EngineError: llama.cpp refused or failed; the slots of these rows must be truncated.
        """
        wanted = self._fill(self._places.placed(rows))
        self._make_room(rows)
        self._shape(rows)
        self._vectors.prepare(len(rows), wanted)
        if self._words is not None:
            self._words.read(row.token for row in rows)
        code = self._team.run(self, len(rows), self._decode) if self._team else self._decode()
        if code != 0:
            raise EngineError(f"llama_decode gave {code} for {len(rows)} rows: {log.why()}.")
        self._cells.take(rows)
        self._snapshots.left_by(rows)
        if self.waits:
            self.meanwhile()
        if wanted == 0:
            native.llama_synchronize(self._handle)  # a device may still be computing
            return self._vectors.output(np.empty((0, self.n_vocab), dtype=np.float32))
        pointer = native.llama_get_logits(self._handle)
        if not pointer:
            raise EngineError("llama_decode left no logits.")
        return self._vectors.output(np.ctypeslib.as_array(pointer, (wanted, self.n_vocab)))

    def see(self, slot: int, image: ImageRows, rows: range) -> None:
        """One forward over rows of an image; the slot has read the text up to the first of them.

        Raises:
            NoRoom: there are no cells for them and none can be made; nothing was changed.
            EngineError: llama.cpp refused or failed; the slot must be truncated.
        """
        places = [Row(0, image.start + row, slot) for row in rows]
        given = np.ascontiguousarray(image.vectors[rows.start : rows.stop], np.float32)
        if given.shape != (len(places), self.model.input_width):
            raise EngineError(f"{given.shape} vectors are not rows of this model.")
        self._fill(self._places.placed(places))
        self._make_room(places)
        self._shape(places)
        self._vectors.hide()
        first = self._places.of(slot, image.start)
        code = seen(self._handle, self._batch, given, image, rows, first)
        if code != 0:
            raise EngineError(f"llama_decode gave {code} for {len(places)} rows: {log.why()}.")
        self._cells.take(places)
        self._snapshots.lose(slot)
        if more := image.gap(rows):
            self._places.saw(slot, (image.start + rows.stop, more))

    def decode_early(self, rows: Sequence[Row], layers: int) -> ForwardOutput:
        """As `decode`, by the first `layers` layers; the other layers do not hold these rows.

        Its time says nothing about whole forwards, so the tuner of threads does not see it.
        """
        handle, without = ctypes.c_void_p(self._handle), self.model.n_layer - layers
        team, self._team = self._team, None
        ours.call("leave_early", None, handle, ctypes.c_uint32(without))
        try:
            return self.decode(rows)
        finally:
            ours.call("leave_early", None, ctypes.c_void_p(self._handle), ctypes.c_uint32(0))
            self._team = team

    def _decode(self) -> int:
        if self._words is None or self._words.misses:
            return int(native.llama_decode(self._handle, self._batch))
        with ours.listing(self.n_vocab, self._words.runs):
            return int(native.llama_decode(self._handle, self._batch))

    def narrow(self, words: Shortlist) -> bool:
        """Compute only the logits of these words from now on. Returns whether that works here.

        For a draft model. The list learns from all tokens that it reads; while too many of them are
        new, all logits are computed. It does not work where our kernels do not compute the output
        rows. Leaves slot 0 empty.
        """
        self._words = words
        self.truncate(0, 0)
        told = self.decode([Row(0, 0, 0, wants_logits=True)]).logits[0]
        if words.unlisted is None or told[words.unlisted] != UNLISTED_LOGIT:
            self._words = None
        self.truncate(0, 0)
        return self._words is not None

    def tap(self, taps: Taps) -> bool:
        """Begin to leave features. Returns whether the model has them. Empties slot 0."""
        if self._vectors.tap(taps):
            self.truncate(0, 0)
            self.decode([Row(0, 0, 0, wants_logits=True)])
            self.truncate(0, 0)
        return self._vectors.settle()

    def use_threads(self, count: int) -> None:
        """Use so many threads on the CPU from the next forward on."""
        if count != self._params.n_threads:
            self._params.n_threads = self._params.n_threads_batch = count
            native.llama_set_n_threads(self._handle, count, count)

    @property
    def threads(self) -> int:
        """How many threads the next forward has on the CPU."""
        return int(native.llama_n_threads(self._handle))

    def join(self, team: ThreadTuner) -> None:
        """Let `team` decide how many threads each forward has, unless a device computes it."""
        self._team = None if self.waits else team

    def _fill(self, rows: Sequence[Row]) -> int:
        """Check `rows` and write them into the batch; returns how many of them want logits."""
        if not 0 < len(rows) <= self.max_rows:
            raise EngineError(f"{len(rows)} rows do not fit a batch of {self.max_rows}.")
        most = self._params.n_outputs_max
        if sum(row.wants_logits for row in rows) > most:
            raise EngineError(f"More than {most} of {len(rows)} rows want logits.")
        return fill(self._batch, rows, tokens=self.n_vocab, slots=self.n_slots)

    def arrange(
        self, *, streams: bool, context: int, cells: int, most_cells: int, snapshots: int = 0
    ) -> None:
        """Change the layout: a KV stream for each slot, or one for all.

        Every slot is empty before and afterwards; the amounts are as for `open`. Raises OutOfMemory
        or ModelError where there is no memory for it, and then changes nothing.
        """
        before, left = (self._cells, self._context, self._lazy), self._params.n_rs_seq
        self._cells = Cells(self.n_slots, cells, most_cells, streams=streams)
        self._context, self._params.kv_unified = context, not streams
        self._params.n_rs_seq = snapshots
        native.llama_free(self._handle)
        self._handle = None
        try:
            self._make()
        except ModelError:
            self._cells, self._context, self._lazy = before
            self._params.kv_unified, self._params.n_rs_seq = not self.streams, left
            self._make()
            raise

    def leave_snapshots(self, count: int) -> None:
        """Let forwards leave so many states (snapshots) of each slot, where llama.cpp knows how.

        Every slot is empty before and afterwards. Raises ModelError where there is no memory.
        """
        native.llama_free(self._handle)
        self._handle, self._params.n_rs_seq = None, count
        self._make()
