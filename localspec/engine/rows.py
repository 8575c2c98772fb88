"""The rows of a forward that are one session's. Pure."""

from __future__ import annotations

from localspec.control.scheduler import Share
from localspec.engine.session import Session
from localspec.types import Draft, Row


def rows_of(session: Session, share: Share, draft: Draft) -> list[Row]:
    """The session's rows in order of position: tail, draft, padding.

    Those want logits that decide something: from the last of a whole tail to the last drafted one.
    """
    start = session.cached
    tokens = session.tokens[start : start + share.tail]
    tokens += draft.tokens[: share.nodes]
    tokens += tokens[-1:] * share.padding
    first_decided = share.tail - 1 if share.tail == session.tail else share.rows
    last_decided = share.tail + share.nodes
    return [
        Row(token, start + index, session.slot, first_decided <= index < last_decided)
        for index, token in enumerate(tokens)
    ]
