"""Serves a model that makes vectors of texts: a loop without sessions and speculation."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from localspec.catalog.plan import Plan
from localspec.errors import (
    ContextOverflow,
    EngineError,
    NotServed,
    OutOfMemory,
    RequestError,
    no_embeddings,
    no_numbers,
    no_ranks,
    no_text,
)
from localspec.types import Floats, Token
from localspec.wire.messages import (
    Cancel,
    DeviceMemory,
    Embed,
    EndThoughts,
    Forget,
    Generate,
    Goodbye,
    Heartbeat,
    Load,
    QuestionAnswer,
    Quit,
    Ready,
    Replay,
    SlotAction,
    Tokenize,
)
from localspec.worker import limits, planning
from localspec.worker.answer import failed
from localspec.worker.load_files import model_files
from localspec.worker.preprocessing import Preprocessing
from localspec.worker.preprocessing import Request as Unread
from localspec.worker.progress import OnProgress
from localspec.worker.questions import answer_question
from localspec.worker.service import HEARTBEAT_SECONDS, Line

if TYPE_CHECKING:
    from localspec.engine.llama.pooling import Pooling

_log = logging.getLogger("localspec.worker")

MAX_TEXTS = 2048
"""Texts of one request: OpenAI's own bound."""
MAX_BYTES = 8 * 1024 * 1024
"""Bytes of one request's vectors: one frame, which the supervisor reads between streams' tokens."""
_LARGEST = 32760
"""The value to which llama.cpp scales the largest number of a vector, with norm 0."""


def gives(command: Load) -> bool:
    """Whether the model of this load gives embeddings. Raises BadGGUF."""
    (target, *_) = model_files(command)
    return planning.header_of(target).embeds


@dataclass(slots=True)
class Encoder:
    """A model that embeds; for a model that answers there is `Loaded`. A context manager."""

    ready: Ready
    pooling: Pooling
    _parts: ExitStack

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()


def load(command: Load, on_progress: OnProgress) -> Encoder:
    """Load the model on its devices, with a context for several texts at once.

    Raises:
        OutOfMemory: there is no room for it.
        ModelError: llama.cpp refused the file or its context.
        ConfigError: config names a device that does not exist.
    """
    files = model_files(command)[:1]
    found = planning.plans(command, files, planning.present())
    for plan, smaller in zip_longest(found, found[1:]):
        try:
            return _load(command, plan, on_progress)
        except OutOfMemory as error:
            _log.warning("plan failed %s: %s", plan.sentence(), error)
            if smaller is None:
                raise
    raise EngineError("There was no plan at all.")


def _load(command: Load, plan: Plan, on_progress: OnProgress) -> Encoder:
    """Carry out one plan. Raises OutOfMemory where memory does not suffice."""
    from localspec.engine.llama.library import build_info  # noqa: PLC0415 - llama.cpp is imported late
    from localspec.engine.llama.model import Model  # noqa: PLC0415 - the same
    from localspec.engine.llama.pooling import Pooling  # noqa: PLC0415 - the same

    began = time.monotonic()
    placement = planning.placed(command.config.engine.target, plan.target)
    with ExitStack() as parts:
        model = Model.load(
            Path(command.target_path),
            placement,
            safe_kernels=command.safe_kernels,
            on_progress=lambda done: on_progress("target", done),
        )
        parts.callback(model.close)
        pooling = Pooling.open(model, placement, texts=plan.slots, rows=plan.rows)
        parts.callback(pooling.close)
        on_progress("warmup", 0.0)
        pooling.embed([[0]])
        on_progress("warmup", 1.0)
        ready = Ready(
            model=command.model,
            target_path=command.target_path,
            draft_path=None,
            n_vocab=model.n_vocab,
            context=plan.rows,
            context_train=model.context_train,
            parameters=model.parameters,
            size_bytes=model.size_bytes,
            drafters=[],
            speculation_off="embeddings",
            exactness="standard",
            exactness_detail="",
            safe_kernels=command.safe_kernels,
            llama_build=build_info(),
            devices=[
                DeviceMemory(one.device, f"target {one.what}", one.bytes)
                for one in (*model.buffers, *pooling.buffers)
            ],
            load_seconds=time.monotonic() - began,
            layers=model.layers,
            slots=plan.slots,
            cells=plan.cells,
            placement=plan.sentence(),
            takes=planning.takes(command, [Path(command.target_path)], plan),
            gpus=planning.cards(),
        )
        return Encoder(ready, pooling, parts.pop_all())


