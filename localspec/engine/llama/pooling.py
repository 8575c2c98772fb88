"""A context that makes one vector of a whole text (llama.cpp's pooled embeddings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.config import Placement
from localspec.engine.llama.cores import performance_cores
from localspec.engine.llama.library import log, native
from localspec.engine.llama.model import FLASH, KV_TYPES, Model, made
from localspec.errors import EngineError
from localspec.types import Floats, Token


class Pooling:
    """One llama_context that remembers nothing: a text is one forward.

    Used by the thread that made it. The file says how the vectors of a text's tokens become one
    (their mean, the first's, the last's). A text has to be in one forward, because each token may
    look at every other.
    """

    def __init__(self, model: Model, params: Any) -> None:
        self._handle, self.buffers = made(model, params)
        self._memory = native.llama_get_memory(self._handle)
        self.model = model
        self.max_rows = int(params.n_ubatch)
        self.max_texts = int(params.n_seq_max)
        kind = native.llama_pooling_type(self._handle)
        self.ranks: bool = kind == native.LLAMA_POOLING_TYPE_RANK
        """Whether it gives scores, one for each class of the model, and no vector."""
        scores = native.llama_model_n_cls_out(model.handle)
        self.width: int = scores if self.ranks else native.llama_model_n_embd_out(model.handle)
        self._batch = native.llama_batch_init(self.max_rows, 0, 1)

    @classmethod
    def open(cls, model: Model, placement: Placement, *, texts: int, rows: int) -> Pooling:
        """A context for at most so many texts at once, of at most so many tokens together.

        Raises:
            OutOfMemory: there is no memory for it.
            ModelError: the model cannot make such a context.
        """
        params = native.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = rows
        params.n_seq_max = texts
        params.n_threads = params.n_threads_batch = placement.threads or performance_cores()
        params.flash_attn_type = FLASH[placement.flash_attention]
        params.type_k = params.type_v = KV_TYPES[placement.kv_type]
        params.embeddings = params.kv_unified = params.no_perf = True
        return cls(model, params)

    def close(self) -> None:
        """Free the context."""
        if self._handle is not None:
            native.llama_batch_free(self._batch)
            native.llama_free(self._handle)
            self._handle = None

    def embed(self, texts: Sequence[Sequence[Token]]) -> Floats:
        """A vector for each text (texts, width), as the model gives it, or its scores.

        Raises:
            EngineError: there is none or too much to embed, or llama.cpp failed.
        """
        self._fill(texts)
        if self._memory:  # an encoder may have none
            native.llama_memory_clear(self._memory, False)
        code: int = native.llama_decode(self._handle, self._batch)
        if code != 0:
            raise EngineError(f"llama_decode gave {code} for {len(texts)} texts: {log.why()}.")
        found = np.empty((len(texts), self.width), dtype=np.float32)
        for index in range(len(texts)):
            pointer = native.llama_get_embeddings_seq(self._handle, index)
            if not pointer:
                raise EngineError("llama_decode left no embedding.")
            found[index] = np.ctypeslib.as_array(pointer, shape=(self.width,))
        return found

    def _fill(self, texts: Sequence[Sequence[Token]]) -> None:
        """Write the texts into the batch, checked."""
        rows = sum(map(len, texts))
        if not (0 < rows <= self.max_rows and len(texts) <= self.max_texts and all(texts)):
            raise EngineError(f"{len(texts)} texts of {rows} tokens do not fit one forward.")
        batch, row = self._batch, 0
        batch.n_tokens = rows
        for index, text in enumerate(texts):
            for position, token in enumerate(text):
                if not 0 <= token < self.model.n_vocab:
                    raise EngineError(f"There is no token {token}.")
                batch.token[row], batch.pos[row] = token, position
                batch.n_seq_id[row], batch.logits[row] = 1, True
                batch.seq_id[row][0] = index
                row += 1
