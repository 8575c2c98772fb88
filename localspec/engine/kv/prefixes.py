"""Reuses prefixes that were read before: copies of what slots lose are kept, and restored later.

A `PrefixSource` has copies of what slots held. Before a text is read, it is asked for a copy that
loads faster than reading takes. This never changes an answer: a copy comes back bit by bit, and
only to the model, build and class of forwards that it was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from localspec.engine.images import gaps, words
from localspec.engine.kv.rollback import Stored
from localspec.engine.kv.slots import Slot, common_prefix
from localspec.errors import EngineError, NoRoom
from localspec.types import Backend, Drafter, Origin, Token

LEAST_TOKENS = 32
"""Fewer tokens are read as fast as a copy is looked for."""


@runtime_checkable
class Storing(Backend, Protocol):
    """A backend that gives out what a slot holds, and takes it in again."""

    def take_out(self, slot: int) -> Stored:
        """Copy all that the slot holds, and empty it. Raises MemoryError, and changes nothing."""

    def put_back(self, slot: int, stored: Stored) -> None:
        """Let an empty slot hold a copy again. Raises NoRoom, and the slot stays empty."""


@runtime_checkable
class Storable(Storing, Protocol):
    """A `Storing` backend that also copies a slot without emptying it."""

    def stored(self, slot: int) -> Stored:
        """A copy of all that the slot holds. Raises MemoryError."""

    def stored_size(self, slot: int) -> int:
        """Bytes of such a copy."""

    @property
    def held(self) -> Sequence[int]:
        """Tokens that each slot holds."""


@runtime_checkable
class Remembering(Drafter, Protocol):
    """A drafter with a model, whose memory of a slot can be copied out and in."""

    def held(self, slot: int) -> Sequence[Token]:
        """The tokens that it has read in that slot."""

    def stored(self, slot: int) -> Stored:
        """A copy of its memory of them. Raises MemoryError."""

    def stored_size(self, slot: int) -> int:
        """Bytes of such a copy."""

    def take_over(self, slot: int, tokens: Sequence[Token], stored: Stored) -> None:
        """Hold these tokens in the slot instead. Raises NoRoom, and holds nothing."""


@dataclass(frozen=True, slots=True)
class FoundPrefix:
    """A copy of `tokens`, of which a text begins with the first `length`."""

    tokens: Sequence[Token]
    length: int
    stored: Stored
    origin: Origin
    used: Callable[[], None]
    """Notes that the copy was taken over."""
    drop: Callable[[], None]
    """Forgets the copy for ever, as it could not be restored."""


class PrefixSource(Protocol):
    """Keeps copies of what slots held, by whose text it is. `model` is "target" or a drafter."""

    @property
    def ready(self) -> bool:
        """Whether it can keep anything yet."""

    def find(self, model: str, client: str, text: Sequence[Token], held: int) -> FoundPrefix | None:
        """A copy worth loading for a slot that holds `held` tokens of the text already."""

    def wants(
        self, model: str, client: str, tokens: Sequence[Token], size: int, least: int
    ) -> bool:
        """Whether a copy of `size` bytes has room, and gives `least` tokens more than others do."""

    def keep(self, model: str, client: str, tokens: Sequence[Token], stored: Stored) -> None:
        """Keep a copy."""

    def loaded(self, model: str, found: FoundPrefix, tokens: int, seconds: float) -> None:
        """Note that `tokens` tokens were loaded in `seconds` instead of read."""

    def read(self, tokens: int, seconds: float) -> None:
        """Note how long a forward of prompt tokens alone took."""


class Prefixes:
    """Restores prefixes into slots of one engine, and keeps what these lose. Engine's thread.

    Args:
        target: The target; without `Storable` nothing happens.
        drafters: Those that are `Remembering` have copies of their own.
        slots: What each slot remembers.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        target: Backend,
        drafters: Iterable[Drafter],
        slots: Sequence[Slot],
        clock: Callable[[], float],
    ) -> None:
        self._target = target if isinstance(target, Storable) else None
        self._drafters = [each for each in drafters if isinstance(each, Remembering)]
        self._slots, self._clock = slots, clock
        self.source: PrefixSource | None = None

    def lose(self, slot: int, shared: int = 0) -> None:
        """Keep a copy of an idle slot that is about to lose all but its first `shared` tokens."""
        if len(self._slots[slot].tokens) >= shared + LEAST_TOKENS:
            self.keep(slot)

    def keeps(self, slot: int) -> bool:
        """Whether a copy of an idle slot could be made now: not of a text that is set aside."""
        there = self.source is not None and self.source.ready and self._target is not None
        text = self._slots[slot].tokens
        return there and self._target is not None and self._target.held[slot] >= len(text)

    def keep(self, slot: int, part: int = 0) -> bool:
        """Keep a copy of an idle slot's text, unless there is one; returns whether one was made.

        With a `part` of 8, a copy that lacks less than an eighth of the text counts as one.
        """
        source, target, text = self.source, self._target, self._slots[slot]
        if source is None or target is None or not self.keeps(slot):
            return False
        least, size = _least(text.tokens, part), target.stored_size(slot)
        if not source.wants("target", text.client, text.tokens, size, least):
            return False
        try:
            source.keep("target", text.client, text.tokens, target.stored(slot))
        except MemoryError:
            return False
        return True

    def keep_drafts(self, slot: int, part: int = 0) -> bool:
        """As `keep`, for what drafters have read of the text."""
        source, text, kept = self.source, self._slots[slot], False
        if source is None or not source.ready:
            return False
        for drafter in self._drafters:
            tokens = drafter.held(slot)
            tokens = tokens[: common_prefix(tokens, words(text.tokens))]
            if not tokens:
                continue
            least, size = _least(tokens, part), drafter.stored_size(slot)
            if source.wants(drafter.name, text.client, tokens, size, least):
                try:
                    source.keep(drafter.name, text.client, tokens, drafter.stored(slot))
                except MemoryError:
                    continue
                kept = True
        return kept

    def take_over(
        self, slot: int, client: str, text: Sequence[Token], held: int
    ) -> tuple[int, Origin]:
        """Restore more of a text to a slot that holds `held` tokens of it, if there is a copy.

        Returns how many tokens it holds then, and where they come from. The last token of the text
        is left to be read.
        """
        source, target = self.source, self._target
        if source is None or target is None:
            return held, "slot"
        found = source.find("target", client, text[:-1], held)
        if found is None:
            return held, "slot"
        began = self._clock()
        target.truncate(slot, 0)
        try:
            target.put_back(slot, replace(found.stored, gaps=gaps(found.tokens)))
        except NoRoom:
            return 0, "slot"
        except EngineError:
            found.drop()  # and this process is over: its memory may be anything now
            raise
        length = target.truncate(slot, found.length)
        source.loaded("target", found, length - held, self._clock() - began)
        return length, found.origin

    def take_over_drafts(self, slot: int, client: str, text: Sequence[Token]) -> None:
        """As `take_over`, for drafters. They read what is not found."""
        source, text = self.source, words(text)
        if source is None:
            return
        for drafter in self._drafters:
            held = common_prefix(drafter.held(slot), text)
            found = source.find(drafter.name, client, text, held)
            if found is None:
                continue
            began = self._clock()
            try:
                drafter.take_over(slot, found.tokens, found.stored)
            except NoRoom:
                continue
            except EngineError:
                found.drop()
                raise
            source.loaded(drafter.name, found, found.length - held, self._clock() - began)


def _least(tokens: Sequence[Token], part: int) -> int:
    return max(LEAST_TOKENS, len(tokens) // part if part else 0)
