"""Playing one streamed answer into a sink, and keeping what came of it whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, cast

from localspec.client import End, Event, Piece, Waiting
from localspec.errors import LocalSpecError

if TYPE_CHECKING:
    from collections.abc import Generator

    from localspec.cli.render import Notice, Sink


@dataclass(frozen=True, slots=True)
class Answer:
    """What arrived. `end` is None when Ctrl-C (`error` None too) or `error` cut it short."""

    text: str
    end: End | None = None
    error: LocalSpecError | None = None
    waited_seconds: float = 0.0
    """From the question to the first text, whatever the time went into."""

    @property
    def interrupted(self) -> bool:
        """True when the person stopped it."""
        return self.end is None and self.error is None


def play(events: Iterator[Event], sink: Sink, notice: Notice) -> Answer:
    """Show events as they come. Ctrl-C closes the connection, which stops the daemon's work too."""
    pieces: list[str] = []
    asked_at, waited_seconds = monotonic(), 0.0
    end: End | None = None
    error: LocalSpecError | None = None
    with closing(cast("Generator[Event]", events)):
        try:
            for event in events:
                if isinstance(event, Waiting):
                    notice.show(event.text)
                    continue
                notice.clear()
                if isinstance(event, Piece):
                    waited_seconds = waited_seconds or monotonic() - asked_at
                    pieces.append(event.text)
                    sink.write(event)
                else:
                    end = event
        except KeyboardInterrupt:
            pass
        except LocalSpecError as failure:
            error = failure
        finally:
            notice.clear()
            sink.close(end)
    return Answer("".join(pieces), end, error, waited_seconds)
