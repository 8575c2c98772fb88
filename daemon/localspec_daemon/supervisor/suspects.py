"""Finds the request that crashes workers, and refuses it from then on. Pure: time is an argument.

After a crash all requests of the worker are suspects. They are sent to the next worker one at a
time: no other request is admitted until the one on trial has read its prompt and generated past the
place of the crash. If the worker dies again, the request on trial is to blame.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from localspec.errors import Poisonous
from localspec_daemon.supervisor.resumption import Files, Stream, WorkerRequest, digest

TRIAL_TOKENS = 16
"""New tokens that end a trial: then the request is past the place of the crash."""
MAX_FAULTS = 2
"""Workers that may die of a request before it is refused."""
REFUSAL_SECONDS = 600.0
_MAX_REFUSED = 256


@dataclass(slots=True)
class Trials:
    """The suspected requests of one model after a crash. At most one is on trial."""

    _on_trial: Stream | None = None
    _tokens: int = 0
    _suspects: list[Stream] = field(default_factory=list)

    def admits(self, stream: Stream) -> bool:
        """Whether the stream may be sent to the worker now; the trial of a suspect begins then."""
        if self._on_trial not in (None, stream):
            return False
        if stream.suspected:
            self._on_trial, self._tokens = stream, 0
        return True

    def progressed(self, stream: Stream, tokens: int) -> bool:
        """Count new tokens of a stream. True when they end its trial."""
        if stream is not self._on_trial:
            return False
        self._tokens += tokens
        if self._tokens < TRIAL_TOKENS:
            return False
        stream.suspected = False
        self._on_trial = None
        return True

    def over(self, stream: Stream) -> None:
        """End the trial of a stream that has left the worker."""
        if stream is self._on_trial:
            self._on_trial = None

    def crashed(self, running: Collection[Stream], *, faulty: bool) -> Stream | None:
        """Record that the worker died with the `running` streams; the one to blame, if it is known.

        `faulty`: a request may have been the cause. No request is suspected after a signal from
        outside or a lack of memory.
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
        """Blame one stream, and clear the other suspects of the crash before."""
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
    """Requests that are refused for a while because workers died of them, as hashes.

    Each entry is for the files of one model: a broken file crashes workers without a fault of the
    request, and then another model, or the replaced file, may answer it.
    """

    _known: dict[tuple[Files, bytes], tuple[float, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, files: Files, request: WorkerRequest, cause: str, now: float) -> Poisonous:
        """Refuse a request on that model from now on; the error for its client."""
        self._known = {key: entry for key, entry in self._known.items() if entry[0] > now}
        while len(self._known) >= _MAX_REFUSED:
            del self._known[next(iter(self._known))]
        self._known[files, digest(request)] = (now + REFUSAL_SECONDS, cause)
        return _refusal(REFUSAL_SECONDS, cause)

    def check(self, files: Files, request: WorkerRequest, now: float) -> None:
        """Raises Poisonous for a request that is refused on the model of these files."""
        if not self._known:  # nearly always: no long prompt is hashed then
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
