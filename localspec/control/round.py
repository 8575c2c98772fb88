"""Inputs and results of a round's decisions: values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from localspec.control.acceptance import AcceptanceBias, SessionAcceptance
from localspec.control.confidence import TARGET_CONFIDENCES
from localspec.control.costs import STEADY
from localspec.control.memory import RECENT, SESSION, moved
from localspec.control.regret import FillingBudget, RegretBudget
from localspec.types import READ_ROWS, Draft, Signal, Token

STALL_SECONDS = 0.2
"""How long reading a prompt may hold up streams that are decoding; longer is felt as a stutter."""
RECURRING_READS = 3
"""Tokens a source reads every round anyway; more is a backlog, paid once and used to the end."""
_COPY_FORGIVENESS = 0.995  # doubled 1.00 (1.00), halved 1.00 (0.99)
"""The memory of the doubt of copies, two hundred rounds: a sure copy is worth so much that doubt
does not prevent it. The doubt of neural drafts fades over fifty rounds (`SESSION`), because a text
may change in the middle."""
_MOST_PASSED_ON = 0.5
"""The most doubt of copies that a new answer begins with: it may be an edit after many chats."""
_LATEST = 0.7
"""Memory of a pace that follows the last three rounds."""
_NEURAL_DOUBT = 0.2  # doubled 1.00 (0.98), halved 0.83 (0.46)
"""Initial doubt of neural drafts, as a share of their cost: not every text is as easy as it looks.
"""
LEVELS = (1, 2, 3, 5, 7, 11, 15, 23)
"""Numbers of nodes: a session remembers for each what drafts of at most that many nodes save."""
_SAVING_MEMORY, _SAVING_DOUBT = 0.9, 3.0
"""The memory of a source's saving in a session, and the rounds without any that it begins with: a
source reads a prompt only after it would have saved time for some rounds. With a memory of 20
rounds and twice as many to begin with, answers of 14 tokens on a GPU were a tenth slower."""
_SELDOM = 8
"""A slow source that does not pay is still asked in one round of so many: texts change."""


@dataclass(frozen=True, slots=True)
class Neural:
    """A source that is not free and could draft now, reading `pending` tokens first.

    `before` are the rows of its latest forward, 0 if that is not known. It has left out `skipped`
    tokens of the text; None where it has to read all of them. One that is `stepwise` reads the
    nodes drafted before its own one a forward, as it drafts, and no more than `STEPS` of them.
    """

    name: str
    pending: int
    before: int = 0
    skipped: int | None = None
    stepwise: bool = False


@dataclass(slots=True)
class NeuralStats:
    """One neural source in one session: how far its drafts fell short, and what they would save.

    `saving` is the share of its time that the session would save by the source, on average over the
    rounds. Over the rest of the session this has to repay the reading of the source's backlog.
    """

    bias: AcceptanceBias = field(default_factory=lambda: AcceptanceBias.doubted(_NEURAL_DOUBT))
    saved: float = 0.0
    seen: float = _SAVING_DOUBT

    @property
    def saving(self) -> float:
        """Share of its time that the session would save if the source were up to date."""
        return self.saved / self.seen

    def begin(self, saving: float) -> None:
        """Add a round in which the source, up to date, would save this share of the time."""
        self.saved = _SAVING_MEMORY * self.saved + saving
        self.seen = _SAVING_MEMORY * self.seen + 1
        self.bias.forgive(SESSION)


class Bet(NamedTuple):
    """A draft of a neural source that promises `worth` tokens beyond its `cost`.

    The cost is in tokens, at `rate` tokens a second.
    """

    source: str
    worth: float
    cost: float
    rate: float


@dataclass(slots=True)
class SlowSource:
    """The recent saving by one slow source in one session, in seconds a call."""

    saving_seconds: float
    skipped: int = 0

    def due(self, takes_seconds: float) -> bool:
        """Whether to ask in this round, where a call takes so long."""
        self.skipped += 1
        if self.saving_seconds < takes_seconds and self.skipped < _SELDOM:
            return False
        self.skipped = 0
        return True

    def brought(self, seconds: float) -> None:
        """Learn from a call: the seconds that the round is worth more for it."""
        self.saving_seconds = moved(self.saving_seconds, seconds, RECENT)


@dataclass(slots=True)
class SessionStats:
    """The controller's statistics of one session. Opaque to its owner.

    `neural`, by source, and `copies` are how far drafts and free chains fell short of expectations.
    This doubt fades, so an abandoned source is tried again, later each time that it disappoints.

    `speeds` are decaying sums of tokens and time, with a long and a short memory.

    `expected_saving` are the seconds that free drafts of at most so many nodes (`LEVELS`) save in a
    round, before their cost. `asking` is the recent saving by each slow source. `regret_budget` is
    how far the answer is behind plain decoding, `filling` what may still be lost by nodes in rows
    that are as good as paid.
    """

    local: SessionAcceptance = field(default_factory=SessionAcceptance)
    speeds: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * 2
    neural: dict[str, NeuralStats] = field(default_factory=dict)
    copies: AcceptanceBias = field(default_factory=AcceptanceBias)
    expected_saving: tuple[float, ...] = (0.0,) * len(LEVELS)
    asking: dict[str, SlowSource] = field(default_factory=dict)
    regret_budget: RegretBudget = field(default_factory=RegretBudget)
    filling: FillingBudget = field(default_factory=FillingBudget)

    @property
    def speed(self) -> float:
        """Recent tokens in the time of a one-row forward; 0 before anything was committed.

        The lower of two paces, a slow and a fast mean. After one long accepted copy the slow mean
        stays high for many rounds and would make time too dear for ordinary drafts; the fast one
        falls soon.
        """
        return min(tokens / time if time > 0 else 0.0 for tokens, time in self.speeds)

    def source(self, name: str) -> NeuralStats:
        """The record of a neural source in this session."""
        return self.neural.setdefault(name, NeuralStats())

    def advance(self, tokens: int, time: float) -> None:
        """Add a round that committed `tokens` in `time`, in one-row forwards of the target."""
        self.speeds = tuple(
            (stats * before + tokens, stats * lasted + time)
            for stats, (before, lasted) in zip((RECENT, _LATEST), self.speeds, strict=True)
        )

    @classmethod
    def after(
        cls, copies: AcceptanceBias, expected_saving: tuple[float, ...] = (0.0,) * len(LEVELS)
    ) -> SessionStats:
        """The statistics of a new answer, with the doubt of copies that earlier ones left."""
        doubt = max(0.0, min(copies.doubt, _MOST_PASSED_ON))
        return cls(copies=AcceptanceBias.doubted(doubt), expected_saving=expected_saving)

    @property
    def copies_cost(self) -> float:
        """The factor by which a copy must repay its cost, at least 1."""
        return 1 + max(0.0, self.copies.doubt)

    def forgive_copies(self) -> None:
        """Let the doubt of copies fade by one round."""
        self.copies.forgive(_COPY_FORGIVENESS)

    def observe_draft(self, bet: Bet, accepted: int, seconds: float) -> None:
        """Compare a bet with its outcome: `accepted` nodes, which took `seconds` more."""
        missing = bet.worth - (accepted - bet.rate * seconds)
        self.source(bet.source).bias.observe(missing, bet.cost, bet.worth + bet.cost)


@dataclass(slots=True)
class Decision:
    """The decision about one session in one round, kept to learn from it after the round.

    It is the `bet` on a neural draft, and the draft that was `proposed`, before it was cut.
    """

    bet: Bet | None = None
    proposed: Draft = field(default_factory=Draft)


@dataclass(frozen=True, slots=True)
class View:
    """One session in this round.

    `free` holds one chain per free source that has one, `budget` the most nodes that may be
    drafted, `remaining` the expected tokens still to come. `always` forbids depth 0 where there is
    a draft. `target_confidence` is the mean probability that the target lately gave its own tokens,
    if known: it predicts how often a draft model will agree, before that has read anything. `cells`
    are the tokens before the draft, on which every row of it looks back. `elapsed_seconds` is the
    session's time since its admission. `asked` are the seconds that each slow free source took.
    With `trees` the draft may be a tree. `carried` is the continuation that a neural source drafted
    for this round while the target verified the last one.
    """

    free: tuple[Draft, ...] = ()
    neural: tuple[Neural, ...] = ()
    budget: int = 0
    remaining: float = 256.0
    always: bool = False
    stats: SessionStats | None = None
    target_confidence: float | None = None
    cells: int = 0
    elapsed_seconds: float = 0.0
    asked: Mapping[str, float] = field(default_factory=dict)
    trees: bool = False
    carried: Draft = field(default_factory=Draft)
    decision: Decision = field(default_factory=Decision)

    @property
    def expected_target_confidence(self) -> float:
        """`target_confidence`, or that of a middling text while it is not known."""
        known = self.target_confidence
        return TARGET_CONFIDENCES[len(TARGET_CONFIDENCES) // 2] if known is None else known

    @property
    def local(self) -> SessionAcceptance | None:
        """The session's own acceptance, where statistics of it are kept."""
        return self.stats.local if self.stats is not None else None


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The plan of one session's draft: `base`, continued by at most `budget` nodes of `extend`.

    Before each further node the source `extend` calls `worth` with its signals so far. `along`
    gives the number of leading nodes of a cheaper source's chain to read in the same forward. The
    source reads at most `read` pending tokens, after it has left out the oldest `skip` of them.
    With `siblings` it adds second choices, where it has them.
    """

    base: Draft
    extend: str | None
    budget: int
    worth: Callable[[Sequence[Signal]], bool]
    along: Callable[[Draft], int] = len
    read: int = READ_ROWS
    skip: int = 0
    siblings: bool = False


@dataclass(frozen=True, slots=True)
class Drafted:
    """The cost of one source's drafting: `depth` forwards after reading `pending` tokens.

    `guessed` more tokens were read in those forwards. `cells` are the tokens before the drafts, of
    all its sessions together. `changes` of the forwards had another row count than the one before;
    `first` is whether one of them was the first of its row count.
    """

    name: str
    pending: int
    depth: int
    seconds: float
    cells: int = 0
    guessed: int = 0
    changes: int = 0
    first: bool = False


@dataclass(frozen=True, slots=True)
class VerifiedDraft:
    """The verified draft and how many of its nodes agreed with the target, one behind the other."""

    draft: Draft
    accepted: int


@dataclass(frozen=True, slots=True)
class Round:
    """A round. `views`, `judged` and `committed` are aligned, one entry per session.

    `rows` counts all rows of the decode, and `alike` forwards right before it had as many. Free
    chains are scored against the `committed` tokens. `asked_seconds` went to slow free sources, and
    to continuations that outlasted the forward, while nothing else ran. `planning_seconds`, a part
    of `host_seconds`, went to asking other drafters and making plans before the forward. `copies`
    of states took `copy_seconds`. The decode is `regular` if it was one forward of what plain
    decoding and drafts need, and `first` if none before had as many rows since the model was
    loaded.
    """

    rows: int
    target_seconds: float
    host_seconds: float
    drafted: tuple[Drafted, ...]
    views: tuple[View, ...]
    judged: tuple[VerifiedDraft, ...]
    committed: tuple[tuple[Token, ...], ...]
    alike: int = STEADY
    copies: int = 0
    copy_seconds: float = 0.0
    asked_seconds: float = 0.0
    planning_seconds: float = 0.0
    regular: bool = True
    first: bool = False


class Policy(Protocol):
    """Decides the rounds: `controller.Controller`, or a fixed one in tests and benchmarks."""

    def open_session(self) -> SessionStats | None:
        """A memory for one request, put into each of its views."""

    def wants_slow_source(
        self, name: str, stats: SessionStats | None, beside: str | None = None
    ) -> bool:
        """Whether a slow free source is asked in this round.

        With `beside`: whether it is asked for a guess before a forward of that neural source.
        """

    def likely(self, stats: SessionStats | None) -> Callable[[Sequence[Signal]], bool]:
        """A rule for one free chain: whether it may be worth another node behind these signals.

        It is called with each beginning of the chain in turn.
        """

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """Choose the source of each session, before drafting.

        `other_rows` of prefill share the decode; the target's latest forward had `before` rows.
        """

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """Each draft with what other sources propose beside it, the likeliest nodes first."""

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """How many leading nodes of each draft are verified, after drafting."""

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """How many nodes can be added to each draft for next to nothing, after `cut`."""

    def padded(self, rows: int) -> int:
        """How many rows to decode at least, in a round that needs `rows`, after `cut`."""

    def asks(self, stats: SessionStats | None) -> bool:
        """Whether drafters are asked before the next forward, after a round that suggests it.

        Otherwise they are asked while the forward runs.
        """

    def even(self, rows: Sequence[int]) -> bool:
        """Whether all sessions should have as many rows as the one with the most of these.

        Called where a forward holds equally many rows of each session.
        """

    def observe(self, round_: Round) -> None:
        """Learn from one round."""
