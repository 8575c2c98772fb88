"""Draft heads for one position each: Medusa's, and Hydra's, which also read the tokens between.

A head has some residual blocks, x + silu(W x + b), and output rows of its own. The head of position
i, counted from 0, predicts the token i + 1 places after the one that came of the state. Medusa's
heads (Cai et al., 2024) all read the target's state alone. Hydra's (Ankner et al., 2024) read the
state and the i + 1 tokens since, so a later head knows what the earlier ones predicted.

Numbers only, as in `head.py`: `worker/heads.py` reads files, `worker/convert_head.py` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_int64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.products import FLOAT, FORMATS, INTEGER, Products, Stored, Weights, call
from localspec.engine.speculation.states import Prediction
from localspec.types import Floats, Token

MOST_POSITIONS = 16
"""Published heads have three to five, and no token this far ahead is ever accepted."""


class Linear(NamedTuple):
    """A linear map: a matrix, and what is added to its outputs, or None."""

    weight: Stored
    bias: Floats | None = None


class Block(NamedTuple):
    """A residual block. Where it has fewer outputs than inputs, its residual is a linear map."""

    inner: Linear
    residual: Linear | None = None


class Position(NamedTuple):
    """The head of one position."""

    blocks: Sequence[Block]
    output: Linear

    @property
    def reads_tokens(self) -> bool:
        """Whether it is given the tokens since the state, as Hydra's are."""
        return bool(self.blocks) and self.blocks[0].residual is not None


class PositionHeads:
    """Computes on the CPU, by ggml itself. Used by one thread; lives as long as its target.

    Args:
        products: ggml's CPU library.
        positions: The heads in order; each predicts one token.
        words: The token of each output row.
        embedding: The target's token embeddings, which are used in place and not copied.
    """

    def __init__(
        self,
        products: Products,
        positions: Sequence[Position],
        words: NDArray[np.int32],
        embedding: Stored,
    ) -> None:
        self._products, self.words, self.width = products, words, embedding.width
        self._reads_tokens = positions[0].reads_tokens
        self._lent = embedding  # native code does not count references
        self._embedding = products.lent(embedding)
        self._weights: list[Weights] = []
        self._graphs = [self._lay(place, each) for place, each in enumerate(positions)]
        self.depth = len(positions)
        kind = "Hydra" if self._reads_tokens else "Medusa"
        self.sentence = f"{kind} heads for {self.depth} positions"

    def _lay(self, place: int, head: Position) -> _Graph:
        """Build the graph of one head once; only its inputs, states and a token, change later."""
        products, base = self._products, self._products.base
        context = products.context()
        biases: list[tuple[Any, Floats]] = []

        def linear(by: Linear, x: Any) -> Any:
            matrix, bias = by
            kind = next(name for name, each in FORMATS.items() if each.number == matrix.type)
            layout = products.fastest(kind, matrix.outputs)
            self._weights.append(products.stored(matrix, layout))
            y = call(base, "mul_mat", context, self._weights[-1].tensor, x)
            if bias is None:
                return y
            added = call(base, "new_tensor_1d", context, c_int(FLOAT), c_int64(len(bias)))
            biases.append((added, bias))
            return call(base, "add", context, y, added)

        known = self.width * (place + 1 if self._reads_tokens else 1)
        x = before = call(base, "new_tensor_1d", context, c_int(FLOAT), c_int64(known))
        token = call(base, "new_tensor_1d", context, c_int(INTEGER), c_int64(1))
        if self._reads_tokens:
            came = call(base, "get_rows", context, self._embedding.tensor, token)
            x = joined = call(base, "concat", context, before, came, c_int(0))
        else:
            joined = before
        for block in head.blocks:
            inner = call(base, "silu", context, linear(block.inner, x))
            kept = x if block.residual is None else linear(block.residual, x)
            x = call(base, "add", context, kept, inner)
        said = linear(head.output, x)
        graph = call(base, "new_graph", context)
        call(base, "build_forward_expand", graph, said)
        buffer = products.allocate(context)
        for added, bias in biases:
            products.write(added, np.ascontiguousarray(bias, np.float32))
        return _Graph(
            graph,
            buffer,
            context,
            products.view(before, known),
            products.view(token, 1, np.int32),
            products.view(said, len(self.words)),
            products.view(joined, known + self.width * self._reads_tokens),
        )

    def predict(self, state: Floats, token: Token) -> Prediction:
        """The token predicted after `token`.

        `state` float32 is the target's (width,) for the first position; for each further one it
        is the `state` of the prediction before, which is longer by one width.
        """
        place = len(state) // self.width - 1
        graph = self._graphs[place]
        graph.before[:] = state[: len(graph.before)]
        graph.token[0] = token
        self._products.compute(graph.graph)
        best = int(graph.said.argmax())
        total = float(np.exp(graph.said - graph.said[best]).sum())
        longer = graph.joined.copy() if self._reads_tokens else np.tile(graph.before, place + 2)
        return Prediction(int(self.words[best]), 1 / total, longer)

    def close(self) -> None:
        """Free all of it."""
        for weights in (*self._weights, self._embedding):
            self._products.free(weights)
        for graph in self._graphs:
            call(self._products.base, "backend_buffer_free", graph.buffer)
            call(self._products.base, "free", graph.context)


class _Graph(NamedTuple):
    """The graph of one head with its memory, and the vectors in it that are written and read."""

    graph: Any
    buffer: Any
    context: Any
    before: Floats
    token: NDArray[np.int32]
    said: Floats
    joined: Floats
