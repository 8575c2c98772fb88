"""The messages between supervisor and worker, and the values that both sides publish.

Frames are a 4-byte big-endian length followed by one msgpack message, at most `MAX_FRAME_BYTES`.
Both sides decode with a closed schema: a frame that does not fit ends the connection.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from localspec.config import Config
from localspec.machine import Machine
from localspec.types import FinishReason, Origin, SamplingParams, SourceCount, SpeculationParams
from localspec.wire.questions import Detokenize as Detokenize  # noqa: PLC0414
from localspec.wire.questions import Embed as Embed  # noqa: PLC0414
from localspec.wire.questions import EndThoughts as EndThoughts  # noqa: PLC0414
from localspec.wire.questions import SlotAction as SlotAction  # noqa: PLC0414
from localspec.wire.questions import Tokenize as Tokenize  # noqa: PLC0414
from localspec.wire.replayed import Fork as Fork  # noqa: PLC0414 - part of what crosses
from localspec.wire.replayed import Replayed as Replayed  # noqa: PLC0414
from localspec.wire.replayed import Trace as Trace  # noqa: PLC0414
from localspec.wire.so_far import SoFar as SoFar  # noqa: PLC0414
from localspec.wire.so_far import Spent as Spent  # noqa: PLC0414
from localspec.wire.values import (
    Adapter,
    CallDelta,
    DraftHead,
    Image,
    PrefixFigures,
    Snippet,
    Timings,
    TokenLogprob,
    Usage,
)

MAX_FRAME_BYTES = 32 * 1024 * 1024

REMOTE_LOST_EXIT = 76
"""Exit code of a worker that lost a remote machine: llama.cpp ends the process then."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat, reduced to text; `extra` has the fields that only templates read.

    The text holds the marks of its `images`.
    """

    role: str
    content: str
    extra: dict[str, Any] = {}
    images: list[Image] = []


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first frame: the model to load, and how.

    `safe_kernels` loads plain kernels after a crash. The first `smaller` plans, the largest ones,
    are left out after workers died for want of memory; plans use at most `host_bytes` of the host's
    memory. With a `machine` all times come from its table. `no_draft` is the reason to load no
    draft, `no_head` the reason to load no `head`; `template` is the user's chat template.
    `adapters` are LoRA adapters that are loaded with the model; their places are their ids.
    `projector` is the file that makes vectors of images, `no_projector` the reason to use none.
    """

    model: str
    target_path: str
    draft_path: str | None
    config: Config
    safe_kernels: bool = False
    machine: Machine | None = None
    smaller: int = 0
    host_bytes: int | None = None
    no_draft: str = ""
    head: DraftHead | None = None
    no_head: str = ""
    template: str | None = None
    adapters: list[Adapter] = []
    projector: str = ""
    no_projector: str = ""


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """One request, with one of `messages`, `prompt`, `prompt_tokens` and `prompt_pieces`.

    Prompt: `prompt_pieces` are texts and tokens in a row; `prefill` begins the answer to `messages`
    and is not sent back; without `reuse` no cached prefix is used. `client` is the principal that
    the supervisor established: it keys the prefix cache and the length statistics. `session` is the
    client's name of the conversation, by which it finds its slot again. `endpoint` is "chat" or
    "completion". `tools`, `tool_choice` and the like are as in OpenAI's chat, for every dialect.

    Context: an answer that `shifts` goes on at the end of the context: the first `keep` tokens stay
    (-1 is the prompt), and `discard` tokens behind them are forgotten (0 is half of those behind
    them). `shifts` None is as configured.

    Model: `lora` has scales of LoRA adapters by id, with 0 for all others; None leaves the scales
    with which they were loaded.

    Infill: `suffix` follows a `prompt` whose middle is wanted; `extra` are other files, `begun` is
    the middle's beginning, and a line indented less than `indent` ends it.

    Answer: `max_tokens` 0 only reads the prompt. `prediction` is the text that the client expects.
    `biased_texts` bias each token of a text, as `logit_bias` does. `logprobs` is a count of
    alternatives for each token; with `after_sampling` they are of the law after the sampler chain.
    With `reasoning_apart` False thoughts are part of the text; they have at most `max_thoughts`
    tokens, if the model's format marks them. `EndThoughts` can end them early in an answer with
    `reasoning_control`; `thoughts_over` says that it has. `tells_prompt` puts the prompt as text
    into `Started`, `tells_reading` sends `Reading`s. The answer ends once it has a whole line and
    its first token is `predict_seconds` old, or if it has no token `prompt_seconds` after it got
    its slot. With `so_far` the answer continues one that began on another worker.
    """

    id: str
    endpoint: str
    client: str
    sampling: SamplingParams
    speculation: SpeculationParams
    biased_texts: list[tuple[str, float]] = []
    max_tokens: int | None = None
    messages: list[Message] | None = None
    prompt: str | None = None
    prompt_tokens: list[int] | None = None
    prompt_pieces: list[int | str] | None = None
    stop: list[str] = []
    ignore_eos: bool = False
    echo: bool = False
    prediction: str = ""
    response_format: dict[str, Any] | None = None
    template_kwargs: dict[str, Any] = {}
    prefill: str = ""
    logprobs: int | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: str | None = None
    reasoning_apart: bool = True
    max_thoughts: int | None = None
    reasoning_control: bool = False
    thoughts_over: bool = False
    suffix: str | None = None
    extra: list[Snippet] = []
    begun: str = ""
    indent: int = 0
    prompt_seconds: float | None = None
    predict_seconds: float | None = None
    session: str = ""
    reuse: bool = True
    after_sampling: bool = False
    tells_prompt: bool = False
    tells_reading: bool = False
    lora: dict[int, float] | None = None
    shifts: bool | None = None
    keep: int = 0
    discard: int = 0
    so_far: SoFar | None = None


