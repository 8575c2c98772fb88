"""A draft head: it predicts the token after next by one linear map of the target's state.

Its inputs are the state from which a row's logits were computed, and the token that came of them.
Two matrices make an estimate of the next state from both, and the target's own output rows turn
that into logits. This costs as much as one layer without attention. The head can be given its own
prediction, for the token after that (Ankner et al., 2024, "Hydra: Sequentially-Dependent Draft
Heads for Medusa Decoding", of which this is the plainest one: linear, and the same map at every
depth). It knows a few thousand words of the vocabulary, since a row for each token would take
longer than all the rest.

Numbers only: `worker/heads.py` reads files, `worker/train_head.py` makes weights.
"""

from __future__ import annotations

import sys
from ctypes import c_int, c_int64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.cores import performance_cores
from localspec.engine.llama.products import FLOAT, FORMATS, INTEGER, Products, Stored, call
from localspec.engine.speculation.states import Prediction
from localspec.types import Floats, Token

_MOST_THREADS = 4
"""More threads would wait for each other as long as they compute: a head has few megabytes."""


def threads(*, beside_target: bool) -> int:
    """How many threads a head gets: one beside a target, whose threads take every core."""
    return 1 if beside_target else min(_MOST_THREADS, performance_cores())


class HeadMaps(NamedTuple):
    """The learned maps of a target with states of `width` numbers.

    `state` and `token` are matrices (width, width) in Q4_0, for the state and for the embedding of
    the token that came of it; `bias` float32 (width,) is added. `words` int32 (n,) are the tokens
    that can be predicted.
    """

    state: Stored
    token: Stored
    bias: Floats
    words: NDArray[np.int32]


class Head:
    """Computes on the CPU, by ggml itself. Used by one thread; lives as long as its target.

    Args:
        products: ggml's CPU library.
        maps: The learned maps.
        embedding: The target's token embeddings, which are used in place and not copied.
        output: Its output matrix, or the embeddings where it has none of its own. Read once.
    """

    sentence = "feature head"
    depth = sys.maxsize
    """It predicts from its own predictions any number of times."""

    def __init__(
        self, products: Products, maps: HeadMaps, embedding: Stored, output: Stored
    ) -> None:
        self._products, self._base = products, products.base
        self.words = maps.words
        self.width = embedding.width
        self._lent = embedding  # native code does not count references
        words = products.rows(output, maps.words)
        quantized = products.quantized(words, FORMATS["q4_0"])
        self._weights = [
            products.stored(matrix, products.fastest("q4_0", matrix.outputs))
            for matrix in (maps.state, maps.token, quantized)
        ]
        self._lay(maps.bias, embedding)

    def _lay(self, bias: Floats, embedding: Stored) -> None:
        """Build the graph once; only its inputs, a state and a token, change later."""
        products, base = self._products, self._base
        by_state, by_token, by_word = (each.tensor for each in self._weights)
        self._context = context = products.context()
        one = c_int64(self.width)
        state = call(base, "new_tensor_1d", context, c_int(FLOAT), one)
        added = call(base, "new_tensor_1d", context, c_int(FLOAT), one)
        token = call(base, "new_tensor_1d", context, c_int(INTEGER), c_int64(1))
        self._embedding = products.lent(embedding)
        came = call(base, "get_rows", context, self._embedding.tensor, token)
        next_state = call(base, "mul_mat", context, by_state, state)
        of_token = call(base, "mul_mat", context, by_token, came)
        next_state = call(base, "add", context, next_state, of_token)
        next_state = call(base, "add", context, next_state, added)
        said = call(base, "mul_mat", context, by_word, next_state)
        self._graph = call(base, "new_graph", context)
        call(base, "build_forward_expand", self._graph, said)
        self._buffer = products.allocate(context)
        products.write(added, np.ascontiguousarray(bias, np.float32))
        self._given = products.view(state, self.width), products.view(token, 1, np.int32)
        self._found = products.view(said, len(self.words)), products.view(next_state, self.width)

    def predict(self, state: Floats, token: Token) -> Prediction:
        """The token predicted after `token`, which came of `state` float32 (width,)."""
        before, came = self._given
        before[:], came[0] = state, token
        self._products.compute(self._graph)
        logits, next_state = self._found
        best = int(logits.argmax())
        total = float(np.exp(logits - logits[best]).sum())
        return Prediction(int(self.words[best]), 1 / total, next_state.copy())

    def close(self) -> None:
        """Free all of it."""
        for weights in (*self._weights, self._embedding):
            self._products.free(weights)
        call(self._base, "backend_buffer_free", self._buffer)
        call(self._base, "free", self._context)
