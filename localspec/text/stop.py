"""Finds stop strings in streamed text, and holds back what may become one."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Ends a text at the first stop string completed in it. Request lifetime.

    The place where a stop string is completed counts, not where it begins, so the result does not
    depend on how the text was cut into pieces. Of stop strings completed by the same character the
    longest is removed.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every answer before it began")
        self._stops = tuple(stops)
        self._held = ""
        self.found = ""
        """The stop string that was completed; whatever comes later is ignored."""

    @property
    def stopped(self) -> bool:
        """True once a stop string was completed."""
        return bool(self.found)

    def push(self, text: str) -> str:
        """The text that may go out now: it can no longer be part of a stop string."""
        if self.stopped:
            return ""
        buffer = self._held + text
        first = self._first_completed(buffer)
        if first is not None:
            begin, end = first
            self.found = buffer[begin:end]
            self._held = ""
            return buffer[:begin]
        released = len(buffer) - self._possible_beginning(buffer)
        self._held = buffer[released:]
        return buffer[:released]

    def flush(self) -> str:
        """The text held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def _first_completed(self, buffer: str) -> tuple[int, int] | None:
        """Begin and end of the stop string that is completed first; None if there is none."""
        places = ((buffer.find(stop), len(stop)) for stop in self._stops)
        found = ((begin + length, begin) for begin, length in places if begin >= 0)
        first = min(found, default=None)
        return first and (first[1], first[0])

    def _possible_beginning(self, buffer: str) -> int:
        """Length of the longest suffix of `buffer` that is a proper beginning of a stop string."""
        return max(
            (
                length
                for stop in self._stops
                for length in range(1, min(len(stop), len(buffer) + 1))
                if buffer.endswith(stop[:length])
            ),
            default=0,
        )
