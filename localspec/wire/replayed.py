"""The result of replaying a finished text through target and drafters. A leaf."""

from __future__ import annotations

import msgspec


class Trace(msgspec.Struct, frozen=True):
    """The proposals of one drafter along a text, a value for each of the text's tokens.

    `survives[p]` counts the tokens from p on that the drafter would have drafted there and that are
    the text's; `predicted[p]` is the acceptance expected of the first one, None without a draft.
    `free` is the drafter's, as in `types.Drafter`.
    """

    free: bool
    survives: list[int]
    predicted: list[float | None]


class Fork(msgspec.Struct, frozen=True):
    """The two likeliest tokens at one position, the likelier first, and the gap of their logits.

    The pieces are for people: special tokens are spelled out, broken characters replaced.
    """

    pieces: tuple[str, str]
    gap: float


class Replayed(msgspec.Struct, frozen=True, tag="replayed"):
    """The result of a replay, and its last event; `tokens` is the number of the text's tokens.

    `gaps[p]` is the target's largest logit less that of the text's token p: 0 where greedy decoding
    agrees. `margins[p]` is the largest logit less the second largest. `after` is the fork at the
    position behind the text. A drafter that failed has no trace.
    """

    id: str
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    max_draft: int
    gaps: list[float]
    margins: list[float]
    after: Fork
    drafters: dict[str, Trace]
