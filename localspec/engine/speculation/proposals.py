"""The drafts of one round, before they are verified."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.control.round import Drafted, View
from localspec.engine.session import Session
from localspec.types import Draft


@dataclass(frozen=True, slots=True)
class Proposals:
    """The drafts of one round and what making them cost, aligned with its decoding sessions."""

    sessions: list[Session]
    views: list[View]
    drafts: list[Draft]
    drafted: list[Drafted]
    asked_seconds: float = 0.0
    planning_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent in drafters that are not free, and in free ones that take a while."""
        return sum(drafted.seconds for drafted in self.drafted) + self.asked_seconds
