"""Requests that begin the same at the same time: one reads, the others copy what it has read."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.engine.kv.slots import Slot, choose, common_prefix
from localspec.engine.session import Session
from localspec.types import Backend, Copying, Token

MIN_TOKENS = 32
"""Fewer tokens are read sooner than they could be copied from a session that still reads them."""


class PrefixSharing:
    """Shares prefixes of active sessions with requests of the same client that begin as they do.

    Args:
        target: What holds the cells; nothing is shared on one that cannot copy.
        slots: What each slot remembers.
        sessions: Admitted ones.
        trims: Whether a copy can be cut to the part that is shared.
    """

    def __init__(
        self,
        target: Backend,
        slots: Sequence[Slot],
        sessions: Sequence[Session],
        *,
        trims: bool,
    ) -> None:
        self._target = target if isinstance(target, Copying) and trims else None
        self._slots = slots
        self._sessions = sessions

    def ready(self, client: str, prompt: Sequence[Token], session: str) -> bool:
        """Whether a slot is free, and no session is still reading a prefix of the prompt."""
        chosen = choose(self._slots, client, prompt, session)
        if chosen is None:
            return False
        shared = (
            (each.cached, self._shared(each, client, prompt, len(each.tokens)))
            for each in self._sessions
            if self._target is not None and not each.decoding
        )
        return not any(cached < length >= chosen[1] + MIN_TOKENS for cached, length in shared)

    def copied(self, slot: int, held: int, client: str, prompt: Sequence[Token]) -> int:
        """Copy what an active session has read of this prompt; returns how many tokens are held.

        Nothing is copied where the slot, which holds `held` tokens of it, would gain fewer than
        MIN_TOKENS.
        """
        if self._target is None:
            return held
        found = [
            (self._shared(session, client, prompt, session.cached), session.slot)
            for session in self._sessions
        ]
        shared, source = max(found, default=(0, 0))
        if shared < held + MIN_TOKENS:
            return held
        self._target.copy(source, slot, shared)
        return shared

    @staticmethod
    def _shared(session: Session, client: str, prompt: Sequence[Token], most: int) -> int:
        """The common prefix of the session's first tokens and the prompt without its last token."""
        if session.request.client != client:
            return 0
        return common_prefix(session.tokens[: session.reusable(most)], prompt[:-1])
