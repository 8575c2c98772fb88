"""The rows of a forward that are one session's. Pure."""

from __future__ import annotations

from localspec.control.scheduler import Share
from localspec.engine.session import Session
from localspec.types import Draft, Row


def rows_of(session: Session, share: Share, draft: Draft, multiple: int) -> list[Row]:
    """The session's rows in order of position: tail, draft, padding.

    Those want logits that decide something, from the last of a whole tail to the last drafted one,
    and with them as many as make a multiple: the last layer's bits go by how many rows have it.
    """
    start = session.cached
    tokens = session.tokens[start : start + share.tail]
    tokens += draft.tokens[: share.nodes]
    tokens += tokens[-1:] * share.padding
    wanted = first_wanted(share, multiple) if share.tail == session.tail else share.rows
    return [
        Row(token, start + index, session.slot, index >= wanted)
        for index, token in enumerate(tokens)
    ]


def first_wanted(share: Share, multiple: int) -> int:
    """The first row with logits of a session whose whole tail is decoded."""
    return (share.tail - 1) // multiple * multiple


def by_slot(sessions: list[Session], shares: list[Share]) -> tuple[list[Session], list[Share]]:
    """In the order in which slots with memories of their own can share a forward."""
    pairs = sorted(zip(sessions, shares, strict=True), key=lambda pair: pair[0].slot)
    return [session for session, _ in pairs], [share for _, share in pairs]
