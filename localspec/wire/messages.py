"""Messages between supervisor and worker, and the shapes that both sides publish.

Frames are a 4-byte big-endian length followed by one msgpack message, at most `MAX_FRAME_BYTES`.
Both sides decode with a closed schema: a frame that does not fit ends the connection.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from localspec.config import Config
from localspec.machine import Machine
from localspec.types import FinishReason, SamplingParams, SourceCount, SpeculationParams
from localspec.wire.replayed import Fork as Fork  # noqa: PLC0414 - part of what crosses
from localspec.wire.replayed import Replayed as Replayed  # noqa: PLC0414
from localspec.wire.replayed import Trace as Trace  # noqa: PLC0414
from localspec.wire.values import CallDelta, Snippet, Timings, TokenLogprob, Usage

MAX_FRAME_BYTES = 32 * 1024 * 1024

REMOTE_LOST_EXIT = 76
"""Exit code of a worker that lost a remote: llama.cpp ends the process then, whatever it does."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a chat, already reduced to text; `extra` keeps fields only templates read."""

    role: str
    content: str
    extra: dict[str, Any] = {}


class Spent(msgspec.Struct, frozen=True):
    """The costs of an answer so far, as its workers counted them, without the pauses between them.

    `predicted` are output tokens that the request's prediction told, `aim` is what mirostat aims at
    next; the rest is as in reports.
    """

    ttft_seconds: float = 0.0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    rounds: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    host_seconds: float = 0.0
    predicted: int = 0
    sources: dict[str, SourceCount] = {}
    aim: float = 0.0


class SoFar(msgspec.Struct, frozen=True):
    """An answer whose worker is gone, for the next one to go on with.

    `prompt` and `cached_tokens` are what its first worker said in `Started`; `tokens` were decided,
    each by its source, also those whose text is held back, with logprobs in `held`; others are out.
    """

    prompt: list[int]
    cached_tokens: int
    tokens: list[int]
    sources: list[str]
    held: list[TokenLogprob]
    spent: Spent


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first frame: a model, and how. `no_draft` says why not a draft; `template` is the user's.

    `safe_kernels` are for after a crash; as many plans as `smaller` says are left out after deaths
    for want of memory. They keep to `host_bytes`, and all times are those of a `machine`'s table.
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
    template: str | None = None


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """One request, with one of `messages`, `prompt`, `prompt_tokens` and `prompt_pieces`.

    `client` is the principal that the supervisor established, never a field of the request; it keys
    the prefix cache and the length statistics. `endpoint` is "chat" or "completion".
    `prediction` is the text that the client expects as the answer, empty where it expects none.
    `prefill` is how the answer to `messages` begins: it is read, and not said again. `max_tokens`
    0 reads the prompt and says nothing. `logprobs` asks for each token's, with so many
    alternatives. `tools`, `tool_choice` and the like are as OpenAI's chat has them, whatever
    dialect asked; `suffix` is what follows a `prompt` whose middle is asked for. `session` is
    what the client calls the conversation: it finds its slot again. With a suffix, `extra` are
    other files, `begun` is how the middle begins, and a line indented less than `indent` ends it.
    `predict_seconds` after the first token the answer ends, once it has a line; without a token
    `prompt_seconds` after it had its slot. With `reasoning_apart` False thoughts are part of the
    text. Of `biased_texts` each token is made likelier or less likely, as `logit_bias` does it for
    tokens. Without `reuse` the prompt is read anew. `prompt_pieces` are texts and tokens in a row.
    With `after_sampling` logprobs are those of the law after the sampler chain. `tells_prompt` and
    `tells_reading` ask for the prompt as text, in `Started`, and for `Reading`s. With `so_far` the
    answer has begun on another worker and goes on from there.
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
    so_far: SoFar | None = None


class Replay(msgspec.Struct, frozen=True, tag="replay"):
    """A text that answered `request`, to be led through target and drafters again: `Replayed`."""

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


class Tokenize(msgspec.Struct, frozen=True, tag="tokenize"):
    """A text, to be told as tokens and their pieces."""

    id: str
    text: str
    add_special: bool
    parse_special: bool


class Detokenize(msgspec.Struct, frozen=True, tag="detokenize"):
    """Tokens, to be told as text."""

    id: str
    tokens: list[int]


class Render(msgspec.Struct, frozen=True, tag="render"):
    """A request, of which the prompt is to be told, as text and as tokens."""

    id: str
    request: Generate


class Embed(msgspec.Struct, frozen=True, tag="embed"):
    """Texts or tokens, to be told as a vector each, of which so many first numbers are kept.

    `norm` is llama.cpp's: 2 is Euclid's, -1 none. With `cut` a text that is too long is cut. With a
    `query` each text is a document, and its vector has its score alone.
    """

    id: str
    texts: list[str | list[int | str]]
    norm: int = 2
    width: int | None = None
    cut: bool = False
    query: str | None = None


Question: TypeAlias = Tokenize | Detokenize | Render | Embed
"""Requests that need no slot. Answered with `QuestionAnswer`, or with `Failed`."""


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The client has gone. Frees the slot within two steps; an unknown id is ignored."""

    id: str


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    """Finish nothing more; leave with exit code 0 after a `Goodbye`."""


