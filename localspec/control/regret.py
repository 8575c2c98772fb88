"""Never slower, whatever is believed: drafts are charged against measured plain decoding. Pure.

Costs and chances are beliefs, and any of them may be wrong: a throttled laptop, a busy GPU, a
mixture of experts whose rows wake different experts. `PlainBaseline` learns the
time of plain decoding from plain rounds alone, some of which are made only to measure it. Against
it every round is booked as a gain or a loss, in tokens of plain decoding. While `PolicyRegret` is
too high, no session drafts. A `RegretBudget` bounds what one answer may lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_RATE = 0.25  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""Share of the latest plain round in the baseline."""
_AGREES = 0.08  # doubled 0.99 (0.97), halved 0.99 (0.97)
"""A plain round this near to what it was expected to take needs no early second one."""
_SOONEST = 24  # doubled 0.99 (0.97), halved 0.99 (0.96)
"""Rounds after which plain decoding is measured again; eight times as many where it surprises no
longer. Twice or half as many: edits on an H100 lose 3 or 4 %."""

ALLOWANCE = 12.0  # doubled 1.00 (1.00), halved 0.73 (0.31)
INCOME = 0.006  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""Tokens that may be lost at first, and what every token adds to that; gains at most half of it. As
many tokens of long rounds are forgiven, and half as many come back."""

_USUAL = 1.5
"""By what factor a round may exceed what is believed of it and be taken for any other. At 2.5 prose
on a simulated H100 with 32B takes 1.6 times as long as where first forwards are as fast as others,
and 1.04 times at 1.5."""

_LONGEST = 64.0
"""Tokens in whose time a round counts at most: a machine that slept tells nothing of drafts."""
_REMEMBERED = 1 - 1 / 64
"""Share of what rounds took beyond belief that is remembered after another one of their kind."""

_FILLING_ALLOWANCE = 0.5
"""Tokens that one answer may lose by filling rows; gains add seven times as much at most."""

_REGRET_SECONDS = 0.05  # doubled 1.00 (1.00), halved 1.00 (0.99)
REGRET_SHARE = 0.05  # doubled 1.01 (1.00), halved 1.00 (0.99)
"""How far an answer may be behind at once, and by what share of its time."""


class PlainBaseline:
    """The measured time of plain decoding, in seconds for a forward of one row.

    A level of its own: `costs.Costs` explains a slow round by whatever is uncertain, also by the
    machine's speed, and would take plain decoding to be slow too.
    """

    def __init__(self) -> None:
        self._log_seconds: float | None = None
        self._surprise = 0.0
        self._period = _SOONEST
        self._since = 0

    @property
    def due(self) -> bool:
        """Whether it is time for a plain round."""
        return self._since >= self._period

    def seconds(self, believed: float) -> float:
        """A row's seconds; `believed` while no plain round was seen."""
        return believed if self._log_seconds is None else math.exp(self._log_seconds)

    def passed(self) -> None:
        """A round that was not plain."""
        self._since += 1

    def measured(self, seconds: float, rows: float) -> None:
        """A plain round of `seconds`, which by its rows and texts is worth so many single rows."""
        log_seconds = math.log(seconds / rows)
        known = log_seconds if self._log_seconds is None else self._log_seconds
        surprise = max(-1.0, min(1.0, log_seconds - known))
        self._log_seconds = known + _RATE * self._confirmed(surprise)
        if self._since:  # made to measure, or no session had drafted for a while
            self._period = (
                min(8 * _SOONEST, 2 * self._period) if abs(surprise) < _AGREES else _SOONEST
            )
        self._since = 0

    def _confirmed(self, surprise: float) -> float:
        """The part that the plain round before agrees with: one suspended round says little."""
        before, self._surprise = self._surprise, surprise
        least, most = sorted((0.0, before))
        return max(least - _AGREES, min(most + _AGREES, surprise))


