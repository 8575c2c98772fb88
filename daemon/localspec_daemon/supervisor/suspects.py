"""Which request a worker died of, and which are not let near another one. Pure: time comes in.

A worker takes all of its requests with it, and one of them may be the cause. So after a crash they
are suspected, and each is tried: no other is admitted while it reads its text again and comes
past the place where the worker died. If it dies again, the one on trial is to blame alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from localspec.errors import Poisonous
from localspec_daemon.supervisor.resumption import Stream, WorkerRequest, digest

FileIdentity: TypeAlias = tuple[int, int, int, int]
"""Device, inode, size and modification time of a file: what changes when its bytes do."""
Files: TypeAlias = tuple[FileIdentity, ...]
"""A model's: its target's, and its draft's if it has one."""
TRIAL_TOKENS = 16
"""New tokens that acquit a request: then it is past the place where the worker died."""
MAX_FAULTS = 2
"""Workers that may die of a request before it is refused."""
REFUSAL_SECONDS = 600.0
_MAX_REFUSED = 256


@dataclass(slots=True)
class Trials:
    """The requests of one model in the time after a crash. At most one is on trial."""

    _on_trial: Stream | None = None
    _tokens: int = 0
    _suspects: list[Stream] = field(default_factory=list)

    def admits(self, stream: Stream) -> bool:
        """Whether the stream may go to the worker now; for a suspect its trial begins with that."""
        if self._on_trial not in (None, stream):
            return False
        if stream.suspected:
            self._on_trial, self._tokens = stream, 0
        return True

    def progressed(self, stream: Stream, tokens: int) -> bool:
        """The stream has so many tokens more. True when that ends a trial."""
        if stream is not self._on_trial:
            return False
        self._tokens += tokens
        if self._tokens < TRIAL_TOKENS:
            return False
        stream.suspected = False
        self._on_trial = None
        return True

    def over(self, stream: Stream) -> None:
        """The stream is not with the worker any more."""
        if stream is self._on_trial:
            self._on_trial = None

    def crashed(self, running: Collection[Stream], *, faulty: bool) -> Stream | None:
        """The worker died with these; the one that has killed it and one before, if that is sure.

        `faulty` says that a request can have been the cause: no request is blamed for what was done
        from outside, and none is tried for it.
        """
        tried, self._on_trial = self._on_trial, None
        blamed = [tried] if faulty and tried in running and tried else list(running)
        for stream in blamed:
            stream.crashes += 1
            stream.faults += faulty
            stream.suspected = stream.suspected or faulty
        if not faulty:
            return None
        if len(blamed) == 1 and blamed[0].faults >= MAX_FAULTS:
            self._blame(blamed[0])
            return blamed[0]
        self._suspects = blamed
        return None

    def _blame(self, culprit: Stream) -> None:
        """Those who were accused together with it are cleared of that."""
        culprit.blamed = True
        if culprit in self._suspects:
            for stream in self._suspects:
                if stream is not culprit:
                    stream.crashes -= 1
                    stream.faults -= 1
                    stream.suspected = False
        self._suspects = []


@dataclass(slots=True)
class RefusedRequests:
    """Requests that are refused for a while because they killed workers; none of their text.

    A verdict is of a request on the files of one model: what a broken file dies of says nothing
    about the next model, nor about the file that replaces it.
    """

    _known: dict[tuple[Files, bytes], tuple[float, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, files: Files, request: WorkerRequest, cause: str, now: float) -> Poisonous:
        """Refuse that request of that model from now on; the error for its sender."""
        self._known = {key: entry for key, entry in self._known.items() if entry[0] > now}
        while len(self._known) >= _MAX_REFUSED:
            del self._known[next(iter(self._known))]
        self._known[files, digest(request)] = (now + REFUSAL_SECONDS, cause)
        return _refusal(REFUSAL_SECONDS, cause)

    def check(self, files: Files, request: WorkerRequest, now: float) -> None:
        """Raises Poisonous for a request that is refused now on the model of these files."""
        if not self._known:  # nearly always, and then no long prompt has to be hashed
            return
        until, cause = self._known.get((files, digest(request)), (now, ""))
        if until > now:
            raise _refusal(until - now, cause)


def _refusal(seconds: float, cause: str) -> Poisonous:
    return Poisonous(
        f"{MAX_FAULTS} workers of this model died of this request, the last one: {cause}. "
        f"It is refused here for {seconds / 60:.0f} minutes.",
        fix="Change it, ask another model, or report it: `localspec logs`.",
    )
