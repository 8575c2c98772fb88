"""Makes frames of the events of one stream, and comments on what it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from localspec.wire.messages import Delta, Finished, Progress, Reading, Started
from localspec_daemon.api.dialect import Json, Reply
from localspec_daemon.http.choices import ChoiceEvent
from localspec_daemon.supervisor.resumption import Resumed

Output: TypeAlias = Iterable[Json | str]
"""Frames, and comments as texts."""


@dataclass(slots=True)
class EventWriter:
    """One stream. Request lifetime.

    The progress of a load becomes a comment at each step if `eager`; otherwise none before the
    time `quiet_until`, and then at most one in `silence_seconds`.
    """

    reply: Reply
    silence_seconds: float
    eager: bool
    quiet_until: float
    _why: str = "waiting for the model"
    _begun: bool = False

    def output(self, event: ChoiceEvent | None, now: float) -> Output:
        """The output for the next event; None stands for a pause."""
        output: Output = ()
        match event:
            case None:
                output = tuple(self.reply.waiting()) or (self._why,)
            case _, Progress() as progress:
                output = self._loading(progress, now)
            case _, Resumed(cause):
                output = (f"going on with another worker after {cause}",)
            case _, Started() as started:
                output = self._begin(started)
            case choice, Reading() as reading:
                output = self.reply.reading(choice, reading)
            case choice, Delta() as delta:
                output, self._why = self.reply.delta(choice, delta), ""
            case choice, Finished() as finished:
                output = self.reply.finish(choice, finished)
        return output

    def _loading(self, progress: Progress, now: float) -> Output:
        self._why = progress.why or f"loading {progress.stage} {progress.fraction:.0%}"
        if not self.eager:
            if now < self.quiet_until:
                return ()
            self.quiet_until = now + self.silence_seconds
        return (self._why,)

    def _begin(self, started: Started) -> Output:
        """The beginning of the answer, for the first choice with a slot; nothing for the others."""
        if self._begun:
            return ()
        self._begun, self._why = True, "reading the prompt"
        return self.reply.begin(started)
