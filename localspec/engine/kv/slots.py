"""Prefix reuse: which free slot a prompt goes to, and how much it reads there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.types import Token


@dataclass(slots=True)
class Slot:
    """The contents of a slot's memory after its session: whose tokens, and how recently used.

    `session` is what the client called the conversation.
    """

    client: str = ""
    tokens: list[Token] = field(default_factory=list)
    used: int = 0
    busy: bool = False
    session: str = ""


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
    client's own tokens are reused: a hit shows in the time to the first token, and one client must
    not learn another's prompts by it.

    A slot is taken for what it shares when that is most of what it would lose. Otherwise another
    text that only begins alike, such as one with the same system prompt, would cost a conversation
    all that was read of it: then an empty slot is taken, or the one unused for longest. A
    conversation with a name goes back to its own slot first, and to one of another name last.
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


def fitting(needs: Sequence[int], cells: int) -> tuple[list[int], int]:
    """Which sessions go on while a cache of so many cells is shared, and the cells that remain.

    `needs` are the cells of each session, the oldest first. The oldest always goes on, so that all
    come to their end; one that does not fit beside those before it waits.
    """
    chosen: list[int] = []
    for index, need in enumerate(needs):
        if not chosen or need <= cells:
            chosen.append(index)
            cells -= need
    return chosen, max(0, cells)
