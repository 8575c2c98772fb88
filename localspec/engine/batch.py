"""Decides the rows of one forward: how many each session has, and padding. Runs nothing.

Sessions that stream come first, then prompts, then drafts (`engine/scheduler.py`). The class of
forwards (`exactness/classes.py`) decides how rows are shaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.control.forwards import forwards
from localspec.control.round import Policy
from localspec.engine import scheduler
from localspec.engine.exactness.classes import Shape, layout_of
from localspec.engine.kv.rollback import snapshots_of
from localspec.engine.rows import by_slot, rows_of
from localspec.engine.scheduler import RowDemand, Share
from localspec.engine.session import Session
from localspec.types import Backend, Draft, Row

NO_DRAFT = Draft()
LAST_ROWS = 64
"""Where more tokens of a prompt are left, the last one is read in a forward of its own. That is one
forward more, but when the same prompt comes again, only the last one is needed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one forward. `sessions` and `shares` are aligned, in the order of slots.

    `padding` are rows after the last one that make the forward cheaper. `prompt_rows` counts rows
    of prompts. A `regular` batch is one forward in which no decoding session reads anything again.
    """

    sessions: list[Session]
    shares: list[Share]
    rows: list[Row]
    padding: list[Row]
    prompt_rows: int
    regular: bool


class Batcher:
    """Makes the batches of one engine for one class of forwards.

    Args:
        target: Has the context that bounds each slot.
        shape: The class of forwards.
        policy: Prices padding.
        max_rows: Most rows of a forward.
        most_padded: Most rows of a forward with padding; each wants logits.
    """

    def __init__(
        self, target: Backend, shape: Shape, policy: Policy, max_rows: int, most_padded: int
    ) -> None:
        self._target, self._shape, self._policy = target, shape, policy
        self._layout = layout_of(target, shape)
        self._max_rows, self._most_padded = max_rows, most_padded

    def batch(
        self, sessions: Sequence[Session], drafts: Mapping[Session, Draft], chunk: int
    ) -> Batch:
        """The next forward of these sessions, with at most `chunk` rows of prompts."""
        shares = self._shares(sessions, drafts, chunk)
        going, shares = by_slot(list(sessions), shares)
        reading = any(session.tail for session in going if not session.decoding)
        if not reading:
            shares = self._evened(going, shares)
        pairs = list(zip(going, shares, strict=True))
        rows = [
            row
            for session, share in pairs
            for row in rows_of(session, share, drafts.get(session, NO_DRAFT), self._shape.multiple)
        ]
        counts = {session.slot: share.rows for session, share in pairs}
        made = forwards(counts, self._layout, snapshots_of(self._target))
        return Batch(
            going,
            shares,
            rows,
            self._padding(rows) if not reading and self._shape.mixes else [],
            prompt_rows=sum(share.tail for session, share in pairs if not session.decoding),
            regular=len(made) == 1 and not any(s.decoding and s.tail > 1 for s in going),
        )

    def _shares(
        self, sessions: Sequence[Session], drafts: Mapping[Session, Draft], chunk: int
    ) -> list[Share]:
        needs = [
            RowDemand(
                session.tail,
                len(drafts.get(session, NO_DRAFT)),
                self._room(session),
                session.undone if session.decoding else 0,
            )
            for session in sessions
        ]
        return scheduler.share(
            needs, max_rows=self._max_rows, chunk=chunk, multiple=self._shape.multiple
        )

    def _room(self, session: Session) -> int:
        """Rows of a session that the next forward may hold.

        A prompt stops at an image. Where the memory is a state, it also stops at the borders of
        turns, and before its last token if more than LAST_ROWS are left: there the state is
        copied, and a later prompt can go back to the copy.
        """
        room: int = self._shape.room(session.cached)
        if (image := session.image) is not None:
            room = min(room, image.start - session.cached)
        if session.decoding or self._shape.rollback != "restore":
            return room
        last = len(session.tokens) - 1
        borders = [*session.request.borders, *([last] if session.tail > LAST_ROWS else ())]
        rows: list[int] = [at - session.cached for at in borders if at > session.cached]
        return min([room, *rows])

    def _evened(self, sessions: list[Session], shares: list[Share]) -> list[Share]:
        """Pad all sessions to equal rows, where one forward of those is cheaper than several."""
        rows = [share.rows for share in shares]
        widest, neighbours = max(rows), sessions[-1].slot - sessions[0].slot == len(sessions) - 1
        if self._layout != "streams" or min(rows) == widest or not neighbours:
            return shares
        fits = self._shape.rollback == "trim" and len(rows) * widest <= self._most_padded
        for session in sessions:
            room = min(self._shape.room(session.cached), self._target.context - session.cached)
            fits = fits and widest <= room
        if not fits or not self._policy.even(rows):
            return shares
        return [replace(each, padding=each.padding + widest - each.rows) for each in shares]

    def _padding(self, rows: Sequence[Row]) -> list[Row]:
        """Rows after the last one that make the forward cheaper.

        They want logits: the graph that can be used again has as many outputs as rows.
        """
        last = rows[-1]
        room = self._target.context - last.position - 1
        more = min(self._policy.padded(len(rows)), self._most_padded) - len(rows)
        if more > room:
            return []
        places = range(last.position + 1, last.position + 1 + more)
        return [replace(last, position=place, back=1) for place in places]
