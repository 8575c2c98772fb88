"""A model: the weights and the vocabulary of one GGUF.

A model belongs to the thread that made it; the vocabulary never changes, so any thread may call
`tokenize` and `piece`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from localspec.config import Placement
from localspec.engine.llama import mapping
from localspec.engine.llama.devices import handles, usable
from localspec.engine.llama.library import Buffer, log, native, ours
from localspec.errors import EngineError
from localspec.types import Token

_COPIED = 1 << 14
"""Tokens of a text that are converted to Python's numbers at once."""

_CONTROL = native.LLAMA_TOKEN_ATTR_CONTROL | native.LLAMA_TOKEN_ATTR_UNKNOWN
KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type
FLASH = {"auto": -1, "off": 0, "on": 1}  # llama_flash_attn_type
_SPLITS = {"none": 0, "layer": 1, "row": 2}  # llama_split_mode


class _Override(ctypes.Structure):
    """`struct llama_model_tensor_buft_override`: a pattern of names and a buffer type for them."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def _experts_on_cpu(layers: Sequence[int]) -> ctypes.Array[_Override]:
    """The overrides that put experts of these layers on the CPU, and the entry that ends a list."""
    on_cpu = native._lib.ggml_backend_cpu_buffer_type  # noqa: SLF001 — libllama leads to ggml
    on_cpu.restype, on_cpu.argtypes = ctypes.c_void_p, []
    names = [rf"^blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps\." for layer in layers]
    listed = [_Override(name.encode(), on_cpu()) for name in names]
    return (_Override * (len(listed) + 1))(*listed, _Override(None, None))


def _place(
    params: Any, placement: Placement, devices: Sequence[int], apart: Sequence[int]
) -> list[Any]:
    """Say in `params` where weights go. Returns the arrays that it points at from now on."""
    params.n_gpu_layers = placement.gpu_layers
    params.main_gpu = placement.main_gpu
    params.split_mode = _SPLITS[placement.split]
    listed = (ctypes.c_void_p * (len(devices) + 1))(*devices, None)
    if placement.devices or placement.gpu_layers == 0:
        params.devices = ctypes.cast(listed, ctypes.c_void_p)
    most = native.llama_max_devices()
    split = (ctypes.c_float * most)(*placement.tensor_split[:most])
    if placement.tensor_split:
        params.tensor_split = split
    overrides = _experts_on_cpu(apart) if apart else None
    if overrides:
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    return [listed, split, overrides]


class Model:
    """Weights and vocabulary of one GGUF. Outlives its contexts; `close` frees it."""

    def __init__(self, handle: object, buffers: list[Buffer], *, on_cpu: bool) -> None:
        self.handle = handle
        self.on_cpu = on_cpu
        self._vocab = native.llama_model_get_vocab(handle)
        self.buffers = buffers
        self.layers = log.take_layers()
        self.n_vocab: int = native.llama_vocab_n_tokens(self._vocab)
        self.width: int = native.llama_model_n_embd(handle)
        self.input_width: int = native.llama_model_n_embd_inp(handle)
        self.architecture = self._metadata("general.architecture")
        self.n_layer: int = native.llama_model_n_layer(handle)
        self.context_train: int = native.llama_model_n_ctx_train(handle)
        self.parameters: int = native.llama_model_n_params(handle)
        self.window: int = native.llama_model_n_swa(handle)
        """Tokens that layers with a sliding window look back on; 0 where all look back on all."""
        self.size_bytes: int = native.llama_model_size(handle)
        template = native.llama_model_chat_template(handle, None)
        text = template.decode("utf-8", "replace") if template else ""
        self.chat_template: str | None = text if text.strip() else None
        ranking = native.llama_model_chat_template(handle, b"rerank")
        self.rank_template: str | None = ranking.decode("utf-8", "replace") if ranking else None
        """The template of a query and a document in one text, with {query} and {document}."""
        self.bos = self._token(native.llama_vocab_bos(self._vocab))
        self.eos = self._token(native.llama_vocab_eos(self._vocab))
        self.eog = frozenset(
            token for token in range(self.n_vocab) if native.llama_vocab_is_eog(self._vocab, token)
        )
        self.file = ""
        """Its name, for messages."""
        self._pieces: dict[Token, bytes] = {}
        self.adapters: list[Any] = []
        """Handles (llama_adapter_lora) of its adapters, which are freed with it."""

    @classmethod
    def load(  # noqa: PLR0913 - all that is to be said of a load, by name
        cls,
        path: Path,
        placement: Placement = Placement(),  # noqa: B008 — frozen value
        *,
        safe_kernels: bool = False,
        lent: Mapping[str, int] = MappingProxyType({}),
        apart: Sequence[int] = (),
        predicts: bool = False,
        on_progress: Callable[[float], None] | None = None,
    ) -> Model:
        """Load weights. The caller has already passed the file through `catalog.header`.

        Args:
            path: The GGUF (of a split file, the first part).
            placement: Layers on GPUs and which (by default llama.cpp's choice), mmap, mlock.
            safe_kernels: Do without repacked weights and the CPU kernels that need them, and in
                this process without ours.
            lent: Handles (ggml_backend_dev_t) of other machines' devices, by the names that
                `placement` has for them.
            apart: Layers whose experts stay on the CPU, wherever the layers are.
            predicts: Load the layers that predict tokens ahead (MTP), where the file has any.
            on_progress: Called with a fraction from 0 to 1 while tensors are read.

        Raises:
            ConfigError: llama.cpp lists no such device.
            OutOfMemory: the weights found no place.
            ModelError: llama.cpp refused the file.
        """
        params = native.llama_model_default_params()
        params.load_mode = int(placement.mmap) + 2 * int(placement.mlock)
        params.load_mtp = predicts
        params.use_extra_bufts = not safe_kernels
        if safe_kernels and ours.switch:
            ours.use(False)
        gpus = [name for name in placement.devices if name != "CPU" and placement.gpu_layers]
        there = [lent[name] if name in lent else handles([name])[0] for name in gpus]
        arrays = _place(params, placement, there, apart)

        def progressed(fraction: float, _data: object) -> bool:
            if on_progress is not None:
                on_progress(fraction)
            return True

        callback = native.llama_progress_callback(progressed)
        params.progress_callback = callback
        log.take_buffers()
        log.take_layers()
        handle = native.llama_model_load_from_file(str(path).encode(), params)
        del arrays  # `params` points at them
        if not handle:
            raise log.refusal(
                f"{path.name} could not be loaded",
                "Run `localspec models show` on it; pull or quantize it again.",
            )
        mapping.give_back()
        chosen = placement.gpu_layers != 0 and (gpus or not placement.devices)
        on_cpu = not (chosen and (gpus or usable()))
        model = cls(handle, log.take_buffers(), on_cpu=on_cpu)
        model.file = path.name
        return model

    def adopt(self, path: Path) -> None:
        """Load a LoRA adapter, before there is a context. `catalog.adapters` has checked it.

        Raises:
            OutOfMemory: there is no memory for it.
            ModelError: llama.cpp refused the file.
        """
        handle = native.llama_adapter_lora_init(self.handle, str(path).encode())
        if not handle:
            fix = "Take it out of [models.adapters], or from beside the model."
            raise log.refusal(f"The adapter {path.name} could not be loaded", fix)
        self.adapters.append(handle)

    def close(self) -> None:
        """Free the weights. Contexts on this model must be closed before."""
        if self.handle is not None:
            native.llama_model_free(self.handle)
            self.handle = None

    def _token(self, token: int) -> Token | None:
        return token if 0 <= token < self.n_vocab else None

    def _metadata(self, key: str) -> str:
        room = ctypes.create_string_buffer(256)
        native.llama_model_meta_val_str(self.handle, key.encode(), room, len(room))
        return room.value.decode("utf-8", "replace")

    def special_tokens(self) -> list[Token]:
        """Tokens that are no words of a text: control tokens and user-defined ones."""
        special = native.LLAMA_TOKEN_ATTR_USER_DEFINED | _CONTROL
        tokens = range(self.n_vocab)
        return [each for each in tokens if native.llama_vocab_get_attr(self._vocab, each) & special]

    def specials(self) -> tuple[frozenset[str], frozenset[str]]:
        """Texts that are tokens where special ones are parsed, and texts that always are."""
        kinds: tuple[set[str], set[str]] = (set(), set())
        for token in self.special_tokens():
            attributes = native.llama_vocab_get_attr(self._vocab, token)
            text = native.llama_vocab_get_text(self._vocab, token).decode("utf-8", "replace")
            kinds[not attributes & _CONTROL].add(text)
        return frozenset(kinds[0]), frozenset(kinds[1])

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """Token ids of `text`; `add_special` adds BOS where the model wants it.

        Raises:
            EngineError: the tokenizer failed.
        """
        data = text.encode("utf-8")
        room = len(data) + 8
        for _ in range(2):
            ids = (native.llama_token * room)()
            count: int = native.llama_tokenize(
                self._vocab, data, len(data), ids, room, add_special, parse_special
            )
            if count >= 0:
                tokens: list[Token] = []
                for start in range(0, count, _COPIED):  # other threads run between two parts
                    tokens += ids[start : min(start + _COPIED, count)]
                return tokens
            room = -count
        raise EngineError(f"The tokenizer failed on a text of {len(data)} bytes.")

    def plain_tokens(self, text: str) -> list[Token]:
        """The tokens of a text inside another one: without BOS, special tokens read as words."""
        return self.tokenize(text, add_special=False, parse_special=False)

    def piece(self, token: Token) -> bytes:
        """The bytes that a token writes; control tokens write nothing. Raises IndexError."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._render(token, special=False)
        return found

    def pieces(self) -> list[bytes]:
        """The bytes that each token writes, by one buffer: a seventh of a second for 150,000."""
        room = ctypes.create_string_buffer(64)
        written = memoryview(room).cast("B")
        size = partial(native.llama_token_to_piece, self._vocab)
        found: list[bytes] = []
        for token in range(self.n_vocab):
            count = size(token, room, len(room), 0, False)
            found.append(bytes(written[:count]) if count >= 0 else self.piece(token))
        return found

    def special_text(self, token: Token | None) -> str:
        """A special token as it stands in templates, such as "<|im_end|>"."""
        return "" if token is None else self._render(token, special=True).decode("utf-8", "replace")

    def spelled(self, token: Token) -> bytes:
        """The bytes that a token writes; of a control token, its name."""
        return self.piece(token) or self.special_text(token).encode()

    def control(self, text: str) -> Token | None:
        """The token that stands for `text` and writes nothing; None where there is none."""
        tokens = self.tokenize(text, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 and not self.piece(tokens[0]) else None

    @property
    def has_state(self) -> bool:
        """Whether its memory is a state of fixed size, or has one beside its cells (hybrid)."""
        recurrent: bool = native.llama_model_is_recurrent(self.handle)
        return recurrent or bool(native.llama_model_is_hybrid(self.handle))

    @property
    def adds_bos(self) -> bool:
        """Whether a text of this model begins with BOS."""
        return bool(native.llama_vocab_get_add_bos(self._vocab))

    def pairs(self, query: str, documents: Iterable[str]) -> Iterator[list[Token]]:
        """The tokens of a query and each document as ranking models expect them, as in llama.cpp.

        By the file's own template if it has one, otherwise with the special tokens that its
        vocabulary adds around and between them.
        """
        asked = self.plain_tokens(query)
        parts = self._around_document(asked)
        for document in documents:
            words = self.plain_tokens(document)
            yield [token for part in parts for token in (words if part is None else part)]

    def _around_document(self, asked: list[Token]) -> list[list[Token] | None]:
        """The parts of a ranking model's text by a query's tokens; None where the document is."""
        if self.rank_template is not None:
            said = {"{query}": asked, "{document}": None}
            return [
                said[part]
                if part in said
                else self.tokenize(part, add_special=False, parse_special=True)
                for part in re.split(r"(\{query\}|\{document\})", self.rank_template)
            ]
        end = self._token(native.llama_vocab_eos(self._vocab))
        between = self._token(native.llama_vocab_sep(self._vocab))
        ends = [between if end is None else end] if self._adds("eos") else []
        first = [self.bos] if self._adds("bos") else []
        joint = [*ends, *([between] if self._adds("sep") else [])]
        before = [token for token in (*first, *asked, *joint) if token is not None]
        return [before, None, [token for token in ends if token is not None]]

    def _adds(self, what: str) -> bool:
        return bool(getattr(native, f"llama_vocab_get_add_{what}")(self._vocab))

    def infill(self, part: str) -> Token | None:
        """The token for pre, suf, mid, rep or sep of an infill, as the file or llama.cpp names it.

        None where there is none.
        """
        return self._token(getattr(native, f"llama_vocab_fim_{part}")(self._vocab))

    def _render(self, token: Token, *, special: bool) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise IndexError(token)
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = native.llama_token_to_piece(self._vocab, token, buffer, room, 0, special)
            if size >= 0:
                return buffer.raw[:size]
            room = -size


def made(model: Model, params: Any) -> tuple[Any, list[Buffer]]:
    """A llama_context of a model, and the memory that it took. Raises OutOfMemory, ModelError."""
    log.take_buffers()
    handle = native.llama_init_from_model(model.handle, params)
    if not handle:
        raise log.refusal(
            f"No context of {params.n_ctx} tokens could be made",
            "Lower engine.context or engine.slots in config.toml.",
        )
    return handle, log.take_buffers()
