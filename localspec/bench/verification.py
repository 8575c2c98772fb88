"""Verifies by repetition that answers with drafts and without are the same text.

Texts are compared as a client gets them. Where two texts part, the engine is then asked how near
the logits of its two likeliest tokens were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from localspec.bench.arms import Arm
from localspec.bench.measure import ReceivedStream, ask
from localspec.bench.results import Settings
from localspec.bench.suite import Prompt
from localspec.client import Json
from localspec.errors import RequestError
from localspec.wire.messages import Replayed

CONTEXT_CHARACTERS = 32

_NOBODY: Json = {"drafters": []}
"""Parameters of a replay without drafters, when only the target's logits are wanted."""

WAYS: Mapping[str, float] = {"greedy": 0.0, "seeded": 0.8}
"""The ways in which each turn is replayed, with their temperatures."""


class Difference(msgspec.Struct, frozen=True):
    """A place where two texts part: `plain` and `found` are the two texts from there on.

    `position` counts characters from the beginning; `before` is the common text just before it.
    `likeliest` are the target's two likeliest tokens there, and `logit_gap` is the difference of
    their logits; both are None if the daemon refused to tell.
    """

    prompt: str
    turn: int
    way: str
    arm: str
    position: int
    before: str
    plain: str
    found: str
    likeliest: tuple[str, str] | None = None
    logit_gap: float | None = None


class Tally(msgspec.Struct, frozen=True):
    """One arm in one way: numbers of texts compared and equal, of tokens drafted and accepted."""

    way: str
    arm: str
    compared: int
    equal: int
    drafted: int
    accepted: int


class Verification(msgspec.Struct, frozen=True):
    """The results of all replays; `exactness` is what the daemon promises for this model."""

    model: str
    exactness: str
    max_tokens: int
    seed: int
    tallies: list[Tally]
    differences: list[Difference]

    @property
    def broken(self) -> bool:
        """True when strict exactness was promised and a text differs."""
        return self.exactness == "strict" and bool(self.differences)


def difference(plain: str, found: str) -> tuple[int, str, str, str] | None:
    """(position, common text before it, plain's text there, the other's); None if equal."""
    if plain == found:
        return None
    pairs = zip(plain, found, strict=False)
    position = next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(plain), len(found))
    )
    end = position + CONTEXT_CHARACTERS
    before = plain[max(0, position - CONTEXT_CHARACTERS) : position]
    return position, before, plain[position:end], found[position:end]


def parting(
    plain: Arm,
    messages: Sequence[Json],
    expected: ReceivedStream,
    received: ReceivedStream,
    position: int,
) -> tuple[tuple[str, str] | None, float | None]:
    """The two likeliest tokens where two texts part at a character, and their logits' gap.

    The place is the last one, at or before the character, where both texts have an edge between
    tokens. The text up to there is given to the daemon as text and tokenized anew. In rare texts
    that yields other tokens than were generated, and then another gap.
    """
    edge = max(edge for edge in {*expected.edges} & {*received.edges} if edge <= position)
    try:
        told = plain.client.replay(
            messages, expected.text[:edge], model=plain.fields["model"], speculation=_NOBODY
        )
    except RequestError:
        return None, None
    after = msgspec.convert(told, Replayed).after
    return after.pieces, after.gap


def verify(
    arms: Sequence[Arm],
    prompts: Sequence[Prompt],
    settings: Settings,
    model: Json,
    tell: Callable[[int, str], None],
) -> Verification:
    """Replay every turn of every prompt in every way by every arm; `arms` begin with plain.

    Later turns follow plain's answers, so that one difference does not become many.
    """
    told = [replace(arm, fields={**arm.fields, "return_origins": True}) for arm in arms]
    plain, *drafting = told
    counts = {(way, arm.name): [0, 0, 0, 0] for way in WAYS for arm in drafting}
    differences: list[Difference] = []
    for prompt in prompts:
        for way, temperature in WAYS.items():
            how = msgspec.structs.replace(settings, temperature=temperature)
            messages: list[Json] = []
            for turn, question in enumerate(prompt.turns):
                messages.append({"role": "user", "content": question})
                tell(int(turn == 0), f"{way}: {prompt.name}")
                expected = ask(plain, messages, how)
                for arm in drafting:
                    received = ask(arm, messages, how)
                    _count(counts[way, arm.name], expected, received)
                    if parted := difference(expected.text, received.text):
                        fork = parting(plain, messages, expected, received, parted[0])
                        differences.append(
                            Difference(prompt.name, turn, way, arm.name, *parted, *fork)
                        )
                messages.append({"role": "assistant", "content": expected.text})
    tallies = [Tally(way, arm, *count) for (way, arm), count in counts.items()]
    exactness = model.get("exactness") or "unknown"
    return Verification(
        model["name"], exactness, settings.max_tokens, settings.seed, tallies, differences
    )


def _count(count: list[int], expected: ReceivedStream, received: ReceivedStream) -> None:
    report = received.end.speculation if received.end else {}
    count[0] += 1
    count[1] += expected.text == received.text
    count[2] += report.get("drafted", 0)
    count[3] += report.get("accepted", 0)
