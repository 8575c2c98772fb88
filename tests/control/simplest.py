"""The simplest adaptive policy that deserves the name, to measure what today's has beyond it.

An option is worth (1 + sum of P(accepted)) / (seconds of the forward, of drafting and of the host).
Chances are Beta counts by signal, and by depth where a source has not drafted yet; seconds are the
machine's profile times what rounds have lately taken by it, an exponential mean for each row count.
Plain decoding is one of the options, a budget of regret against it bounds what an answer may lose,
and now and then something else than the best is tried. Ideas of today's policy may be added to it
by name (`IDEAS`); docs/internals/simulated.md says what each brings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

from control.means import Beta, Times

from localspec.control.acceptance import Acceptance, SessionAcceptance
from localspec.control.confidence import DEPTH
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.forwards import Layout, forwards
from localspec.control.round import (
    RECURRING_READS,
    Drafted,
    DraftPlan,
    Neural,
    Round,
    VerifiedDraft,
    View,
)
from localspec.control.trees import path
from localspec.types import Draft, Signal, Token

IDEAS: Final = ("pace", "session", "chains")
"""Time is charged at the session's pace instead of each round's own (Dinkelbach, 1967); a session
corrects the model's chances; a free chain may be continued by a neural source."""

NOISE = 0.03
"""A draft must promise more than plain decoding by the noise of measured times."""
REGRET_SECONDS, REGRET_SHARE = 0.05, 0.02
"""How far an answer may be behind plain decoding."""
ALLOWANCE, INCOME = 12.0, 0.006
"""Tokens that all drafts may lose at first, and what each token adds to that."""
TRIAL = 32
"""One round in so many tries the other thing: plain decoding, or drafts where they are left."""
RECENT = 0.95
"""Of a session's pace, by the round."""
LONGEST = 6.0
"""A forward counts as so many plain ones at most: something else held it up."""
REPAID = 1.5
"""A prompt is read for a source that saves so many times as much until the end of the answer."""


@dataclass(slots=True)
class Answer:
    """One request as the policy knows it: how far it is behind plain decoding, and its pace."""

    local: SessionAcceptance = field(default_factory=SessionAcceptance)
    seconds: float = 0.0
    behind: float = 0.0
    lately: tuple[float, float] = (0.0, 0.0)

    @property
    def pace(self) -> float:
        """Tokens a second in the last rounds."""
        tokens, seconds = self.lately
        return tokens / seconds if seconds else 0.0

    def left(self, elapsed: float) -> float:
        """Seconds that may still be lost against plain decoding."""
        return REGRET_SECONDS + REGRET_SHARE * max(self.seconds, elapsed) - self.behind

    def advance(self, tokens: int, seconds: float, plain: float) -> None:
        """A round, which plain decoding takes so long for."""
        before, lasted = self.lately
        self.lately = RECENT * before + tokens, RECENT * lasted + seconds
        self.seconds += seconds
        self.behind += seconds - plain


class Option(NamedTuple):
    """One way to spend a round: its score, its draft, and what reading for that must repay."""

    score: float
    base: Draft = Draft()
    extend: Neural | None = None
    backlog: float = 0.0
    gain: float = 0.0
    drafting: float = 0.0


