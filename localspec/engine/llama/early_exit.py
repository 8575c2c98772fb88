"""Forwards of a target that end after its first layers, in its own context."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.types import ForwardOutput, Row

_GRAPHS = frozenset(
    {"arcee", "cohere2", "gemma", "gemma2", "gemma3", "internlm2", "llama", "mistral3", "olmo2",
     "olmoe", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2"}
)  # fmt: skip
"""Architectures whose graph uses the number of layers only to build that many (`src/models`)."""


def possible(context: Context) -> bool:
    """Whether forwards can end early here.

    Not on a device, where the graph is made anew after each change; not in a build without the edit
    of `native/states.cmake`; and not where memory cannot trim tokens.
    """
    model = context.model
    plain = model.architecture in _GRAPHS and model.n_layer > 1 and context.rollback == "trim"
    return ours.exits and plain and not context.waits


class EarlyExit:
    """A target by its first `layers` layers, 0 before a choice; `whole` is the target's context.

    In a slot all layers hold the text. Rows that are decoded here are held by the first layers
    only, so they have to be forgotten before the next forward of the whole model.
    """

    def __init__(self, context: Context) -> None:
        self.whole = context
        self.n_vocab, self.max_rows = context.n_vocab, context.max_rows
        self.layers = 0

    @property
    def context(self) -> int:
        """Tokens that one slot may hold."""
        return self.whole.context

    def length(self, slot: int) -> int:
        """Tokens that a slot holds."""
        return self.whole.held[slot]

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Delegate to the context, by the first layers. Raises what it raises."""
        return self.whole.decode_early(rows, self.layers)

    def truncate(self, slot: int, length: int) -> int:
        """Delegate to the context."""
        return self.whole.truncate(slot, length)
