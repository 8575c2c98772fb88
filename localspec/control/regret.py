"""Never slower, even if beliefs are wrong: drafts are booked against measured plain decoding. Pure.

Costs and chances are beliefs, and any of them may be wrong: a throttled laptop, a busy GPU, a
mixture of experts whose rows use different experts. `PlainBaseline` learns the time of plain
decoding from plain rounds alone, some of which are made only to measure it. Every round is booked
as a gain or a loss against it, in tokens of plain decoding. While `PolicyRegret` is too high, no
session drafts. A `RegretBudget` bounds the loss of one answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_RATE = 0.25  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""Share of the latest plain round in the baseline."""
_AGREES = 0.08  # doubled 0.99 (0.97), halved 0.99 (0.97)
"""A plain round whose log time is this near the baseline needs no early second one."""
_SOONEST = 24  # doubled 0.99 (0.97), halved 0.99 (0.96)
"""Rounds after which plain decoding is measured again, up to eight times as many while it brings no
surprise. With twice or half as many, edits on an H100 lose 3 or 4 %."""

ALLOWANCE = 12.0  # doubled 1.00 (1.00), halved 0.73 (0.31)
INCOME = 0.006  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""Tokens that drafts may lose at first, and what every committed token adds to that; gains add at
most half of the first. As many tokens of long rounds are forgiven, with half of the income."""

_USUAL = 1.5
"""The factor by which a round may exceed its believed time without being an outlier. At 2.5 prose
on a simulated H100 with 32B takes 1.6 times as long as where first forwards are as fast as others,
and 1.04 times at 1.5."""

_LONGEST = 64.0
"""The most tokens whose time a round counts as: a machine that slept tells nothing of drafts."""
_REMEMBERED = 1 - 1 / 64
"""The share of the remembered excess (`Outliers.repeats`) that is kept after a part without any."""

_FILLING_ALLOWANCE = 0.5
"""Tokens that one answer may lose by filling rows; gains add seven times as much at most."""

_REGRET_SECONDS = 0.05  # doubled 1.00 (1.00), halved 1.00 (0.99)
REGRET_SHARE = 0.05  # doubled 1.01 (1.00), halved 1.00 (0.99)
"""Seconds that an answer may be behind at any time, and the share of its time that is added."""


class PlainBaseline:
    """The measured time of plain decoding, in seconds for a forward of one row.

    It is kept apart from `costs.Costs`, which explains a slow round by whatever is uncertain, also
    by the machine's speed, and would then believe plain decoding to be slow too.
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
        """Seconds of a one-row forward; `believed` until a plain round was measured."""
        return believed if self._log_seconds is None else math.exp(self._log_seconds)

    def passed(self) -> None:
        """Count a round that was not plain."""
        self._since += 1

    def measured(self, seconds: float, rows: float) -> None:
        """Learn from a plain round of `seconds` that is worth `rows` one-row forwards."""
        log_seconds = math.log(seconds / rows)
        known = log_seconds if self._log_seconds is None else self._log_seconds
        surprise = max(-1.0, min(1.0, log_seconds - known))
        self._log_seconds = known + _RATE * self._confirmed(surprise)
        if self._since:  # the first plain round behind others, perhaps made to measure
            self._period = (
                min(8 * _SOONEST, 2 * self._period) if abs(surprise) < _AGREES else _SOONEST
            )
        self._since = 0

    def _confirmed(self, surprise: float) -> float:
        """The part of a surprise that the plain round before confirms: one alone may be chance."""
        before, self._surprise = self._surprise, surprise
        least, most = sorted((0.0, before))
        return max(least - _AGREES, min(most + _AGREES, surprise))


@dataclass(slots=True)
class PolicyRegret:
    """Gains and losses of all drafts against plain decoding, in tokens of plain decoding."""

    balance: float = 0.0

    @property
    def left(self) -> float:
        """Tokens of plain decoding that may still be lost."""
        return self.balance + ALLOWANCE

    def earn(self, tokens: float) -> None:
        """Add the income of a round that gave `tokens`, which in time repays any loss."""
        self.book(INCOME * tokens, 0.0)

    def book(self, tokens: float, spent: float) -> None:
        """Book a round that gave `tokens` in the time in which plain decoding gives `spent`."""
        self.balance = min(ALLOWANCE / 2, self.balance + tokens - spent)


@dataclass(slots=True)
class Outliers:
    """The excess of rounds far beyond their believed time, forgiven as long as it is seldom.

    Another process runs, a page is read, the processor's clock falls, or a GPU captures the graph
    of a row count in its first forward: none of this is a loss by drafts. Up to `left` tokens of
    plain decoding are forgiven. They come back with every committed token; those of a first forward
    (`firsts`, by kind) come back once a later one of its kind is as fast as believed. `repeats` is
    the recent excess of rounds with drafts, less that of plain ones: as much of the next excess is
    charged, because drafts may be its cause.
    """

    left: float = ALLOWANCE
    firsts: dict[str, float] = field(default_factory=dict)
    repeats: float = 0.0

    def earn(self, tokens: float) -> None:
        """Raise the tokens that may still be forgiven, up to `ALLOWANCE`."""
        self.left = min(ALLOWANCE, self.left + tokens)

    def plain(self, spent: float) -> None:
        """Learn from a plain round that took as long as `spent` tokens."""
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
            believed: The same for the believed time.
            most: The same for the longest time that its own work can have taken.
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
    """Seconds of the first forward of a kind, cut to what later ones may take."""
    return min(seconds, _USUAL * believed)


@dataclass(slots=True)
class RegretBudget:
    """The seconds by which one answer is behind plain decoding, and those spent on it."""

    behind_seconds: float = 0.0
    spent_seconds: float = 0.0

    def advance(self, seconds: float, plain_seconds: float) -> None:
        """Add a round, and the seconds that plain rounds would have taken for its tokens."""
        self.spent_seconds += seconds
        self.behind_seconds += seconds - plain_seconds

    def left(self, elapsed_seconds: float) -> float:
        """Seconds that the answer may still lose, so that it is never further behind than allowed.

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
