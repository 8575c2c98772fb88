"""Images by llama.cpp's libmtmd: a projector makes rows of vectors of an image, for one model.

Images have been checked and decoded before: here they are pixels of known dimensions. Rows are made
on any thread, one image at a time; the context's thread reads them into its memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from localspec.engine.images import EncodedImage, Grid, ImageRows, stand_ins
from localspec.engine.llama.library import log, mtmd_library, native
from localspec.engine.llama.model import Model
from localspec.errors import EngineError, ModelError
from localspec.types import Floats, Token

NOT_BUILT = "llama.cpp was built here without mtmd, the part of it that reads images"
_KEPT_BYTES = 256 * 1024 * 1024
"""Vectors of the latest images that are kept: a conversation sends them again with every turn."""

_TOKENS_ALONE = frozenset({"glm4", "glm4moe", "granite-switch"})
"""Architectures that end the process where a row has no token (llama.cpp, `src/models`); those of
GLM with M-RoPE do not."""


class _Vectors(NamedTuple):
    """The vectors of an image, or of a part of it, and how they take positions."""

    vectors: Floats
    grid: Grid | None
    positions: int


_Piece: TypeAlias = "list[Token] | _Vectors"
"""Tokens around an image, or the vectors that are computed of it."""


class Picture(NamedTuple):
    """A decoded image: its RGB pixels, row by row, and what identifies it."""

    width: int
    height: int
    pixels: bytes
    key: bytes


class Projector:
    """A projector for one model. Any thread; closed before the model is.

    Args:
        mtmd: The bindings.
        handle: Of mtmd_init_from_file.
        model: The model whose input the vectors are.
        name: The file's.
        key: Identifies the file, as another file makes other vectors.
    """

    def __init__(self, mtmd: ModuleType, handle: Any, model: Model, name: str, key: bytes) -> None:
        self._mtmd, self._handle, self._model, self._key = mtmd, handle, model, key
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Sequence[_Piece]] = OrderedDict()
        self.whole = bool(mtmd.mtmd_decode_use_non_causal(handle, None))
        """Whether rows of an image see each other, so that one forward has to hold them all."""
        self.name = name
        self.computed = 0
        """The number of images whose vectors were computed, not found among those kept."""

    @classmethod
    def open(cls, path: Path, model: Model, *, threads: int, gpu: bool) -> Projector:
        """Load a projector. Raises ModelError: it is not for images, or not for this model."""
        mtmd = mtmd_library()
        if mtmd is None:
            raise ModelError(f"{NOT_BUILT}.", fix="Run `make install` or `localspec build`.")
        params = mtmd.mtmd_context_params_default()
        params.use_gpu, params.n_threads = gpu, threads
        params.print_timings = params.warmup = False
        log.errors = []
        handle = mtmd.mtmd_init_from_file(str(path).encode(), model.handle, params)
        if not handle:
            raise ModelError(f"{path.name} cannot be loaded: {log.why()}.")
        grids = bool(mtmd.mtmd_decode_use_mrope(handle))
        why = ""
        if model.architecture in _TOKENS_ALONE and not grids:
            why = f"has no use: llama.cpp's {model.architecture} takes tokens alone"
        elif not mtmd.mtmd_support_vision(handle):
            why = "reads sound and no images"
        if why:
            mtmd.mtmd_free(handle)
            raise ModelError(f"{path.name} {why}.")
        found = path.stat()
        key = f"{path.name} {found.st_size} {found.st_mtime_ns}"
        return cls(mtmd, handle, model, path.name, key.encode())

    def close(self) -> None:
        """Free the projector and what was kept. No request is in flight."""
        with self._lock:
            if self._handle is not None:
                self._kept.clear()
                self._mtmd.mtmd_free(self._handle)
                self._handle = None

    def read(self, picture: Picture) -> list[list[Token] | EncodedImage]:
        """An image as it stands in a text: tokens around it, and its rows.

        Raises EngineError: llama.cpp cannot make vectors of it.
        """
        key = hashlib.sha256(self._key + b"\0" + picture.key).digest()
        found: list[list[Token] | EncodedImage] = []
        for place, piece in enumerate(self._pieces(picture, key)):
            if isinstance(piece, list):
                found.append(piece)
            else:
                count, own = len(piece.vectors), key + place.to_bytes(4, "little")
                mine = stand_ins(own, count, piece.positions if piece.grid is not None else None)
                found.append(EncodedImage(mine, piece.vectors, self.whole, *piece[1:]))
        return found

    def _pieces(self, picture: Picture, key: bytes) -> Sequence[_Piece]:
        """The image as it stands in a text, as kept or as computed now."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            found = self._kept[key] = self._computed(picture)
            self.computed += 1
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > _KEPT_BYTES:
                self._kept.popitem(last=False)
            return found

    def _computed(self, picture: Picture) -> Sequence[_Piece]:
        mtmd = self._mtmd
        pixels = (ctypes.c_uint8 * len(picture.pixels)).from_buffer_copy(picture.pixels)
        bitmap = mtmd.mtmd_bitmap_init(picture.width, picture.height, pixels)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            marker = mtmd.mtmd_default_marker()
            text = mtmd.mtmd_input_text(marker, len(marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1):
                raise EngineError(f"llama.cpp cannot read this image: {log.why()}.")
            places = range(mtmd.mtmd_input_chunks_size(chunks))
            return [self._piece(mtmd.mtmd_input_chunks_get(chunks, place)) for place in places]
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)

    def _piece(self, chunk: Any) -> _Piece:
        mtmd = self._mtmd
        if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
            count = ctypes.c_size_t()
            tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
            return list(tokens[: count.value])
        rows = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        if mtmd.mtmd_encode_chunk(self._handle, chunk):
            raise EngineError(f"llama.cpp cannot make vectors of this image: {log.why()}.")
        made = mtmd.mtmd_get_output_embd(self._handle)
        vectors: Floats = np.ctypeslib.as_array(made, (rows, self._model.input_width)).copy()
        positions = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
        return _Vectors(vectors, self._grid(chunk, rows), positions)

    def _grid(self, chunk: Any, rows: int) -> Grid | None:
        mtmd = self._mtmd
        if not mtmd.mtmd_decode_use_mrope(self._handle):
            return None
        image, found = mtmd.mtmd_input_chunk_get_tokens_image(chunk), np.empty((rows, 4), np.int32)
        for row in range(rows):
            at = mtmd.mtmd_image_tokens_get_decoder_pos(image, 0, row)
            found[row] = at.t, at.y, at.x, at.z
        return found


def _size(pieces: Sequence[_Piece]) -> int:
    return sum(piece.vectors.nbytes for piece in pieces if not isinstance(piece, list))


def seen(  # noqa: PLR0913, PLR0917 - all that one forward is made of
    handle: Any, batch: Any, vectors: Floats, image: ImageRows, rows: range, first: int
) -> int:
    """Decode a batch with rows of an image, vectors in place of tokens; llama_decode's code.

    `first` is the position of the image's first row.
    """
    given = native.llama_batch.from_buffer_copy(batch)  # the same arrays
    given.token = None
    given.embd = vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    if image.grid is not None:
        grid = image.grid[rows.start : rows.stop] + np.array([first, first, first, 0], np.int32)
        positions = np.ascontiguousarray(grid.T, np.int32)  # dimension by dimension
        given.pos = positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
    if image.whole:
        native.llama_set_causal_attn(handle, False)
    code = int(native.llama_decode(handle, given))
    native.llama_synchronize(handle)  # a device may still be reading them
    if image.whole:
        native.llama_set_causal_attn(handle, True)
    return code
