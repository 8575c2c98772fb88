"""A context whose rows carry a vector beside their token: for heads that draft from states.

There are two kinds. An EAGLE-3 head makes one vector of the features that were tapped at a token
(llama_encode), then reads pairs of this vector and the next token. Prediction layers (MTP) read the
target's hidden state as it is. Each row leaves a vector, which is the input of the drafted row
after it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.config import Placement
from localspec.engine.llama.cores import performance_cores
from localspec.engine.llama.library import log, native, ours
from localspec.engine.llama.model import FLASH, Model, made
from localspec.engine.llama.threads import ThreadTuner
from localspec.errors import EngineError
from localspec.types import FedOutput, Floats, Row

_FLOATS = ctypes.POINTER(ctypes.c_float)
_SPARSE = frozenset(
    {"eagle3", "glm4moe", "qwen35", "qwen35moe", "deepseek2", "deepseek32", "glm-dsa", "cohere2moe",
     "hy_v3"}
)  # fmt: skip
"""Graphs that leave vectors of all rows, whichever want logits (llama.cpp, `src/models`)."""


class FedContext:
    """One llama_context of a head: a `FedBackend`. Used by the thread that made it.

    Args:
        model: The head's weights; for prediction layers inside of the target, the target.
        params: Of the native context.
        inputs: Numbers of a row's features; None if the features are used as they are.
    """

    def __init__(self, model: Model, params: Any, *, inputs: int | None) -> None:
        self._handle, self.buffers = made(model, params)
        ours.call("show_next", None, ctypes.c_void_p(self._handle))
        self._memory = native.llama_get_memory(self._handle)
        self.model = model
        self.n_vocab, self.width = model.n_vocab, model.width
        self.inputs = inputs or model.width
        self._fuses = inputs is not None
        self.n_slots, self.max_rows = int(params.n_seq_max), int(params.n_ubatch)
        self.context = int(params.n_ctx) // self.n_slots
        self._sparse = model.architecture in _SPARSE
        self._team: ThreadTuner | None = None
        self._batch = native.llama_batch_init(self.max_rows, 0, 1)
        self._features = native.llama_batch_init(self.max_rows, self.inputs, 1)

    @classmethod
    def open(  # noqa: PLR0913 - all that one context depends on
        cls,
        model: Model,
        placement: Placement,
        *,
        slots: int,
        context: int,
        rows: int = 64,
        streams: bool,
        inputs: int | None = None,
        predicts: bool = False,
        beside: Any = None,
    ) -> FedContext:
        """A context for `slots` sessions of `context` tokens each.

        Args:
            model: As above; outlives the context.
            placement: Threads and flash attention.
            slots: Concurrent sessions.
            context: Tokens of one session.
            rows: Most rows of a forward; as many as slots, if these are more.
            streams: A KV stream for each slot, so that no session changes another one's bits.
            inputs: As above.
            predicts: It runs the model's prediction layers, not the model.
            beside: A native context of the target, whose embeddings and output it shares.

        Raises:
            OutOfMemory: there is no memory for it.
            ModelError: the model cannot make such a context.
        """
        params = native.llama_context_default_params()
        params.n_ctx = slots * context
        params.n_batch = params.n_ubatch = params.n_outputs_max = max(rows, slots)
        params.n_seq_max = slots
        params.n_threads = params.n_threads_batch = placement.threads or performance_cores()
        params.flash_attn_type = FLASH[placement.flash_attention]
        params.kv_unified = not streams
        params.no_perf = True
        params.swa_full = True  # a windowed cache cannot forget what was drafted
        if predicts:
            params.ctx_type = native.LLAMA_CONTEXT_TYPE_MTP
        if beside is not None:
            params.ctx_other = beside
        return cls(model, params, inputs=inputs)

    def close(self) -> None:
        """Free the context and its KV cache."""
        if self._handle is not None:
            native.llama_batch_free(self._batch)
            native.llama_batch_free(self._features)
            native.llama_free(self._handle)
            self._handle = None

    def fuse(self, features: Floats) -> Floats:
        """The vectors (rows, width) that are made of these features (rows, inputs).

        Raises:
            EngineError: llama.cpp failed.
        """
        if not self._fuses:
            return features
        parts = [
            self._fused(features[start : start + self.max_rows])
            for start in range(0, len(features), self.max_rows)
        ]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _fused(self, features: Floats) -> Floats:
        given, batch, rows = (
            np.ascontiguousarray(features, np.float32),
            self._features,
            len(features),
        )
        ctypes.memmove(batch.embd, given.ctypes.data, given.nbytes)
        batch.n_tokens = rows
        # Positions have to go on where the memory ends, though none of it is used.
        first = int(native.llama_memory_seq_pos_max(self._memory, 0)) + 1
        for index in range(rows):
            batch.pos[index] = first + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, True
        if (code := native.llama_encode(self._handle, batch)) != 0:
            raise EngineError(f"llama_encode gave {code} for {rows} rows: {log.why()}.")
        return self._vectors(rows).copy()

    def _vectors(self, rows: int) -> Floats:
        pointer = ours.call("next", _FLOATS, ctypes.c_void_p(self._handle))
        if not pointer:
            raise EngineError("The head's forward left no vectors.")
        return np.ctypeslib.as_array(pointer, shape=(rows, self.width))

    def decode(self, rows: Sequence[Row], vectors: Floats) -> FedOutput:
        """One forward over pairs of a token and a vector (rows, width); valid until the next call.

        The rows of a slot are in order of their positions, which begin at 0 and have no gaps.

        Raises:
            EngineError: llama.cpp refused or failed; the slots of these rows must be truncated.
        """
        self._fill(rows)
        given = np.ascontiguousarray(vectors, np.float32)
        if given.shape != (len(rows), self.width):
            raise EngineError(f"{given.shape} vectors do not fit {len(rows)} rows.")
        batch = self._batch
        try:
            batch.embd = given.ctypes.data_as(_FLOATS)
            code = self._team.run(self, len(rows), self._decode) if self._team else self._decode()
        finally:
            batch.embd = None  # llama_batch_free would free it
        if code != 0:
            raise EngineError(f"llama_decode gave {code} for {len(rows)} rows: {log.why()}.")
        wanted = [index for index, row in enumerate(rows) if row.wants_logits]
        made = len(wanted) if self._sparse else len(rows)
        logits = np.empty((0, self.n_vocab), np.float32)
        if wanted:
            pointer = native.llama_get_logits(self._handle)
            if not pointer:
                raise EngineError("The head's forward left no logits.")
            logits = np.ctypeslib.as_array(pointer, shape=(made, self.n_vocab))
        left = self._vectors(len(rows))
        return FedOutput(logits if self._sparse or not wanted else logits[wanted], left)

    def _decode(self) -> int:
        return int(native.llama_decode(self._handle, self._batch))

    def use_threads(self, count: int) -> None:
        """Use so many threads on the CPU from the next forward on."""
        if count != self.threads:
            native.llama_set_n_threads(self._handle, count, count)

    @property
    def threads(self) -> int:
        """How many threads the next forward has on the CPU."""
        return int(native.llama_n_threads(self._handle))

    def join(self, team: ThreadTuner) -> None:
        """Let `team` decide how many threads each forward has, unless a device computes it."""
        self._team = team if self.model.on_cpu else None

    def _fill(self, rows: Sequence[Row]) -> None:
        """Check `rows` and write them into the batch."""
        if not 0 < len(rows) <= self.max_rows:
            raise EngineError(f"{len(rows)} rows do not fit a batch of {self.max_rows}.")
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, row in enumerate(rows):
            here = 0 <= row.slot < self.n_slots and 0 <= row.position < self.context
            if not (here and 0 <= row.token < self.n_vocab):
                raise EngineError(f"{row} has no such token, slot or position.")
            batch.token[index], batch.pos[index] = row.token, row.position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, row.slot
            batch.logits[index] = row.wants_logits or not self._sparse

    def truncate(self, slot: int, length: int) -> None:
        """Forget a slot's pairs from position `length` on. Raises EngineError."""
        if not native.llama_memory_seq_rm(self._memory, slot, length, -1):
            raise EngineError(f"The head's memory of slot {slot} cannot go back to {length}.")
