"""What goes into the decisions of a round and what comes out: values only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from localspec.control.acceptance import Local, Yield
from localspec.types import Draft, Signal, Token

_FIRST_WAIT_ROUNDS = 8
"""Rounds without a neural draft before the first probe; sooner, nothing could have changed."""
_ALLOWANCE = 0.01
"""Share of its time that a session may lose on neural drafts before they have won anything."""
_BALANCE_MEMORY = 0.99
"""What drafts won or lost fades over 100 rounds, because texts change in the middle."""
_SAVING_RATE = 0.05
"""A session shows for some rounds what a source would save before it reads a prompt for that."""
_PACE_MEMORY = 0.93
"""The pace of the last 15 rounds: longer, a copy's pace would forbid drafting in the text after."""
_SAVINGS = 0.1
"""Share of what neural drafts have won that may be lost on keeping them going."""


@dataclass(frozen=True, slots=True)
class Neural:
    """A source that is not free and could draft now, reading `pending` tokens first."""

    name: str
    pending: int


@dataclass(slots=True)
class Memory:
    """What the controller remembers of one session. Opaque to its owner.

    A neural source that was left must read all that it missed before it can draft again, so that
    leaving one for a paragraph may mean leaving it for good. Therefore a session has a purse of
    seconds which it may lose on a source that does not pay just now: a small `allowance`, and a
    share of such drafts' `balance`, which is what they really won and not what they promised. It
    buys long stretches at a small loss, or single probes, `wait` rounds apart and twice as far each
    time. Once losses have used up the allowance, promises count for nothing but a probe.

    `tokens` and `time` are decaying sums that make its pace.
    `saving` is the share of its time that a neural source would save, on average over the rounds;
    over the rest of the session that has to repay what it must read. `proposed` is the last draft
    before it was cut.
    """

    local: Local = field(default_factory=Local)
    yields: dict[str, Yield] = field(default_factory=dict)
    tokens: float = 0.0
    time: float = 0.0
    allowance: float | None = None
    balance: float = 0.0
    spent: float = 0.0
    staked: float | None = None
    saving: float = 0.0
    idle: int = 0
    wait: int = _FIRST_WAIT_ROUNDS
    proposed: Draft = field(default_factory=Draft)

    @property
    def pace(self) -> float:
        """Tokens in the time of one row, lately; 0 before anything was committed."""
        return self.tokens / self.time if self.time > 0 else 0.0

    def advance(self, tokens: int, time: float) -> None:
        """A round committed `tokens` in `time`, which is in rows of the target."""
        self.tokens = _PACE_MEMORY * self.tokens + tokens
        self.time = _PACE_MEMORY * self.time + time

    def begin(self, seconds: float, saving: float) -> None:
        """A round with a neural source at hand; `seconds` is how long the session may last.

        `saving` is the share of the round's time that the source would save, were it up to date.
        """
        if self.allowance is None:
            self.allowance = _ALLOWANCE * seconds
        self.saving += _SAVING_RATE * (saving - self.saving)
        self.balance *= _BALANCE_MEMORY

    @property
    def purse(self) -> float:
        """Seconds that may still be lost."""
        earned = _SAVINGS * self.balance if self.balance > 0 else self.balance
        return (self.allowance or 0.0) + earned - self.spent

    def stake(self, rate: float) -> None:
        """A neural draft is taken; without it the round would have made `rate` tokens a second."""
        self.staked = rate
        self.idle = 0

    def settle(self, accepted: int, seconds: float) -> None:
        """What that draft really gave: its nodes that were accepted, for `seconds` more."""
        if self.staked is not None:
            self.balance += accepted / self.staked - seconds
            self.staked = None

    def trusts(self) -> bool:
        """Whether a promise to win is enough: what was lost so far is within the allowance."""
        if self.balance > 0:
            self.wait = _FIRST_WAIT_ROUNDS
        return self.purse > 0

    def affords(self, loss: float, bearable: float) -> bool:
        """Whether to take a neural draft that loses `loss` seconds; if so, they are paid.

        More than `bearable` is not paid round after round; a probe may cost half the allowance.
        """
        probing = self.idle >= self.wait and loss <= (self.allowance or 0.0) / 2
        if not probing and loss > min(bearable, self.purse):
            self.idle += 1
            return False
        if probing:
            self.wait *= 2
        else:
            self.spent += max(loss, 0.0)
        return True


@dataclass(frozen=True, slots=True)
class View:
    """One session in this round.

    `free` holds one chain per free source with something to say, `budget` the most nodes that may
    be drafted, `remaining` the expected tokens still to come. `always` forbids depth 0 where there
    is a draft. `ease` is the mean probability that the target lately gave its own tokens, if that
    is known: it tells, before a draft model has read anything, whether it would agree. `key` is the
    caller's own.
    """

    free: tuple[Draft, ...] = ()
    neural: tuple[Neural, ...] = ()
    budget: int = 0
    remaining: float = 256.0
    always: bool = False
    memory: Memory | None = None
    ease: float | None = None
    key: Any = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`base` goes to the target, continued by at most `budget` nodes of source `extend`, if any.

    The source asks `worth` with its signals so far before each further node.
    """

    base: Draft
    extend: str | None
    budget: int
    worth: Callable[[Sequence[Signal]], bool]


@dataclass(frozen=True, slots=True)
class Drafted:
    """What one source's drafting cost: `depth` forwards after reading `pending` tokens."""

    name: str
    pending: int
    depth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """The verified draft and how many of its leading nodes agreed with the target."""

    draft: Draft
    accepted: int


@dataclass(frozen=True, slots=True)
class Round:
    """What happened. `views`, `judged` and `committed` are aligned, one entry per session.

    `rows` counts all rows of the decode; free chains are scored against the `committed` tokens.
    """

    rows: int
    target_seconds: float
    host_seconds: float
    drafted: tuple[Drafted, ...]
    views: tuple[View, ...]
    judged: tuple[Judged, ...]
    committed: tuple[tuple[Token, ...], ...]


class Policy(Protocol):
    """What decides the rounds: `controller.Controller`, or a fixed one in tests and benchmarks."""

    def open_session(self) -> Memory | None:
        """A memory for one request, put into each of its views."""

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Plan]:
        """Who drafts for each session, before drafting."""

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """How many leading nodes of each draft are verified, after drafting."""

    def observe(self, round_: Round) -> None:
        """Learn from one round."""
