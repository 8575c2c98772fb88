"""A machine and a text with known costs and known acceptance, and policies without a memory.

Everything random is drawn before a policy runs: what each source would say at each position of the
text, and whether it is right. So all policies meet the same luck. They are charged true costs,
changes of the row count included.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from localspec.control.costs import STEADY
from localspec.types import Draft, Signal

CONFIDENCES = (0.99, 0.95, 0.86, 0.68, 0.42)
"""The neural source's acceptance by bucket, as measured on a real pair."""
RUNS = (1, 2, 3, 5, 8, 13)
COPY_PRIORS = (0.3, 0.4, 0.55, 0.65, 0.8, 0.9, 0.95)

Q4_K = {1: 1, 2: 1.7, 3: 2.3, 4: 3, 5: 3.8, 6: 4.3, 7: 4.7, 8: 5, 10: 5.2, 12: 5.4, 16: 5.8, 32: 11}
Q4_0 = {1: 1, 2: 1.6, 3: 1.75, 4: 1.8, 5: 2.7, 6: 3, 7: 3.2, 8: 3.3, 12: 4.6, 16: 5.3, 32: 10}
GPU = {1: 1, 4: 1.1, 8: 1.25, 9: 2.4, 16: 2.6, 32: 3}
H100_1B = {1: 1, 2: 1.17, 3: 1.35, 4: 1.57, 5: 1.66, 8: 2.03, 9: 2.32, 16: 2.55, 32: 3.12}
H100_7B = {1: 1, 2: 1.08, 3: 1.21, 4: 1.37, 6: 1.65, 8: 1.94, 9: 1.82, 16: 1.9, 24: 2.08, 32: 2.28}
H100_32B = {
    1: 1,
    2: 1.06,
    3: 1.21,
    4: 1.41,
    6: 1.71,
    8: 2.07,
    9: 1.83,
    16: 1.86,
    24: 2.07,
    32: 2.27,
}
DIP = {1: 1, 2: 1.6, 3: 2.6, 4: 1.8, 5: 2.7, 6: 3, 7: 3.2, 8: 3.3, 12: 4.6, 16: 5.3, 32: 10}
ALMOST_FLAT = {1: 1, 8: 1.15, 16: 1.3, 32: 1.6}
EVERY_ROW = {1: 1, 2: 1.8, 4: 3.4, 8: 6.6, 16: 13, 32: 26}


@dataclass(frozen=True)
class Regime:
    """How the text behaves for a while.

    Shares of the neural confidence buckets, the error of that confidence, and the chances that a
    copy begins, goes on, and is right by accident where there is none.
    """

    tokens: int
    confident: Sequence[float] = (0.58, 0.12, 0.1, 0.12, 0.08)
    honesty: float = 1.0
    copy_begins: float = 0.02
    copy_goes_on: float = 0.95
    accident: float = 0.2
    seen_before: float = 0.6


PROSE = Regime(2000, (0.25, 0.1, 0.1, 0.25, 0.3), copy_begins=0.01, copy_goes_on=0.8)
CODE = Regime(2000, (0.7, 0.1, 0.08, 0.08, 0.04), copy_begins=0.03, copy_goes_on=0.9)
EDIT = Regime(2000, (0.85, 0.06, 0.04, 0.03, 0.02), copy_begins=0.3, copy_goes_on=0.98)
NOISE = Regime(2000, (0.02, 0.02, 0.06, 0.2, 0.7), 0.4, 0.0, 0.5, 0.05, 0.9)


