"""What crosses the socketpair between supervisor and worker, and the shapes both sides publish.

Frames are a 4-byte big-endian length followed by one msgpack message, at most `MAX_FRAME_BYTES`.
Both sides decode with a closed schema: a frame that does not fit ends the connection.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from localspec.config import Config
from localspec.types import FinishReason, SamplingParams, SourceCount, SpeculationParams

MAX_FRAME_BYTES = 32 * 1024 * 1024


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat, already reduced to text; `extra` keeps fields only templates read."""

    role: str
    content: str
    extra: dict[str, Any] = {}


# --- supervisor -> worker -------------------------------------------------------------------------


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first frame: what to load. `safe_kernels` is set after a load that crashed."""

    model: str
    target_path: str
    draft_path: str | None
    config: Config
    safe_kernels: bool = False


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """One request. Exactly one of `messages`, `prompt` and `prompt_tokens` is set.

    `client` is the principal that the supervisor established, never a field of the request; it keys
    the prefix cache and the length statistics. `endpoint` is "chat" or "completion".
    `prediction` is the text that the client expects as the answer, empty where it expects none.
    """

    id: str
    endpoint: str
    client: str
    sampling: SamplingParams
    speculation: SpeculationParams
    max_tokens: int | None = None
    messages: list[Message] | None = None
    prompt: str | None = None
    prompt_tokens: list[int] | None = None
    stop: list[str] = []
    ignore_eos: bool = False
    echo: bool = False
    prediction: str = ""
    response_format: dict[str, Any] | None = None
    template_kwargs: dict[str, Any] = {}


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The client has gone. Frees the slot within two steps; an unknown id is ignored."""

    id: str


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Finish nothing more; leave with exit code 0 after a `Goodbye`."""


Command: TypeAlias = Load | Generate | Cancel | Quit

# --- worker -> supervisor -------------------------------------------------------------------------


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Loading: `stage` is "target", "draft", "warmup" or "probe"; `fraction` runs from 0 to 1."""

    stage: str
    fraction: float


class DeviceMemory(msgspec.Struct, frozen=True):
    """What one device holds of one model."""

    device: str
    what: str
    bytes: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model answers. `speculation_off` names why the pair cannot speculate, if it cannot."""

    model: str
    target_path: str
    draft_path: str | None
    n_vocab: int
    context: int
    context_train: int
    parameters: int
    size_bytes: int
    drafters: list[str]
    speculation_off: str | None
    exactness: str
    exactness_detail: str
    safe_kernels: bool
    llama_build: str
    devices: list[DeviceMemory]
    load_seconds: float


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model cannot be loaded; the worker leaves after this. `code` is of `errors.py`."""

    code: str
    message: str
    fix: str = ""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The request has its slot; `cached_tokens` of `prompt_tokens` need no prefill."""

    id: str
    prompt_tokens: int
    cached_tokens: int


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """New text: whole characters, and nothing that may yet become a stop string.

    `tokens` are those whose last character goes out with it; the text may be empty when they write
    none. `origins` are (characters, source) in order and add up to the text. A source is a
    drafter's name, "prediction" for what was copied from one, "target" for what the target decoded
    itself, or "prompt" for an echo.
    """

    id: str
    text: str
    tokens: list[int]
    origins: list[tuple[int, str]] = []


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's counts; cached tokens are part of the prompt's."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Timings(msgspec.Struct, frozen=True):
    """llama-server's `timings` object, field for field, times in milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = 0
    draft_n_accepted: int = 0


class SpeculationReport(msgspec.Struct, frozen=True):
    """How speculation went in one request.

    `reason` is the router's word: "speculating", or why not (`control/routing.py`). `rounds` counts
    target forwards of the decode phase. Times are seconds of wall clock spent by this request's
    rounds in drafting, in target forwards, and in everything else on the host.
    """

    reason: str
    verify: str
    rounds: int
    drafted: int
    accepted: int
    sources: dict[str, SourceCount]
    draft_seconds: float
    verify_seconds: float
    host_seconds: float
    ttft_seconds: float


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The last event of a request that ended by itself or by `Cancel`."""

    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    speculation: SpeculationReport
    seed: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The last event of a request that could not be served. `code` is of `errors.py`."""

    id: str
    code: str
    message: str
    fix: str = ""
    param: str | None = None
    details: dict[str, int | str] = {}


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent about once a second by the engine's own thread: health means that `steps` moves.

    `routing` counts finished requests by the router's reason.
    """

    steps: int
    active: int
    waiting: int
    prompt_tokens_total: int
    completion_tokens_total: int
    drafted_total: dict[str, int]
    accepted_total: dict[str, int]
    routing: dict[str, int]
    decode_tokens_per_second: float
    cost_ms_by_rows: dict[int, float]


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """An orderly end. An exit without it counts as a crash, whatever the exit code."""


Event: TypeAlias = (
    Progress | Ready | Refused | Started | Delta | Finished | Failed | Heartbeat | Goodbye
)
