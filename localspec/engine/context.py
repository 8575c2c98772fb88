"""A context: what one model holds of its sessions, and the forward that reads on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.config import Placement
from localspec.engine.llama import log, native, physical_cores
from localspec.engine.model import Model
from localspec.errors import EngineError, ModelError, RollbackUnsupported
from localspec.types import Floats, Row

_KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type
_FLASH = {"auto": -1, "off": 0, "on": 1}  # llama_flash_attn_type


class Context:
    """One llama_context with its KV cache: a `Backend`. Used by the thread that made it.

    In strict use (`streams=True`) every slot has its own KV stream, so that no other session can
    move its cells; otherwise all slots share one, and any mixture of rows is one forward.
    """

    def __init__(self, handle: object, model: Model, slots: int, context: int, rows: int) -> None:
        self._handle = handle
        self._memory = native.llama_get_memory(handle)
        self._batch = native.llama_batch_init(rows, 0, 1)
        self.model = model
        self.buffers = log.take_buffers()
        self.n_vocab = model.n_vocab
        self.n_slots = slots
        self.context = context
        self.max_rows = rows

    @classmethod
    def open(  # noqa: PLR0913 — llama_context_params has sixty
        cls,
        model: Model,
        placement: Placement = Placement(),  # noqa: B008 — frozen value
        *,
        slots: int,
        context: int,
        rows: int,
        streams: bool = False,
    ) -> Context:
        """A context with room for `slots` sessions of `context` tokens each.

        Args:
            model: Its weights; must outlive the context.
            placement: Threads, flash attention, KV type.
            slots: Concurrent sessions.
            context: Tokens of one session.
            rows: Most rows of one `decode`.
            streams: One KV stream for each slot, for strict exactness.

        Raises:
            ModelError: no memory, or the model cannot make such a context.
        """
        params = native.llama_context_default_params()
        params.n_ctx = context * slots
        params.n_batch = params.n_ubatch = rows
        params.n_seq_max = slots
        params.n_threads = params.n_threads_batch = placement.threads or physical_cores()
        params.flash_attn_type = _FLASH[placement.flash_attention]
        params.type_k = params.type_v = _KV_TYPES[placement.kv_type]
        params.kv_unified = not streams
        params.no_perf = True
        params.swa_full = True  # a windowed cache cannot forget a rejected draft
        log.take_buffers()
        handle = native.llama_init_from_model(model.handle, params)
        if not handle:
            raise ModelError(
                f"No context of {slots} x {context} tokens could be made: {log.why()}.",
                fix="Lower engine.context or engine.slots in config.toml.",
            )
        return cls(handle, model, slots, context, rows)

    def close(self) -> None:
        """Free the context and its KV cache."""
        if self._handle is not None:
            native.llama_batch_free(self._batch)
            native.llama_free(self._handle)
            self._handle = None

    def decode(self, rows: Sequence[Row]) -> Floats:
        """One forward over all rows (llama_decode).

        Args:
            rows: At most `max_rows`; the rows of one slot in order of position.

        Returns:
            Logits (rows that want them, n_vocab): a view of llama.cpp's own buffer, overwritten by
            the next call.

        Raises:
            EngineError: llama.cpp refused or failed; the slots of these rows must be truncated.
        """
        wanted = self._fill(rows)
        code: int = native.llama_decode(self._handle, self._batch)
        if code != 0:
            raise EngineError(f"llama_decode gave {code} for {len(rows)} rows: {log.why()}.")
        if wanted == 0:
            native.llama_synchronize(self._handle)  # a device may still be at it
            return np.empty((0, self.n_vocab), dtype=np.float32)
        pointer = native.llama_get_logits(self._handle)
        if not pointer:
            raise EngineError("llama_decode left no logits.")
        return np.ctypeslib.as_array(pointer, shape=(wanted, self.n_vocab))

    def _fill(self, rows: Sequence[Row]) -> int:
        """Write `rows` into the batch, checked; how many of them want logits."""
        if not 0 < len(rows) <= self.max_rows:
            raise EngineError(f"{len(rows)} rows do not fit a batch of {self.max_rows}.")
        batch, wanted = self._batch, 0
        batch.n_tokens = len(rows)
        token, pos, n_seq_id, seq_id, logits = (
            batch.token,
            batch.pos,
            batch.n_seq_id,
            batch.seq_id,
            batch.logits,
        )
        for index, row in enumerate(rows):
            if not (0 <= row.token < self.n_vocab and 0 <= row.slot < self.n_slots):
                raise EngineError(f"{row} has no such token or slot.")
            token[index] = row.token
            pos[index] = row.position
            n_seq_id[index] = 1
            seq_id[index][0] = row.slot
            logits[index] = row.wants_logits
            wanted += row.wants_logits
        return wanted

    def truncate(self, slot: int, length: int) -> None:
        """Forget a slot's cells from position `length` on (llama_memory_seq_rm).

        Raises:
            RollbackUnsupported: this memory cannot forget a part.
        """
        if not native.llama_memory_seq_rm(self._memory, slot, length, -1):
            raise RollbackUnsupported(f"The memory of slot {slot} cannot go back to {length}.")

    def length(self, slot: int) -> int:
        """Number of positions that the slot's memory holds."""
        return int(native.llama_memory_seq_pos_max(self._memory, slot)) + 1

    def can_roll_back(self) -> bool:
        """Whether rejected tokens can be forgotten: decode two rows, forget one, look.

        Recurrent and hybrid memories answer no. Leaves slot 0 empty.
        """
        self.decode([Row(0, 0, 0), Row(0, 1, 0, wants_logits=True)])
        try:
            self.truncate(0, 1)
            able = self.length(0) == 1
        except RollbackUnsupported:
            able = False
        native.llama_memory_clear(self._memory, True)
        return able
