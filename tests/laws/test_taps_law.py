"""States and taps of any forward are those of a context that gives nothing but vectors.

Of every architecture that the suite builds: rows of several sessions in one forward, some of which
want logits, after rollback, and in a cache that has grown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import architectures
import numpy as np
import pytest
import recurrent
import tiny

from localspec.built import installed
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import native, ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.vectors import Taps
from localspec.types import Floats, Row, Token

SAME = 0.02
"""By so much of their length vectors may differ that come of sums in another order."""
SLOTS, ROWS = 3, 24
STREAMS = {"glm5-next"}
"""Their layers have several residual streams, so there is no vector between two."""
OUTPUTS = ("l_out", "nemotron_h_block_out")
"""The names of the outputs of layers in graphs of llama.cpp."""
KINDS: dict[str, Callable[[Path], Path]] = {
    **{
        kind: partial(architectures.build, architecture=kind)
        for kind in architectures.KINDS.keys() - STREAMS
    },
    "lfm2": recurrent.lfm2,
    "mamba": recurrent.mamba,
}


class Reference:
    """An embedding context of one text; the outputs of layers are read while it computes."""

    def __init__(self, model: Model) -> None:
        self._model, self._seen = model, dict[int, Floats]()
        (library,) = (each for each in installed().iterdir() if each.stem == "libggml-base")
        self._base = ctypes.CDLL(str(library))
        self._base.ggml_get_name.restype = ctypes.c_char_p
        self._base.ggml_nbytes.restype = ctypes.c_size_t
        kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
        self._callback = kind(self._read)
        params = native.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = 512
        params.embeddings = True
        params.cb_eval = ctypes.cast(self._callback, type(params.cb_eval))
        self._handle = native.llama_init_from_model(model.handle, params)
        self._batch = native.llama_batch_init(512, 0, 1)

    def _read(self, tensor: int, asks: bool, _data: object) -> bool:
        name, _, layer = self._base.ggml_get_name(ctypes.c_void_p(tensor)).decode().partition("-")
        if name not in OUTPUTS:
            return not asks
        if not asks:
            size = self._base.ggml_nbytes(ctypes.c_void_p(tensor))
            found = np.empty(size // 4, np.float32)
            self._base.ggml_backend_tensor_get(
                ctypes.c_void_p(tensor),
                found.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_size_t(0),
                ctypes.c_size_t(size),
            )
            self._seen[int(layer)] = found.reshape(-1, self._model.width)
        return True

    def of(self, text: Sequence[Token], layers: Sequence[int]) -> tuple[Floats, Floats]:
        """States (tokens, width) and inputs of layers (tokens, layers * width) of a text."""
        native.llama_memory_clear(native.llama_get_memory(self._handle), True)
        batch = self._batch
        batch.n_tokens = len(text)
        for place, token in enumerate(text):
            batch.token[place], batch.pos[place] = token, place
            batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, 0, True
        assert native.llama_decode(self._handle, batch) == 0
        shape = (len(text), self._model.width)
        states = np.ctypeslib.as_array(native.llama_get_embeddings(self._handle), shape=shape)
        taps = [self._seen[layer - 1] for layer in layers]
        return states.copy(), np.concatenate(taps, 1) if taps else np.empty(
            (len(text), 0), np.float32
        )

    def close(self) -> None:
        """Free it."""
        native.llama_batch_free(self._batch)
        native.llama_free(self._handle)


@contextmanager
def both(model: Model, taps: Taps, **options: Any) -> Iterator[tuple[Context, Context, Reference]]:
    """A context with slots that shows all, and what it is compared with: one that shows nothing."""
    context, plain = (Context.open(model, slots=SLOTS, rows=ROWS, **options) for _ in range(2))
    reference = Reference(model)
    assert context.show()
    assert context.tap(taps)
    yield context, plain, reference
    reference.close()
    plain.close()
    context.close()


class Walk:
    """Random forwards of all slots; texts go back now and then."""

    def __init__(self, *contexts: Context) -> None:
        self._contexts = contexts
        self._dice = np.random.default_rng(5)
        self.texts: list[list[Token]] = [[] for _ in range(SLOTS)]

    def rows(self) -> list[Row]:
        """The rows of the next forward."""
        dice, rows = self._dice, list[Row]()
        for slot, text in enumerate(self.texts):
            if text and dice.random() < 0.3:
                back = int(dice.integers(max(0, len(text) - ROWS // SLOTS), len(text)))
                (back,) = {context.truncate(slot, back) for context in self._contexts}
                del text[back:]
            for context in self._contexts:
                context.checkpoint(slot)
            for token in dice.integers(250, size=dice.integers(1, ROWS // SLOTS + 1)):
                rows.append(Row(int(token), len(text), slot, bool(dice.random() < 0.6)))
                text.append(int(token))
        return rows


def wander(
    context: Context, plain: Context, reference: Reference, layers: Sequence[int], rounds: int
) -> int:
    """Compare all that is shown in so many forwards; how many states were."""
    compared, walk = 0, Walk(context, plain)
    for _ in range(rounds):
        rows = walk.rows()
        output = context.decode(rows)
        for mine, theirs in zip(output.logits, plain.decode(rows).logits, strict=True):
            assert_same(mine, theirs)
        told = [reference.of(text, layers) for text in walk.texts]
        wanting = [row for row in rows if row.wants_logits]
        states: Sequence[Floats] = [] if output.states is None else list(output.states)
        for row, state in zip(wanting, states, strict=True):
            assert_same(state, told[row.slot][0][row.position])
        features = output.features()
        assert features is not None
        for row, feature in zip(rows, features, strict=True):
            parts = (feature, told[row.slot][1][row.position])
            for mine, theirs in zip(*(np.split(part, len(layers)) for part in parts), strict=True):
                assert_same(mine, theirs)
        compared += len(wanting)
    return compared


def assert_same(mine: Floats, theirs: Floats) -> None:
    """Two vectors but for rounding."""
    assert np.linalg.norm(mine - theirs) <= SAME * np.linalg.norm(theirs)


pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_states_and_taps_are_those_of_a_context_of_vectors(kind: str, tmp_path: Path) -> None:
    """In any forward, with any of its rows wanting logits."""
    model = Model.load(KINDS[kind](tmp_path / "model.gguf"))
    layers = tuple(range(1, model.n_layer))
    with both(model, Taps(layers), context=192) as (context, plain, reference):
        assert wander(context, plain, reference, layers, rounds=8) > 8
    model.close()


@pytest.mark.parametrize("streams", [False, True])
def test_they_stay_while_the_cache_grows(streams: bool, tmp_path: Path) -> None:
    """In one cache and in streams, which begin with few cells; taps in an order of their own."""
    model = Model.load(tiny.build(tmp_path / "model.gguf", layers=4))
    layers, cells = (3, 1), 256 * SLOTS
    with both(
        model, Taps(layers), context=512, streams=streams, cells=256, most_cells=2 * cells
    ) as (context, plain, reference):
        before = context.kv_cells
        assert wander(context, plain, reference, layers, rounds=40) > 40
        assert streams or context.kv_cells > before
    model.close()


@pytest.mark.parametrize("layers", [(0,), (4,), (1, 99), (-1,)])
def test_what_is_no_layer_is_refused(layers: tuple[int, ...], tmp_path: Path) -> None:
    """The first layer's input and the last one's output are no taps; forwards go on."""
    model = Model.load(tiny.build(tmp_path / "model.gguf", layers=4))
    context = Context.open(model, slots=1, context=64, rows=8)
    assert not context.tap(Taps(layers))
    output = context.decode([Row(1, 0, 0, True)])
    assert (len(output.logits), output.features()) == (1, None)
    context.close()
    model.close()


@pytest.mark.parametrize(
    ("kind", "taps"), [("llama", Taps(following=True)), ("glm5-next", Taps((1, 2)))]
)
def test_a_graph_without_what_is_tapped_says_so(kind: str, taps: Taps, tmp_path: Path) -> None:
    """Without prediction layers, or with several streams, it leaves nothing; forwards go on."""
    model = Model.load(architectures.build(tmp_path / "model.gguf", kind))
    context = Context.open(model, slots=1, context=64, rows=8)
    assert not context.tap(taps)
    output = context.decode([Row(1, 0, 0, True)])
    assert (len(output.logits), output.features()) == (1, None)
    context.close()
    model.close()
