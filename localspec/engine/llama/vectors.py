"""Vectors of a context's latest forward beside its logits: hidden states, and what is tapped.

States are the vectors from which logits are computed, for the rows that want logits. Taps are of
all rows, for drafters that draft from the target's own states: the inputs of chosen layers
(EAGLE-3), or the input of a model's prediction layers (MTP). Only `native/states.cmake` makes both
complete.
"""

from __future__ import annotations

from ctypes import POINTER, c_float, c_uint32, c_void_p
from typing import Any, NamedTuple

import numpy as np

from localspec.engine.llama.library import native, ours
from localspec.engine.llama.model import Model
from localspec.errors import EngineError
from localspec.types import Floats, ForwardOutput


class Taps(NamedTuple):
    """The vectors that every forward leaves of each row: the inputs of layers, in this order.

    With `following`, the hidden state that prediction layers are given comes after them. Each is a
    vector of the model's width.
    """

    layers: tuple[int, ...] = ()
    following: bool = False

    @property
    def vectors(self) -> int:
        """Vectors of one row."""
        return len(self.layers) + self.following


class Vectors:
    """The vectors that one context shows beside its logits. Used by the context's thread.

    In a build without `native/states.cmake` there are no taps, and states only of forwards in which
    every row wants logits. A model whose memory is a state then shows none: with states shown it
    would read texts differently, a hybrid model wrongly (llama_memory_hybrid::init_batch).
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.handle: Any = None
        self._shows = False
        self._taps = Taps()
        self._rows = self._outputs = 0

    def begin(self, handle: Any) -> None:
        """Use this native context from now on: a new one, which has made no forward."""
        self.handle = handle
        self._outputs = 0
        self._tap()

    def _tap(self) -> None:
        for layer in self._taps.layers:
            ours.call("tap", None, c_void_p(self.handle), c_uint32(layer))
        if self._taps.following:
            ours.call("show_next", None, c_void_p(self.handle))

    def prepare(self, rows: int, wanted: int) -> None:
        """Prepare for a forward of so many rows, of which `wanted` want logits."""
        shows = self._shows and (ours.states or wanted == rows)
        native.llama_set_embeddings(self.handle, shows)  # which may make outputs of all rows
        self._rows, self._outputs = rows, wanted if shows else 0

    def hide(self) -> None:
        """Prepare for a forward that shows no vectors."""
        native.llama_set_embeddings(self.handle, False)
        self._rows = self._outputs = 0

    def show(self) -> bool:
        """Begin to show states. Returns whether that works: it does not with embedding models."""
        pooling = native.llama_pooling_type(self.handle)
        able = ours.states or not self._model.has_state
        self._shows = pooling == native.LLAMA_POOLING_TYPE_NONE and able
        return self._shows

    def tap(self, taps: Taps) -> bool:
        """Leave these taps with every later forward; returns whether model and build can."""
        layers = range(1, self._model.n_layer)  # the first one's input is no state
        if not ours.states or not taps.vectors or not all(each in layers for each in taps.layers):
            return False
        self._taps = taps
        self._tap()
        return True

    def settle(self) -> bool:
        """Whether the first forward with taps gave them; otherwise they are removed."""
        if self._features() is None:
            self._taps = Taps()
        return bool(self._taps.vectors)

    def output(self, logits: Floats) -> ForwardOutput:
        """The output of the latest forward, with these logits and all that it shows beside them."""
        if not self._outputs:
            return ForwardOutput(logits, None, self._features)
        pointer = native.llama_get_embeddings(self.handle)
        if not pointer:
            raise EngineError("llama_decode left no states.")
        states = np.ctypeslib.as_array(pointer, shape=(self._outputs, self._model.width))
        return ForwardOutput(logits, states, self._features)

    def _features(self) -> Floats | None:
        """Taps of all rows of the latest forward, (rows, `Taps.vectors` * width): a copy.

        None without taps, and where the model's graph does not name the tapped tensors.
        """
        if not self._taps.vectors or not self._rows:
            return None
        width, handle = self._model.width, c_void_p(self.handle)
        found = np.empty((self._rows, self._taps.vectors, width), np.float32)
        kind = POINTER(c_float)
        pointers = [
            ours.call("layer_input", kind, handle, c_uint32(layer)) for layer in self._taps.layers
        ]
        pointers += [ours.call("next", kind, handle)] * self._taps.following
        for place, pointer in enumerate(pointers):
            if not pointer:
                return None
            found[:, place] = np.ctypeslib.as_array(pointer, shape=(self._rows, width))
        return found.reshape(self._rows, -1)


class VectorContext:
    """A context with vectors, which it keeps in `_vectors`."""

    _vectors: Vectors

    @property
    def handle(self) -> Any:
        """The native context, for another one that uses its weights; replaced when memory grows."""
        return self._vectors.handle

    def show(self) -> bool:
        """Show states with forwards from now on; returns whether that works (`Vectors`)."""
        return self._vectors.show()