class Replay(msgspec.Struct, frozen=True, tag="replay"):
    """Replays a text that answered `request` through target and drafters; ends in `Replayed`."""

    request: Generate
    text: str

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def client(self) -> str:
        """The request's client."""
        return self.request.client


class Render(msgspec.Struct, frozen=True, tag="render"):
    """Asks for the prompt of a request, as text and as tokens."""

    id: str
    request: Generate


Question: TypeAlias = Tokenize | Detokenize | Render | Embed
"""Requests that need no slot. Answered with `QuestionAnswer`, or with `Failed`."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Ends a request whose client has gone, within two steps; an unknown id is ignored."""

    id: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Drops all that is kept of texts: the prefix store, and the contents of idle slots."""


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Ends the worker at once, with a `Goodbye` and exit code 0."""


Command: TypeAlias = (
    Load | Generate | Replay | Question | SlotAction | EndThoughts | Cancel | Forget | Quit
)


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """The progress of a load, or of request `id`.

    `stage` of a load: "room", "target", "draft", "warmup", "probe", "images", "ready"; of a
    request: "queue", "probe". `why` is for people.
    """

    stage: str
    fraction: float
    why: str = ""
    id: str = ""


class DeviceMemory(msgspec.Struct, frozen=True):
    """One device's share of one model."""

    device: str
    what: str
    bytes: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is loaded; `speculation_off` is the reason if nothing can be drafted for it.

    Rows are padded to a multiple of `row_multiple`. `layers` are the first and the last one on each
    device, the output counted too; `placement` is the plan in words, `takes` its bytes by device.
    `context` is the length of one session, `cells` are those of all `slots`. `template` is the
    origin of the chat template where it is not the model's file. `format` is the format of calls,
    `format_warning` its problem, if it has one. `head` describes the head that drafts, or the
    reason why an existing one does not. `sees`: the model reads images; `projector` says with
    which file, or why it reads none. `rollback` says how rejected tokens are taken back, where that
    is not by forgetting cells.
    """

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
    row_multiple: int = 1
    layers: dict[str, tuple[int, int]] = {}
    slots: int = 0
    cells: int = 0
    placement: str = ""
    takes: dict[str, int] = {}
    gpus: list[DeviceMemory] = []
    template: str = ""
    format: str = ""
    format_warning: str = ""
    head: str = ""
    sees: bool = False
    projector: str = ""
    rollback: str = ""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model cannot be loaded; the worker ends after this. `code` is one of `errors.py`."""

    code: str
    message: str
    fix: str = ""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The request has its slot; `cached_tokens` of the `prompt_tokens` need no prefill.

    `origin` says where their memory was: in the slot, or in the prefix store, in memory or on disk.

    `relaxed` are the keys of the request's JSON schema that its answer may violate. `text` is the
    prompt as text, for a request that `tells_prompt`.
    """

    id: str
    prompt_tokens: int
    cached_tokens: int
    relaxed: list[str] = []
    prompt: list[int] = []
    text: str = ""
    slot: int = -1
    origin: Origin = "slot"


class Reading(msgspec.Struct, frozen=True, tag="reading"):
    """The progress of a prompt: tokens read, cached ones included, and the seconds spent."""

    id: str
    tokens: int
    seconds: float


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """New text: whole characters, without any that may yet be part of a stop string.

    `tokens` are those whose last character goes out with this text, which is empty if they write
    none. `origins` are (characters, source) in order and add up to the text. A source is a
    drafter's name, "prediction" for tokens copied from the client's prediction, "target" for those
    that the target decoded itself, or "prompt" for an echo. `logprobs` are those of `tokens`, where
    requested. `reasoning` are thoughts, which come before the text; `calls` come after it.

    The rest is for `SoFar`: `decided` are the new tokens, each with its source in `decided_by`;
    `held` are the logprobs of tokens whose text is still held back.
    """

    id: str
    text: str
    tokens: list[int]
    origins: list[tuple[int, str]] = []
    logprobs: list[TokenLogprob] = []
    reasoning: str = ""
    calls: list[CallDelta] = []
    decided: list[int] = []
    decided_by: list[str] = []
    held: list[TokenLogprob] = []
    spent: Spent = Spent()


class SpeculationReport(msgspec.Struct, frozen=True):
    """The figures of speculation in one request; `reason` is the router's (`engine/routing.py`).

    `rounds` counts target forwards of the decode phase; times are those of its rounds.
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
    exactness: str = "standard"


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The last event of a request that ended by itself or by `Cancel`.

    `stop` is the stop string that ended the answer, if one did; `full`: the context's end did.
    """

    id: str
    reason: FinishReason
    usage: Usage
    timings: Timings
    speculation: SpeculationReport
    seed: int
    tool_calls: int = 0
    stop: str = ""
    full: bool = False


class QuestionAnswer(msgspec.Struct, frozen=True, tag="told"):
    """The answer to a question; the pieces are the bytes of the tokens, special ones spelled.

    `vectors` are 32-bit floats, lowest byte first; beside them `tokens` has the count of each
    text's tokens. After a `SlotAction` it has the count of the slot's tokens, `size` is the bytes
    of its file, and `seconds` the time of the action.
    """

    id: str
    text: str = ""
    tokens: list[int] = []
    pieces: list[bytes] = []
    vectors: list[bytes] = []
    size: int = 0
    seconds: float = 0.0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The last event of a request that could not be served. `code` is one of `errors.py`."""

    id: str
    code: str
    message: str
    fix: str = ""
    param: str | None = None
    details: dict[str, int | str] = {}


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """A sign of life once a second from the engine's thread: a healthy worker's `steps` grow.

    `routing` counts finished requests by reason. `draft_ms` is the cost of a drafted token by
    source, where it is not free; `host_ms` is the host's part of a round, `host_row_ms` its further
    part for each drafted row; `far_...` are costs behind `far_tokens`. `measuring`: costs or
    exactness are still to be measured. `checking`: the exactness check's forwards so far, and in
    all. `corpus` says what is in the index of the user's folders; `indexing`: it is not up to date
    yet. `idle_work`: the worker computes without a request, or soon will.
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
    draft_ms: dict[str, float] = {}
    host_ms: float = 0.0
    host_row_ms: float = 0.0
    far_tokens: int = 0
    far_ms_by_rows: dict[int, float] = {}
    far_draft_ms: dict[str, float] = {}
    measuring: bool = False
    checking: tuple[int, int] | None = None
    exactness_detail: str = ""
    kernels: str = ""
    idle_work: bool = False
    corpus: str = ""
    indexing: bool = False
    kv_held: int = 0
    kv_cells: int = 0
    gpus: dict[str, int] = {}
    prefixes: PrefixFigures = PrefixFigures()


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """Announces an orderly end. An exit without it counts as a crash, whatever the exit code."""


Last: TypeAlias = Finished | Replayed | QuestionAnswer | Failed
Event: TypeAlias = (
    Progress | Ready | Refused | Started | Reading | Delta | Last | Heartbeat | Goodbye
)