@dataclass(slots=True)
class _Job:
    """One request: its texts in tokens, and the vectors of those that have been read."""

    asked: Embed
    texts: list[list[Token]]
    vectors: list[bytes] = field(default_factory=list)


class EmbeddingService:
    """Answers requests for embeddings until it is told to quit, on the thread that loaded.

    A forward takes one text of each request in turn, as many as fit, so that a long list does not
    hold up other requests. A wrong request fails alone; a forward that fails ends the process.

    Args:
        encoder: The model.
        line: Commands and events.
        clock: Seconds, monotonic.
    """

    def __init__(self, encoder: Encoder, line: Line, clock: Callable[[], float]) -> None:
        self._encoder = encoder
        self._line = line
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self._preprocessing: Preprocessing[_Job | QuestionAnswer] = Preprocessing(
            self._read, line.wake
        )
        self._forwards = self._tokens = 0
        self._beat_at = -HEARTBEAT_SECONDS

    def run(self) -> None:
        """Serve until `Quit`. Whatever else ends it is raised."""
        try:
            going = True
            while going:
                if self._clock() - self._beat_at >= HEARTBEAT_SECONDS:
                    self._beat()
                going = self._obey()
                self._collect()
                self._step()
            self._line.send(Goodbye())
        finally:
            self._preprocessing.close()

    def _obey(self) -> bool:
        """Take the commands that came; wait for one where there is no work. False for `Quit`."""
        due = max(0.0, self._beat_at + HEARTBEAT_SECONDS - self._clock())
        while command := self._line.receive(0.0 if self._jobs else due):
            match command:
                case Quit():
                    return False
                case Cancel(id=id_):
                    self._preprocessing.cancel(id_)
                    self._jobs = deque(job for job in self._jobs if job.asked.id != id_)
                case SlotAction(id=id_) | EndThoughts(id=id_):
                    self._line.send(failed(id_, NotServed("This model has no slots.")))
                case Forget():
                    pass  # nothing is kept of texts
                case Load():
                    raise RuntimeError("A worker loads one model; this was a second Load.")
                case _:
                    self._preprocessing.put(command, self._clock())
        return True

    def _collect(self) -> None:
        for read in self._preprocessing.taken():
            match read.result:
                case _Job() as job:
                    self._jobs.append(job)
                case QuestionAnswer() as answer:
                    self._line.send(answer)
                case error:
                    self._line.send(failed(read.request.id, error))

    def _step(self) -> None:
        """Compute one forward, and send the answers that it completes."""
        batch = self._batch()
        if not batch:
            return
        vectors = self._encoder.pooling.embed([text for _, text in batch])
        self._forwards += 1
        for (job, text), vector in zip(batch, vectors, strict=True):
            self._tokens += len(text)
            if not np.isfinite(vector).all():
                if job in self._jobs:
                    self._jobs.remove(job)
                    error = no_numbers(self._encoder.pooling.model.file)
                    self._line.send(failed(job.asked.id, error))
                continue
            job.vectors.append(scaled(vector, job.asked.norm, job.asked.width).tobytes())
        for job in [job for job in self._jobs if len(job.vectors) == len(job.texts)]:
            self._jobs.remove(job)
            counts = [len(text) for text in job.texts]
            self._line.send(QuestionAnswer(job.asked.id, tokens=counts, vectors=job.vectors))

    def _batch(self) -> list[tuple[_Job, list[Token]]]:
        """Texts for one forward, the next of each request in turn, until one does not fit."""
        batch: list[tuple[_Job, list[Token]]] = []
        pooling, room = self._encoder.pooling, self._encoder.pooling.max_rows
        for job, text in _in_turn(self._jobs):
            room -= len(text)
            if room < 0 or len(batch) == pooling.max_texts:
                break
            batch.append((job, text))
        self._jobs.rotate(-1)  # another request begins next time
        return batch

    # --- beside the forwards ----------------------------------------------------------------------

    def _read(self, request: Unread) -> _Job | QuestionAnswer:
        """Check and tokenize a request; on a preprocessing thread."""
        match request:
            case Embed():
                return self._job(request)
            case Generate() | Replay():
                raise no_text(self._encoder.ready.model)
        return answer_question(request, self._encoder.pooling.model, self)

    def tokenized(self, question: Tokenize) -> list[Token]:
        """The tokens of a text. Raises TooLarge."""
        limits.check_text(question.text, "content")
        return self._encoder.pooling.model.tokenize(
            question.text, add_special=question.add_special, parse_special=question.parse_special
        )

    def prompt(self, _request: Generate) -> tuple[str, list[Token]]:
        """Raises NotServed: an embedding model has no prompts."""
        raise no_text(self._encoder.ready.model)

    def _job(self, asked: Embed) -> _Job:
        """The checked job. Raises NotServed, RequestError, TooLarge, ContextOverflow."""
        pooling = self._encoder.pooling
        if pooling.ranks != (asked.query is not None):
            wrong = no_embeddings if pooling.ranks else no_ranks
            raise wrong(self._encoder.ready.model)
        width = asked.width or pooling.width
        if not 0 < width <= pooling.width:
            raise RequestError(
                f"dimensions = {width}: vectors of this model have {pooling.width} numbers.",
                param="dimensions",
            )
        if not asked.texts or len(asked.texts) > MAX_TEXTS:
            raise RequestError(
                f"There are {len(asked.texts)} texts; 1 to {MAX_TEXTS} may be.", param="input"
            )
        if len(asked.texts) * width * 4 > MAX_BYTES:
            raise RequestError(
                f"{len(asked.texts)} vectors of {width} numbers are more than fit one answer.",
                fix="Send fewer texts at once, or ask for fewer dimensions.",
                param="input",
            )
        texts: Iterator[list[Token]]
        if asked.query is None:
            texts = (self._pieced(text, "input") for text in asked.texts)
        else:
            limits.check_text(asked.query, "query")
            texts = pooling.model.pairs(asked.query, map(_document, asked.texts))
        return _Job(asked, [self._bounded(*numbered, asked) for numbered in enumerate(texts)])

    def _bounded(self, index: int, tokens: list[Token], asked: Embed) -> list[Token]:
        """The tokens of one text, cut where asked. Raises RequestError, ContextOverflow."""
        most, param = self._encoder.ready.context, "input"
        if not tokens:
            raise RequestError(f"{param}[{index}] is empty.", fix="Send some text.", param=param)
        if len(tokens) > most and not asked.cut:
            raise ContextOverflow(
                f"{param}[{index}] has {len(tokens)} tokens; too large: one text may have {most}.",
                fix="Send it in pieces, or raise engine.context in config.toml.",
                param=param,
                details={"n_prompt_tokens": len(tokens), "n_ctx": most},
            )
        return tokens if len(tokens) <= most else [*tokens[: most - 1], tokens[-1]]

    def _pieced(self, text: str | list[int | str], param: str) -> list[Token]:
        """The tokens of pieces: tokens stay, texts are tokenized, the first with special tokens."""
        model, tokens = self._encoder.pooling.model, list[Token]()
        for place, piece in enumerate([text] if isinstance(text, str) else text):
            if isinstance(piece, str):
                limits.check_text(piece, param)
                tokens += model.tokenize(piece, add_special=not place, parse_special=False)
            else:
                limits.check_tokens([piece], model.n_vocab, param)
                tokens.append(piece)
        return tokens

    def _beat(self) -> None:
        self._beat_at = self._clock()
        self._line.send(
            Heartbeat(
                steps=self._forwards,
                active=len(self._jobs),
                waiting=self._preprocessing.pending,
                prompt_tokens_total=self._tokens,
                completion_tokens_total=0,
                drafted_total={},
                accepted_total={},
                routing={},
                decode_tokens_per_second=0.0,
                cost_ms_by_rows={},
            )
        )


def _document(text: str | list[int | str]) -> str:
    """The text of a document. Raises RequestError, TooLarge."""
    if not isinstance(text, str) or not text:
        raise RequestError("A document must be a text.", param="documents")
    limits.check_text(text, "documents")
    return text


def _in_turn(jobs: Iterable[_Job]) -> Iterator[tuple[_Job, list[Token]]]:
    """The texts not yet computed: the next of each request, then the one after it."""
    left = [[(job, text) for text in job.texts[len(job.vectors) :]] for job in jobs]
    for turn in zip_longest(*left):
        yield from (one for one in turn if one is not None)


def scaled(vector: Floats, norm: int, width: int | None) -> Floats:
    """The first `width` numbers of a vector, scaled as llama.cpp does for `norm`."""
    kept = vector[:width].astype(np.float64)
    if norm < 0:
        return kept.astype(np.float32)
    sizes = np.abs(kept)
    length = sizes.max() / _LARGEST if norm == 0 else float((sizes**norm).sum()) ** (1 / norm)
    return (kept / length if length else kept).astype(np.float32)
