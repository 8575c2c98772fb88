"""The one file that imports llama_cpp: models, contexts, vocabulary, quantization.

Everything here belongs to the thread that made it. llama.cpp aborts the process on what it
considers a bug of the caller, so every argument is checked before it crosses over, and only the
worker process may import this file.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

# libgomp reads this once, when llama_cpp is imported. Its threads wait for each other some hundred
# times in a forward; by default they spin for milliseconds, even while what they wait for wants the
# very core they spin on. So a forward took ten times as long beside one busy process; it is twice.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

import llama_cpp.llama_cpp as native
import numpy as np

from localspec.config import Placement
from localspec.errors import EngineError, ModelError, RollbackUnsupported
from localspec.types import Floats, Row, Token

_KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml_type
_FLASH = {"auto": -1, "off": 0, "on": 1}  # llama_flash_attn_type
_FTYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7}  # llama_ftype
_SPLIT_LAYER = 1  # llama_split_mode
_BUFFER_LINE = re.compile(r":\s+(\S+) (model|KV|RS|compute|output) buffer size =\s+([\d.]+) MiB")
_MIB = 1024 * 1024
_ERROR_LEVEL = 4  # ggml_log_level


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that llama.cpp allocated: on which `device`, for `what`, how many `bytes`."""

    device: str
    what: str
    bytes: int


class _Log:
    """llama.cpp's log: errors kept for messages, buffer lines for the device report."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.errors: list[str] = []
        self.callback = native.llama_log_callback(self._line)
        native.llama_log_set(self.callback, ctypes.c_void_p(0))

    def _line(self, level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR_LEVEL and line:
            self.errors = [*self.errors[-9:], line]
        elif found := _BUFFER_LINE.search(line):
            device, what, size = found.groups()
            self.buffers.append(Buffer(device, what, int(float(size) * _MIB)))

    def take_buffers(self) -> list[Buffer]:
        taken, self.buffers = self.buffers, []
        return taken

    def why(self) -> str:
        """The last errors as one sentence, and forget them."""
        taken, self.errors = self.errors, []
        return "; ".join(taken[-3:]) or "llama.cpp gave no reason"


_log = _Log()
native.llama_backend_init()


def build_info() -> str:
    """Package version and the CPU features or devices that this build uses.

    ROWS is LocalSpec's own kernels for few rows (`native/rows.cpp`), where they were compiled in.
    """
    info: bytes = native.llama_print_system_info()
    rows = " ROWS = 1 |" if has_rows_kernels() else ""
    return f"llama-cpp-python {version('llama-cpp-python')}; {info.decode().strip()}{rows}"


def has_rows_kernels() -> bool:
    """Whether `native/rows.cpp` is in this build of llama.cpp and not switched off."""
    try:
        return bool(native._lib.localspec_rows())  # noqa: SLF001 — a symbol that no binding has
    except AttributeError:
        return False


def physical_cores() -> int:
    """Cores this process may use; hyper-threads of one core count once where Linux tells."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    siblings = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(topology.read_text())
        except OSError:
            siblings.add(str(cpu))
    return len(siblings) or os.cpu_count() or 1