@dataclass(frozen=True)
class Machine:
    """True costs in units of one row, which takes `row_seconds`.

    `changes` are what the first and the second forward of a row count take more, `draft_changes`
    the same for the neural source. `noise` is the spread of what is measured. The first forward of
    each row count, of either model, takes `first` more: a GPU captures a graph, memory is mapped.
    """

    curve: Mapping[int, float]
    step: float = 0.3
    read: float = 0.08
    host: float = 0.01
    noise: float = 0.06
    changes: tuple[float, float] = (0.0, 0.0)
    draft_changes: tuple[float, float] = (0.0, 0.0)
    row_seconds: float = 0.03
    first: float = 0.0

    def target(self, rows: int) -> float:
        """One decode like the ones before; between known points the line between them."""
        if rows in self.curve:
            return self.curve[rows]
        known = sorted(self.curve)
        above = bisect_right(known, rows)
        low, high = (known[above - 1], known[above]) if above < len(known) else known[-2:]
        share = (rows - low) / (high - low)
        return (1 - share) * self.curve[low] + share * self.curve[high]

    def draft(self, pending: int, depth: int) -> float:
        """Drafting `depth` tokens after reading `pending`, without what changes take."""
        return depth * self.step + (pending - 1) * self.read if depth else 0.0

    def slower(self, factor: float) -> Machine:
        """All of it."""
        return replace(
            self,
            curve={rows: factor * cost for rows, cost in self.curve.items()},
            step=factor * self.step,
            read=factor * self.read,
            host=factor * self.host,
        )

    def dearer(self, factor: float) -> Machine:
        """Every forward of more than one row."""
        return replace(
            self,
            curve={rows: cost * (factor if rows > 1 else 1) for rows, cost in self.curve.items()},
        )


H100 = Machine(
    H100_1B, 0.59, 0.06, 0.14, 0.03, (1.3, 0.58), (1.7, 0.53), row_seconds=0.00184
)  # fmt: skip
MACHINES = {
    "Q4_K": Machine(Q4_K, step=0.3),
    "Q4_0": Machine(Q4_0, step=0.27),
    "GPU": Machine(GPU, step=0.07, read=0.005),
    "H100 1.5B": H100,
    "H100 1.5B, graphs": replace(H100, changes=(0.46, 0.0), draft_changes=(0.46, 0.0)),
    "H100 7B": Machine(H100_7B, 0.25, 0.05, 0.06, 0.03, row_seconds=0.00482),
    "H100 32B": Machine(H100_32B, 0.08, 0.02, 0.02, 0.03, row_seconds=0.0151),
}


@dataclass
class Track:
    """The forwards of one model so far."""

    rows: int = 0
    alike: int = 0
    changed: int = 0
    known: set[int] = field(default_factory=lambda: {1})
    first: bool = False

    def forward(self, rows: int, changes: tuple[float, float], first: float = 0.0) -> float:
        """Another one, and what it takes more for not being like those before."""
        self.alike = self.alike + 1 if rows == self.rows else 0
        self.changed += rows != self.rows
        self.rows = rows
        self.first = min(rows, 33) not in self.known
        self.known.add(min(rows, 33))
        first = first if self.first else 0.0
        return first + (changes[self.alike] if self.alike < len(changes) else 0.0)


@dataclass
class Device:
    """A machine at work: what forwards cost after those that were. `moods` begin at positions."""

    machine: Machine
    moods: Mapping[int, Machine] = field(default_factory=dict)
    target: Track = field(default_factory=lambda: Track(1, STEADY))
    source: Track = field(default_factory=Track)

    def at(self, position: int) -> Machine:
        """As it is now."""
        begun = [start for start in self.moods if start <= position] if self.moods else ()
        return self.moods[max(begun)] if begun else self.machine

    def decode(self, position: int, rows: int) -> float:
        """One forward of the target."""
        machine = self.at(position)
        return machine.target(rows) + self.target.forward(rows, machine.changes, machine.first)

    def draft(self, position: int, reads: Sequence[int], steps: int) -> float:
        """Forwards of the source: those that read so many rows, then some of one row."""
        machine, cost = self.at(position), 0.0
        for rows in (*reads, *[1] * steps):
            cost += machine.step + (rows - 1) * machine.read
            cost += self.source.forward(rows, machine.draft_changes, machine.first)
        return cost

    @property
    def firsts(self) -> int:
        """How many forwards were the first of their row count."""
        return len(self.target.known) + len(self.source.known) - 2


_SURE = [Signal("neural", bucket, sure) for bucket, sure in enumerate(CONFIDENCES)]
_COPIED = [Signal("lookup", bucket, prior) for bucket, prior in enumerate(COPY_PRIORS)]


def streaks(flags: Sequence[bool]) -> list[int]:
    """How many in a row are true right before each place, and before the end."""
    found = [0]
    for flag in flags:
        found.append(found[-1] + 1 if flag else 0)
    return found