class Simplest:
    """Decides for all sessions of one model; the protocol is `control.round.Policy`."""

    ideas: frozenset[str] = frozenset()

    def __init__(
        self,
        costs: Costs,
        acceptance: Acceptance,
        *,
        multiple: int = 1,
        layout: Layout = "shared",
    ) -> None:
        self.costs, self.acceptance = costs, acceptance
        self.times = Times(costs)
        self.beta = Beta()
        self._multiple, self._layout = multiple, layout
        self._since_plain = self._since_draft = 0
        self._before = 0
        self.balance = 0.0

    def arrange(self, multiple: int, layout: Layout) -> None:
        """Rows are put into forwards in another way from now on."""
        self._multiple, self._layout = multiple, layout

    def open_session(self) -> Any:
        """Of one request."""
        return Answer()

    # --- prices and chances -----------------------------------------------------------------------

    def _seconds(self, rows: Sequence[int], attended: float = 0.0) -> float:
        """The decode in which each session has so many rows, and the host's work."""
        made = forwards(dict(enumerate(rows)), self._layout, self.costs.snapshots)
        first = self.padded(made[0]) if len(made) == 1 else made[0]
        found = self.times.target(first, attended, self._before) + self.times.host
        return found + sum(self.times.target(each, 0.0, 0) for each in made[1:])

    def _rows(self, nodes: int) -> int:
        return -(-(1 + nodes) // self._multiple) * self._multiple

    def padded(self, rows: int) -> int:
        """The cheapest row count of at least so many: a plateau, or that of the forward before."""
        if self._multiple > 1:
            return rows
        wider = {rows, min(self.costs.plateau(rows), max(rows, 128)), max(rows, self._before)}
        return min(wider, key=lambda each: (self.times.target(each, 0.0, self._before), each))

    def _chance(self, signal: Signal, stats: Any) -> float:
        if "session" in self.ideas:
            return self.acceptance.estimate(signal, stats.local if stats else None)
        return self.beta.chance((signal.source, signal.bucket), signal.prior)

    def _survival(self, signals: Sequence[Signal], stats: Any) -> list[float]:
        chances = (self._chance(signal, stats) for signal in signals)
        return [*accumulate(chances, lambda alive, chance: alive * chance)]

    def _ahead(self, name: str, view: View, first: int) -> list[float]:
        """Survival of nodes that a source has not drafted yet, by depth and the text's ease."""
        chances = (
            self.beta.chance((name, _ease(view), depth), view.expected_target_confidence)
            for depth in range(first, DEPTH)
        )
        return [*accumulate(chances, lambda alive, chance: alive * chance)]

    # --- before drafting --------------------------------------------------------------------------

    def wants_slow_source(self, name: str, stats: Any, beside: str | None = None) -> bool:
        """Always, but not beside another source."""
        del name, stats
        return beside is None

    def asks(self, stats: Any) -> bool:
        """Always."""
        del stats
        return True

    def likely(self, stats: Any) -> Callable[[Sequence[Signal]], bool]:
        """While all of a chain may well survive."""
        alive = 1.0

        def goes_on(signals: Sequence[Signal]) -> bool:
            nonlocal alive
            if signals:
                alive *= self._chance(signals[-1], stats)
            return alive > 1 / 64

        return goes_on

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """The option of the best score for each session, those before it included."""
        self._before = before
        rows = [self._multiple] * len(views) + [other_rows] * (other_rows > 0)
        gain, spent = float(len(views)), 0.0
        plans = []
        for place, view in enumerate(views):
            best = self._best(view, rows, place, gain, spent)
            plans.append(self._as_plan(view, best, gain))
            gain += best.gain
            spent += best.drafting
            rows[place] = self._rows(round(best.gain))
        return plans

    def _best(self, view: View, rows: list[int], place: int, gain: float, spent: float) -> Option:
        """The best option for one session, where `gain` tokens are expected in `spent` drafting."""
        stats: Any = view.stats or Answer()
        plain = self._seconds(rows) + spent
        pace = max(gain / plain, stats.pace) if "pace" in self.ideas else 0.0
        least = _score(gain, plain, pace)
        left = min(stats.left(view.elapsed_seconds), (self.balance + ALLOWANCE) * plain)
        trial = self._since_draft >= TRIAL
        if view.always or (left <= 0 and trial):
            left = math.inf
        if left <= 0 or (self._since_plain >= TRIAL and not view.always):
            return Option(least)
        best = Option(least + NOISE * (1.0 if pace else least))
        for option, survival in self._options(view, stats):
            for nodes, found in enumerate(accumulate(survival), start=1):
                if option.extend is not None and nodes <= len(option.base):
                    continue
                seconds = self._seconds(_put(rows, place, self._rows(nodes)), nodes * view.cells)
                drafting = self._drafting(option, nodes, view)
                seconds += self._copies(nodes) + spent + drafting
                score = _score(gain + found, seconds, pace)
                if seconds - plain <= left and (score > best.score or view.always):
                    base = option.base.head(nodes)
                    best = Option(score, base, option.extend, option.backlog, found, drafting)
        return best

    def _drafting(self, option: Option, nodes: int, view: View) -> float:
        if option.extend is None:
            return 0.0
        unread = 0 if option.base is view.carried else len(option.base)
        read = min(option.extend.pending, RECURRING_READS) + unread
        drafted = nodes - len(option.base)
        name = option.extend.name
        return self.times.draft(name, read, drafted, view.cells) + option.backlog

    def _options(self, view: View, stats: Answer) -> Iterator[tuple[Option, list[float]]]:
        """Drafts that could be made, and how likely each of their nodes survives."""
        chains = [(chain, self._survival(chain.signals, stats)) for chain in view.free]
        for chain, survival in chains:
            yield Option(0.0, chain), survival
        bases = [(view.carried, self._survival(view.carried.signals, stats))]
        bases += chains if "chains" in self.ideas else []
        for source in view.neural:
            backlog = self._backlog(source, view, stats)
            for base, survival in bases if backlog is not None else ():
                alive = survival[-1] if survival else 1.0
                on = [alive * each for each in self._ahead(source.name, view, len(base))]
                nodes = (survival + on)[: view.budget]
                yield Option(0.0, base, source, backlog or 0.0), nodes

    def _backlog(self, source: Neural, view: View, stats: Answer) -> float | None:
        """Seconds of reading that each round of the answer has to repay; None if none can."""
        if source.pending <= RECURRING_READS:
            return 0.0
        seconds = self.times.draft(source.name, source.pending - RECURRING_READS + 1, 0, view.cells)
        if not view.always and seconds > stats.left(view.elapsed_seconds):
            return None
        return REPAID * seconds / max(1.0, view.remaining / 2)

    def _copies(self, nodes: int) -> float:
        copy = self.costs.copy_seconds
        return copy if copy is not None and nodes > self.costs.snapshots else 0.0

    def _as_plan(self, view: View, option: Option, gain: float) -> DraftPlan:
        """With a rule when to stop: where no number of further nodes is expected to pay."""
        if option.extend is None:
            return DraftPlan(option.base, None, 0, lambda _signals: False)
        name, stats, base = option.extend.name, view.stats, option.base
        based = self._survival(base.signals, stats)
        step = self.times.draft(name, 1, 1, view.cells)
        pace = self._pace([view]) if "pace" in self.ideas else 0.0

        def worth(signals: Sequence[Signal]) -> bool:
            survival = [*based]
            for signal in signals:
                survival.append((survival or [1.0])[-1] * self._chance(signal, stats))
            nodes, total = len(survival), gain + sum(survival)
            now = _score(total, self._seconds([self._rows(nodes)]), pace)
            alive = survival[-1] if survival else 1.0
            ahead = accumulate(alive * each for each in self._ahead(name, view, nodes))
            return not signals or any(
                _score(total + more, self._seconds([self._rows(nodes + n)]) + n * step, pace) > now
                for n, more in enumerate(ahead, start=1)
            )

        return DraftPlan(base, name, view.budget - len(base), worth, lambda _guess: 0)

    def _pace(self, views: Sequence[View]) -> float:
        """Tokens a second: plain decoding's, or the sessions' where that is more."""
        stats: list[Any] = [view.stats for view in views]
        plain = len(views) / self._seconds([self._multiple] * len(views))
        return max(plain, sum(each.pace if each else 0.0 for each in stats))

    # --- after drafting ---------------------------------------------------------------------------

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """Chains."""
        return [draft.trunk().head(view.budget) for view, draft in zip(views, drafts, strict=True)]

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """The likeliest nodes of all drafts, as many as score best."""
        survival = [
            [*accumulate(self._survival(draft.signals, view.stats), min)]
            for view, draft in zip(views, drafts, strict=True)
        ]
        counts = [
            max(draft.drawn, int(view.always and len(draft) > 0))
            for view, draft in zip(views, drafts, strict=True)
        ]
        pace = self._pace(views) if "pace" in self.ideas else 0.0

        def score(nodes: Sequence[int]) -> float:
            gain = len(views) + sum(sum(each[:n]) for each, n in zip(survival, nodes, strict=True))
            attended = sum(n * view.cells for n, view in zip(nodes, views, strict=True))
            rows = [*map(self._rows, nodes), *[other_rows] * (other_rows > 0)]
            return _score(gain, self._seconds(rows, attended) + sum(map(self._copies, nodes)), pace)

        order = sorted(
            (-alive, place, node)
            for place, each in enumerate(survival)
            for node, alive in enumerate(each)
            if node >= counts[place]
        )
        chosen, best = counts, score(counts)
        best += NOISE * (1.0 if pace else best)
        for _, place, _ in order:
            counts = _put(counts, place, counts[place] + 1)
            if (found := score(counts)) > best:
                best, chosen = found, counts
        return chosen

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """None."""
        del nodes, other_rows
        return [0] * len(views)

    def even(self, rows: Sequence[int]) -> bool:
        """Whether one forward of equal rows is cheaper than several."""
        apart = forwards(dict(enumerate(rows)), self._layout, self.costs.snapshots)
        alone = sum(self.times.target(each, 0.0, 0) for each in apart)
        whole = self.times.target(len(rows) * max(rows), 0.0, 0)
        return self._layout == "streams" and self.costs.copy_seconds is None and whole < alone

    # --- afterwards -------------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Times, chances and regret of one round."""
        rows = [self._rows(len(judged.draft)) for judged in round_.judged]
        attended = sum(n * view.cells for n, view in zip(rows, round_.views, strict=True))
        self._learn_times(round_, attended)
        drafted = bool(round_.drafted) or any(judged.draft for judged in round_.judged)
        self._since_plain = self._since_plain + 1 if drafted else 0
        self._since_draft = 0 if drafted else self._since_draft + 1
        drafting = sum(each.seconds for each in round_.drafted)
        seconds = round_.target_seconds + round_.host_seconds + round_.copy_seconds
        count, tokens = len(round_.views), sum(map(len, round_.committed))
        plain = self.times.target(count * self._multiple, attended, 0) + self.times.host
        seconds = min(seconds, LONGEST * plain) + drafting + round_.asked_seconds
        if drafted:
            repaid = sum(map(self._backlog_seconds, round_.drafted))
            self.balance += tokens - (seconds - repaid) * count / plain
        self.balance = min(ALLOWANCE / 2, self.balance + INCOME * tokens)
        for view, judged, committed in zip(
            round_.views, round_.judged, round_.committed, strict=True
        ):
            self._learn_chances(view, judged, committed)
            if view.stats is not None:
                mine: Any = view.stats
                mine.advance(len(committed), seconds, len(committed) * plain)

    def _backlog_seconds(self, drafted: Drafted) -> float:
        if drafted.pending <= RECURRING_READS:
            return 0.0
        backlog = drafted.pending - RECURRING_READS + 1
        return min(
            drafted.seconds,
            self.times.draft(drafted.name, backlog, 0),
        )

    def _learn_times(self, round_: Round, attended: float) -> None:
        if round_.regular and not round_.first and round_.alike:
            expected = self.costs.target(round_.rows, attended)
            self.times.learn(round_.rows, round_.target_seconds, expected)
        for each in round_.drafted:
            pending = each.pending + each.guessed
            expected = self.costs.draft(each.name, pending, each.depth, each.cells, each.changes)
            if expected > 0 and not each.first:
                self.times.learn(each.name, each.seconds, expected)
        self.times.learn_host(round_.host_seconds - round_.planning_seconds)

    def _learn_chances(self, view: View, judged: VerifiedDraft, committed: Sequence[Token]) -> None:
        """Every free chain against the text, then what else was verified."""
        for chain in view.free:
            for token, signal, true in zip(chain.tokens, chain.signals, committed, strict=False):
                self._observe(signal, token == true, view.stats)
                if token != true:
                    break
        shown = {signal.source for chain in view.free for signal in chain.signals}
        neural = {each.name for each in view.neural}
        right = len(path(judged.draft, committed))
        for node, signal in enumerate(judged.draft.signals[: len(committed)][: right + 1]):
            if signal.source not in shown:
                self._observe(signal, node < right, view.stats)
            if signal.source in neural:
                self.beta.observe((signal.source, _ease(view), node), node < right)

    def _observe(self, signal: Signal, right: bool, stats: Any) -> None:
        if "session" in self.ideas:
            self.acceptance.observe(signal, right, stats.local if stats else None)
            return
        self.beta.observe((signal.source, signal.bucket), right)


def _score(tokens: float, seconds: float, pace: float) -> float:
    """Tokens by their seconds; with a pace, tokens less what their seconds bring at it."""
    return tokens - pace * seconds if pace else tokens / seconds


def _put(counts: Sequence[int], place: int, count: int) -> list[int]:
    """The same with another number there."""
    return [*counts[:place], count, *counts[place + 1 :]]


def _ease(view: View) -> int:
    """How sure the target is of the text, in tenths."""
    return int(10 * min(0.99, view.expected_target_confidence))


HELP: Final = f"today, or simplest, with any of {', '.join(IDEAS)}: simplest+{IDEAS[0]}"


def named(name: str) -> Any:
    """The class of a policy by its name on a command line. Raises ValueError."""
    kind, *ideas = name.split("+")
    if name == "today":
        return Controller
    if kind != "simplest" or not set(ideas) <= set(IDEAS):
        raise ValueError(f"{name} is no policy. Name {HELP}.")
    return type("Simplest", (Simplest,), {"ideas": frozenset(ideas)})