@dataclass(slots=True)
class PolicyRegret:
    """Gains and losses of all drafts against plain decoding, in its tokens."""

    balance: float = 0.0

    @property
    def left(self) -> float:
        """Tokens of plain decoding that may still be lost."""
        return self.balance + ALLOWANCE

    def earn(self, tokens: float) -> None:
        """Add the income of a round that gave `tokens`: in time that makes up for any loss."""
        self.book(INCOME * tokens, 0.0)

    def book(self, tokens: float, spent: float) -> None:
        """A round gave `tokens` in the time in which plain decoding gives `spent`."""
        self.balance = min(ALLOWANCE / 2, self.balance + tokens - spent)


@dataclass(slots=True)
class Outliers:
    """Time that rounds took far beyond belief: no loss of drafts, as long as it is seldom.

    Another process runs, a page is read, a clock falls; a GPU captures the graph of a row count in
    the first forward of it. Up to `left` tokens of plain decoding are forgiven, which come back by
    every token, and where it was a first forward, as soon as one of its kind is as fast as
    believed. What drafted rounds took beyond belief lately, and plain ones did not, is charged the
    next time: drafts may be why.
    """

    left: float = ALLOWANCE
    firsts: dict[str, float] = field(default_factory=dict)
    repeats: float = 0.0

    def earn(self, tokens: float) -> None:
        """Raise the tokens that may still be forgiven, up to `ALLOWANCE`."""
        self.left = min(ALLOWANCE, self.left + tokens)

    def plain(self, spent: float) -> None:
        """A plain round took as long as `spent` tokens."""
        excess = max(0.0, min(spent, _LONGEST) - _USUAL)
        self.repeats = max(0.0, self.repeats - excess)
        self.earn(excess)

    def charged(
        self, kind: str, spent: float, believed: float, most: float, *, first: bool
    ) -> float:
        """The charge, in tokens, for a part of a round with drafts that took as long as `spent`.

        Args:
            kind: Names forwards that take equally long.
            spent: Tokens that plain decoding gives in that time.
            believed: The same of what was believed.
            most: The most that it may have taken by its own work.
            first: Whether it was the first of its kind.
        """
        excess = min(spent, _LONGEST) - _USUAL * believed
        if excess <= 0:
            self.repeats *= _REMEMBERED
            self.earn(self.firsts.pop(kind, 0.0))
            return spent
        repeated = min(excess, self.repeats)
        alone = max(0.0, min(excess, most - _USUAL * believed) - repeated)
        forgiven = alone if self.left > 0 else 0.0
        self.left -= forgiven
        if first:
            self.firsts[kind] = self.firsts.get(kind, 0.0) + forgiven
        else:
            self.repeats += excess
        return _USUAL * believed + repeated + alone - forgiven


def usual(seconds: float, believed: float) -> float:
    """Seconds of the first forward of a kind as later ones of it may take."""
    return min(seconds, _USUAL * believed)


@dataclass(slots=True)
class RegretBudget:
    """How far one answer is behind what plain decoding would have taken for it, in seconds."""

    behind_seconds: float = 0.0
    spent_seconds: float = 0.0

    def advance(self, seconds: float, plain_seconds: float) -> None:
        """Another round, and what plain ones would have taken for its tokens."""
        self.spent_seconds += seconds
        self.behind_seconds += seconds - plain_seconds

    def left(self, elapsed_seconds: float) -> float:
        """Seconds that may still be lost: at no token is an answer further behind than this allows.

        `elapsed_seconds` is its time so far, from its admission on.
        """
        time = max(elapsed_seconds, self.spent_seconds)
        return _REGRET_SECONDS + REGRET_SHARE * time - self.behind_seconds


@dataclass(slots=True)
class FillingBudget:
    """Tokens that one answer may still lose by filling rows that are as good as paid."""

    left: float = _FILLING_ALLOWANCE

    def book(self, tokens: float) -> None:
        """Add the tokens that filled rows gained, or lost where they are negative."""
        self.left = min(8 * _FILLING_ALLOWANCE, self.left + tokens)
