"""Prefix reuse: which free slot a prompt goes to, and how much it reads there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.types import Backend, Token


@dataclass(slots=True)
class Slot:
    """The contents of a slot's memory after its session: whose tokens, and how recently used.

    `client` is the key of their owner, `session` the client's name for the conversation.
    `adapters` are the scales with which they were read.
    """

    client: str = ""
    tokens: list[Token] = field(default_factory=list)
    used: int = 0
    busy: bool = False
    session: str = ""
    adapters: tuple[float, ...] = ()


def common_prefix(one: Sequence[Token], other: Sequence[Token]) -> int:
    """Length of the longest prefix that both sequences share."""
    length = min(len(one), len(other))
    if list(one[:length]) == list(other[:length]):
        return length
    return next(index for index in range(length) if one[index] != other[index])


def choose(
    slots: Sequence[Slot], client: str, prompt: Sequence[Token], session: str = ""
) -> tuple[int, int] | None:
    """The best free slot for a prompt and how many tokens it may reuse; None if all are busy.

    The last token of the prompt is always decoded again, because its logits are needed. Only the
    client's own tokens are reused: a hit shows in the time to the first token, by which one client
    could learn another's prompts.

    A slot is taken for its shared prefix if that is longer than half of what the slot would lose.
    Otherwise a text that only begins alike, such as one with the same system prompt, would cost a
    conversation all that was read of it; then an empty slot is taken, or the one unused for
    longest. A conversation with a name goes back to its own slot first, and to one of another name
    last.
    """
    best: tuple[int, int] | None = None
    rank = (-1, -1, False, 0)
    for index, slot in enumerate(slots):
        if slot.busy:
            continue
        mine = slot.client == client
        shared = common_prefix(slot.tokens, prompt[:-1]) if mine else 0
        named = 1 if not (session and slot.session) else 2 * (mine and slot.session == session)
        lost = len(slot.tokens) - shared
        worth = shared if 2 * shared > lost else 0
        if (named, worth, not slot.tokens, -slot.used) > rank:
            best, rank = (index, shared), (named, worth, not slot.tokens, -slot.used)
    return best


def idle(slots: Sequence[Slot]) -> list[int]:
    """Idle slots that remember a text; the latest used first."""
    found = [slot for slot in range(len(slots)) if not slots[slot].busy and slots[slot].tokens]
    return sorted(found, key=lambda slot: -slots[slot].used)


class SlotTexts:
    """The part of an engine that says what its slots remember."""

    target: Backend
    _slots: list[Slot]

    @property
    def free_slots(self) -> int:
        """Requests that could be admitted now."""
        return sum(not slot.busy for slot in self._slots)

    @property
    def slots(self) -> Sequence[Slot]:
        """All slots, by their places."""
        return self._slots

    def slot(self, index: int) -> Slot:
        """The slot at that place. Raises IndexError."""
        return self._slots[index]

    def remember(self, index: int, text: Slot) -> None:
        """Note the text of an idle slot, whose memory has just been restored."""
        self._slots[index] = text

    def forget(self, slot: int) -> Slot:
        """Empty an idle slot; returns what it remembered."""
        found, self._slots[slot] = self._slots[slot], Slot(used=self._slots[slot].used)
        self.target.truncate(slot, 0)
        return found

    def remembers(self, slot: int) -> bool:
        """Whether the slot holds anything: a session, or a prefix for a later prompt."""
        used = slot < len(self._slots)
        return used and (self._slots[slot].busy or bool(self._slots[slot].tokens))

    def used(self, slot: int) -> int:
        """The step at which a slot got the text that it remembers."""
        return self._slots[slot].used

    def kept(self, slot: int) -> int:
        """How many tokens an idle slot remembers."""
        return len(self._slots[slot].tokens) if slot < len(self._slots) else 0

    def shared(self, client: str, text: Sequence[Token]) -> int:
        """The most tokens of a text that a slot of the client remembers; a hint, for any thread."""
        mine = (slot.tokens for slot in self._slots if slot.client == client)
        return max((common_prefix(tokens, text) for tokens in mine), default=0)

    def held(self) -> list[tuple[int, list[Token]]]:
        """The idle slots that remember a text, and what they remember; the latest used first."""
        return [(slot, self._slots[slot].tokens) for slot in idle(self._slots)]


def fitting(needs: Sequence[int], cells: int) -> tuple[list[int], int]:
    """Choose the sessions that fit into a shared cache. Returns them and the cells left.

    `needs` are the cells of each session, the oldest first. The oldest always goes on, so that in
    the end all do; one that does not fit beside those before it waits.
    """
    chosen: list[int] = []
    for index, need in enumerate(needs):
        if not chosen or need <= cells:
            chosen.append(index)
            cells -= need
    return chosen, max(0, cells)
