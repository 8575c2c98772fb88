"""Keeps the state of a request with which the next worker goes on. Pure, no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from localspec.errors import ModelError
from localspec.wire import frames
from localspec.wire.messages import (
    Delta,
    Generate,
    Load,
    Question,
    Reading,
    Render,
    Replay,
    SlotAction,
    SoFar,
    Started,
)
from localspec_daemon.supervisor.worker import StreamEvent

FileIdentity: TypeAlias = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file: one changes when its bytes do."""
Files: TypeAlias = tuple[FileIdentity, ...]
"""A model's files: its target and, if there are any, draft, head, projector and adapters."""
WorkerRequest: TypeAlias = Generate | Replay | Question | SlotAction

MAX_RESUMES = 2
"""Workers that may die under a request before it is given up."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The request goes on with another worker; `cause` says how the last one ended."""

    cause: str


@dataclass(slots=True, eq=False)
class Stream:
    """A request and the part of its answer that has come. Request lifetime.

    Give every event of a worker to `take` and pass on its result; `command` is the message for the
    next worker. `suspects.Trials` counts in `crashes` the workers that died while they had the
    request, unless another one on trial is to blame; `faults` are those crashes that a request can
    have caused. `on_worker` is true while a worker has the request. `thoughts_over`: its client has
    ended the answer's thoughts.
    """

    request: WorkerRequest
    crashes: int = 0
    faults: int = 0
    on_worker: bool = False
    suspected: bool = False
    blamed: bool = False
    thoughts_over: bool = False
    _started: Started | None = None
    _tokens: list[int] = field(default_factory=list)
    _sources: list[str] = field(default_factory=list)
    _latest: Delta | None = None

    @property
    def is_warm_up(self) -> bool:
        """Whether it is a warm-up: it only fills the prompt cache, while the worker is idle."""
        request = self.request
        return isinstance(request, Generate) and request.max_tokens == 0 and not request.echo

    @property
    def begun(self) -> bool:
        """Whether a part of the answer has come."""
        return self._latest is not None

    def take(self, event: StreamEvent) -> StreamEvent | None:
        """Take the next event of the worker; None if the client got it from an earlier worker."""
        if isinstance(event, Started):
            again, self._started = self._started is not None, self._started or event
            return None if again else event
        if isinstance(event, Reading) and self._latest:
            return None
        if isinstance(event, Delta):
            self._latest = event
            self._tokens += event.decided
            self._sources += event.decided_by
        return event

    def check_files(self, name: str, before: Files, now: Iterable[FileIdentity]) -> None:
        """Raise ModelError if the answer has begun and a file that decides it was replaced."""
        if self.begun and not set(now) <= set(before):
            raise ModelError(
                f"A file of {name} was replaced while it answered, and its worker has ended: the "
                "rest of the answer would be another model's.",
                fix="Ask again.",
            )

    def command(self) -> WorkerRequest:
        """The message for the next worker: the request, and the text it goes on from."""
        if not isinstance(self.request, Generate):
            return self.request
        request = self.request
        if self.thoughts_over:
            request = msgspec.structs.replace(request, thoughts_over=True)
        if not (self._latest and self._started):
            return request
        so_far = SoFar(
            prompt=self._started.prompt,
            cached_tokens=self._started.cached_tokens,
            tokens=list(self._tokens),
            sources=list(self._sources),
            held=self._latest.held,
            spent=self._latest.spent,
            origin=self._started.origin,
        )
        return msgspec.structs.replace(request, so_far=so_far)


def deciding(load: Load) -> list[str]:
    """The files that decide a model's answers; drafts decide only their speed."""
    files = (load.target_path, load.projector, *(each.path for each in load.adapters))
    return [path for path in files if path]


def digest(request: WorkerRequest) -> bytes:
    """The SHA-256 of a request without its id, client and seed.

    Raises RequestError for one that cannot be sent to a worker.
    """
    return hashlib.sha256(frames.pack(_anonymous(request))).digest()


def _anonymous(request: WorkerRequest) -> WorkerRequest:
    match request:
        case Generate():
            sampling = msgspec.structs.replace(request.sampling, seed=0)
            blank = {"id": "", "client": "", "session": ""}
            return msgspec.structs.replace(request, **blank, sampling=sampling, so_far=None)
        case Replay():
            return msgspec.structs.replace(request, request=_anonymous(request.request))
        case Render():
            return msgspec.structs.replace(request, id="", request=_anonymous(request.request))
        case _:
            return msgspec.structs.replace(request, id="")
