"""The rows of one session in a forward. Pure."""

from __future__ import annotations

from localspec.control import trees
from localspec.engine.scheduler import Share
from localspec.engine.session import Session
from localspec.types import Draft, Row


def rows_of(session: Session, share: Share, draft: Draft, multiple: int) -> list[Row]:
    """The session's rows: tail, draft, padding; each with the row that it follows.

    Logits are wanted of the rows that decide something, from the last row of a whole tail to the
    last node. Further rows join them until their number is a multiple of `multiple`, because the
    bits of the last layer depend on it.
    """
    start, draft = session.cached, draft.head(share.nodes)
    if share.rows == 1:  # nearly every round of a session that drafts nothing
        return [Row(session.tokens[start], start, session.slot, share.tail == session.tail)]
    tokens = [*session.tokens[start : start + share.tail], *draft.tokens]
    end = start + share.tail
    positions = [*range(start, end), *(end + depth for depth in trees.depths(draft.parents))]
    positions += range(start + len(tokens), start + len(tokens) + share.padding)
    tokens += tokens[-1:] * share.padding
    wanted = first_wanted(share, multiple) if share.tail == session.tail else share.rows
    nodes = [node - parent for node, parent in enumerate(draft.parents)]
    backs = [*[1] * share.tail, *nodes, *[1] * share.padding]
    return [
        Row(token, position, session.slot, index >= wanted, back)
        for index, (token, position, back) in enumerate(zip(tokens, positions, backs, strict=True))
    ]


def first_wanted(share: Share, multiple: int) -> int:
    """The index of the first row with logits, for a session whose whole tail is decoded."""
    return (share.tail - 1) // multiple * multiple


def by_slot(sessions: list[Session], shares: list[Share]) -> tuple[list[Session], list[Share]]:
    """Sort by slot: the order in which slots with streams of their own share a forward."""
    pairs = sorted(zip(sessions, shares, strict=True), key=lambda pair: pair[0].slot)
    return [session for session, _ in pairs], [share for _, share in pairs]