Command: TypeAlias = Load | Generate | Replay | Question | Cancel | Quit


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Of a load, or of a request: "room", "target", "draft", "warmup", "probe", "ready"; why."""

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
    """The model answers, or says in `speculation_off` why nothing can be drafted for it.

    Rows are padded to a multiple of `row_multiple`. `layers` are first and last on each device, the
    output counted too; `placement` says it in words, `takes` its bytes. `context` is of a session,
    `cells` of all `slots`; `template` says whose it is, where it is not the file's; `format` is how
    calls are read, `format_warning` what is wrong with that.
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


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The model cannot be loaded; the worker leaves after this. `code` is of `errors.py`."""

    code: str
    message: str
    fix: str = ""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The request has its slot; `cached_tokens` of `prompt_tokens`, `prompt`, need no prefill.

    `relaxed` are the keys of its JSON schema that its answer does not keep everywhere. `text` is
    the prompt as text, for a request that `tells_prompt`.
    """

    id: str
    prompt_tokens: int
    cached_tokens: int
    relaxed: list[str] = []
    prompt: list[int] = []
    text: str = ""
    slot: int = -1


class Reading(msgspec.Struct, frozen=True, tag="reading"):
    """So many tokens of the prompt have been read, cached ones included, in so many seconds."""

    id: str
    tokens: int
    seconds: float


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """New text: whole characters, and nothing that may yet become a stop string.

    `tokens` are those whose last character goes out with it; the text may be empty when they write
    none. `origins` are (characters, source) in order and add up to the text. A source is a
    drafter's name, "prediction" for what was copied from one, "target" for what the target decoded
    itself, or "prompt" for an echo. `logprobs` are those of `tokens`, for a request that asked.
    `reasoning` are thoughts, said before the text; `calls` come after it.

    The rest is what `SoFar` needs: `decided` are the tokens that are new, each with its source in
    `decided_by`; `held` are the logprobs of those whose text is still held back.
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
    """How speculation went in one request; `reason` is the router's word (`control/routing.py`).

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
    """The last event of a request that ended by itself or by `Cancel`; it called so many tools.

    `stop` is the stop string that ended it, if one did; `full`: the context ended it.
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

    `vectors` are 32-bit floats, lowest byte first; `tokens` counts those of each text then.
    """

    id: str
    text: str = ""
    tokens: list[int] = []
    pieces: list[bytes] = []
    vectors: list[bytes] = []


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

    `routing` counts finished requests by reason. `draft_ms` is a drafted token by source, where not
    free; `host_ms` the rest of a round, `host_row_ms` more for each drafted row; `far`: behind so
    many tokens. `measuring`: costs are to be measured. `checking`: forwards made, and of how many.
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
    kv_held: int = 0
    kv_cells: int = 0
    gpus: dict[str, int] = {}


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """An orderly end. An exit without it counts as a crash, whatever the exit code."""


Last: TypeAlias = Finished | Replayed | QuestionAnswer | Failed
Event: TypeAlias = (
    Progress | Ready | Refused | Started | Reading | Delta | Last | Heartbeat | Goodbye
)