class Text:
    """Each source's draft at every position, drawn once."""

    def __init__(self, regimes: Sequence[Regime], seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 — a simulation
        self.bucket: list[int] = []
        self.agrees: list[bool] = []
        self.copies: list[bool] = []
        self.seen: list[bool] = []
        for regime in regimes:
            self._write(regime, rng)
        self.length = len(self.bucket) - 40
        self.run = streaks(self.copies)  # before each position
        self.agreeing = streaks(self.agrees[::-1])[::-1]  # from each position on
        self.copying = streaks(self.copies[::-1])[::-1]

    def _write(self, regime: Regime, rng: random.Random) -> None:
        copying = False
        for _ in range(regime.tokens):
            bucket = rng.choices(range(len(CONFIDENCES)), regime.confident)[0]
            self.bucket.append(bucket)
            self.agrees.append(rng.random() < CONFIDENCES[bucket] * regime.honesty)
            copying = rng.random() < (regime.copy_goes_on if copying else regime.copy_begins)
            self.copies.append(copying or rng.random() < regime.accident)
            self.seen.append(copying or rng.random() < regime.seen_before)

    def neural(self, position: int, depth: int) -> Draft:
        """The neural chain at `position`: the true token is 1, a wrong one 0."""
        places = range(position, position + depth)
        return Draft.chain(
            [int(self.agrees[place]) for place in places],
            [_SURE[self.bucket[place]] for place in places],
        )

    def lookup(self, position: int, depth: int) -> Draft:
        """The copied chain at `position`; nothing where the text was never seen."""
        if not self.seen[position]:
            return Draft()
        start = self.run[position]
        signals = [_COPIED[bisect_right(RUNS, start + further)] for further in range(depth)]
        tokens = [int(self.copies[place]) for place in range(position, position + depth)]
        return Draft.chain(tokens, signals)


@dataclass
class Outcome:
    """The cost of a policy for the text."""

    tokens: int = 0
    time: float = 0.0
    rounds: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    """When each token was there."""

    def passed(self, tokens: int) -> None:
        """A round gave so many, all at its end."""
        self.tokens += tokens
        self.rounds += 1
        self.times += [self.time] * tokens

    @property
    def rate(self) -> float:
        """Tokens in the time of one plain row."""
        return self.tokens / self.time


def accepted(draft: Draft) -> int:
    """Leading true tokens."""
    return next((node for node, token in enumerate(draft.tokens) if not token), len(draft))


class Fixed(NamedTuple):
    """A memoryless policy's draft: its nodes, those kept, and their source."""

    nodes: int = 0
    kept: int = 0
    neural: bool = False


Policy = Callable[[Text, int], Fixed]


def plain(_text: Text, _position: int) -> Fixed:
    """Depth 0."""
    return Fixed()


def fixed(source: str, depth: int) -> Policy:
    """Always the same source and depth; "lookup+neural" takes lookup where it has anything."""

    def policy(text: Text, position: int) -> Fixed:
        if source != "neural" and text.seen[position]:
            return Fixed(depth, min(depth, text.copying[position]))
        if source != "lookup":
            return Fixed(depth, min(depth, text.agreeing[position]), neural=True)
        return Fixed()

    return policy


def play(
    machine: Machine,
    text: Text,
    policy: Policy,
    unread: int = 1,
    moods: Mapping[int, Machine] | None = None,
) -> Outcome:
    """Run a fixed policy over the text."""
    outcome, device = Outcome(), Device(machine, moods or {})
    read = -unread + 1  # tokens the neural source has read, counted from the text's start
    while outcome.tokens < text.length:
        position = outcome.tokens
        nodes, kept, neural = policy(text, position)
        if neural:
            outcome.time += device.draft(position, [position - read + 1], nodes - 1)
            read = position + min(kept, nodes - 1) + 1
        outcome.time += device.decode(position, 1 + nodes) + device.at(position).host
        outcome.passed(kept + 1)
    return outcome


def best_fixed(machine: Machine, text: Text, unread: int = 1) -> tuple[str, Outcome]:
    """The best of plain decoding and every source at every depth, with its name."""
    arms = {"plain": play(machine, text, plain)}
    for source in ("lookup", "neural", "lookup+neural"):
        for depth in (1, 2, 3, 4, 5, 7, 11, 15, 23):
            arms[f"{source} {depth}"] = play(machine, text, fixed(source, depth), unread)
    name = max(arms, key=lambda arm: arms[arm].rate)
    return name, arms[name]