class Model:
    """Weights and vocabulary of one GGUF. Outlives its contexts; `close` frees it."""

    def __init__(self, handle: object, buffers: list[Buffer], *, on_cpu: bool) -> None:
        self._handle = handle
        self.on_cpu = on_cpu
        self._vocab = native.llama_model_get_vocab(handle)
        self.buffers = buffers
        self.n_vocab: int = native.llama_vocab_n_tokens(self._vocab)
        self.context_train: int = native.llama_model_n_ctx_train(handle)
        self.parameters: int = native.llama_model_n_params(handle)
        self.size_bytes: int = native.llama_model_size(handle)
        template = native.llama_model_chat_template(handle, None)
        self.chat_template: str | None = template.decode("utf-8", "replace") if template else None
        self.bos = self._token(native.llama_vocab_bos(self._vocab))
        self.eos = self._token(native.llama_vocab_eos(self._vocab))
        self.eog = frozenset(
            token for token in range(self.n_vocab) if native.llama_vocab_is_eog(self._vocab, token)
        )
        self._pieces: dict[Token, bytes] = {}

    @classmethod
    def load(
        cls,
        path: Path,
        placement: Placement = Placement(),  # noqa: B008 — frozen value
        *,
        safe_kernels: bool = False,
        on_progress: Callable[[float], None] | None = None,
    ) -> Model:
        """Load weights. The caller has already passed the file through `catalog.header`.

        Args:
            path: The GGUF (of a split file, the first part).
            placement: Devices, mmap, mlock.
            safe_kernels: Without repacked weights and the CPU kernels that need them.
            on_progress: Called with a fraction from 0 to 1 while tensors are read.

        Raises:
            ModelError: llama.cpp refused the file.
        """
        params = native.llama_model_default_params()
        params.n_gpu_layers = placement.gpu_layers
        params.main_gpu = placement.main_gpu
        params.load_mode = int(placement.mmap) + 2 * int(placement.mlock)
        params.use_extra_bufts = not safe_kernels
        devices = native.llama_max_devices()
        split = (ctypes.c_float * devices)(*placement.tensor_split[:devices])
        if placement.tensor_split:
            params.split_mode = _SPLIT_LAYER
            params.tensor_split = split

        def progressed(fraction: float, _data: object) -> bool:
            if on_progress is not None:
                on_progress(fraction)
            return True

        callback = native.llama_progress_callback(progressed)
        params.progress_callback = callback
        _log.take_buffers()
        handle = native.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            raise ModelError(
                f"{path.name} could not be loaded: {_log.why()}.",
                fix="Run `localspec models show` on it; pull or quantize it again.",
            )
        on_cpu = placement.gpu_layers == 0 or not native.llama_supports_gpu_offload()
        return cls(handle, _log.take_buffers(), on_cpu=on_cpu)

    def close(self) -> None:
        """Free the weights. Contexts on this model must be closed before."""
        if self._handle is not None:
            native.llama_model_free(self._handle)
            self._handle = None

    def _token(self, token: int) -> Token | None:
        return token if 0 <= token < self.n_vocab else None

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
                return list(ids[:count])
            room = -count
        raise EngineError(f"The tokenizer failed on a text of {len(data)} bytes.")

    def piece(self, token: Token) -> bytes:
        """The bytes that a token writes; control tokens write nothing. Raises IndexError."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._render(token, special=False)
        return found

    def special_text(self, token: Token | None) -> str:
        """A special token as it stands in templates, such as "<|im_end|>"."""
        return "" if token is None else self._render(token, special=True).decode("utf-8", "replace")

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
        self.buffers = _log.take_buffers()
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
        _log.take_buffers()
        handle = native.llama_init_from_model(model._handle, params)  # noqa: SLF001 — same file
        if not handle:
            raise ModelError(
                f"No context of {slots} x {context} tokens could be made: {_log.why()}.",
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
            raise EngineError(f"llama_decode gave {code} for {len(rows)} rows: {_log.why()}.")
        if wanted == 0:
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


def quantize(source: Path, destination: Path, *, kind: str, threads: int = 0) -> None:
    """Requantize every matrix of `source` to `kind` (llama_model_quantize, pure).

    Raises:
        ModelError: unknown kind, or llama.cpp refused.
    """
    if kind not in _FTYPES:
        raise ModelError(f"{kind} is not one of {', '.join(_FTYPES)}.")
    params = native.llama_model_quantize_default_params()
    params.ftype = _FTYPES[kind]
    params.pure = True
    params.allow_requantize = True
    params.nthread = threads or physical_cores()
    code = native.llama_model_quantize(
        str(source).encode(), str(destination).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise ModelError(f"{source.name} could not be quantized: {_log.why()}.")


def measure_decode(path: Path, *, threads: int = 0, tokens: int = 24) -> float:
    """Tokens per second when a model decodes one row at a time: the median of `tokens` steps.

    Raises:
        ModelError: the file cannot be loaded.
    """
    model = Model.load(path)
    try:
        context = Context.open(model, Placement(threads=threads), slots=1, context=256, rows=16)
        try:
            spans = []
            for position in range(tokens):
                begin = time.perf_counter()
                context.decode([Row(position % model.n_vocab, position, 0, wants_logits=True)])
                spans.append(time.perf_counter() - begin)
        finally:
            context.close()
    finally:
        model.close()
    return 1 / float(np.median(spans[2:]))
