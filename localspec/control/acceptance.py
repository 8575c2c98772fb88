"""The probability that a drafted token is accepted, learned from the target's verdicts.

An estimate has three layers, each starting from the one before: the drafter's prior, the model's
counts of accepted nodes by source and bucket (kept on disk), and the session's difference from
these. Of each outcome the model's counts take a share, which falls while the session goes on, and
the session's own counts take the rest: otherwise one long copy would make every later text seem a
copy. The expectations of a neural source before it drafts are in `confidence.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from localspec.control import trees
from localspec.control.confidence import DraftConfidence
from localspec.types import Draft, Signal

_PRIOR_WEIGHT = 16.0  # doubled 0.98 (0.98), halved 0.80 (0.41)
"""Observations that a drafter's prior counts for: a bucket's first misses must not silence it."""
_HEARD = 8.0  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""The model's counts take the share 1/(1 + n/8) of a session's outcome number n of a source."""
_MEMORY = 0.997  # doubled 1.00 (1.00), halved 1.00 (1.00)
"""The share of a bucket's counts that is kept at each observation: the last few hundred count."""
_SURE = 0.999
"""Averages are kept between 0.001 and this, because a session's correction cannot move 0 or 1."""

LEAST_CHANCE = 1 / 64
"""The least survival at which a node is worth a row, or a forward, that costs anything. A node in a
row that seems free is charged as many tokens at least, because the believed costs of neighbouring
row counts differ by noise. Where rows really are free, three of a hundred such nodes are accepted
(docs/internals/measured.md)."""

_WEIGHT_TOKENS = 6.0
"""Tokens of cost that the doubt with which an answer begins counts for."""
_MEMORY_OF_DRAFTS = 0.99
"""The last hundred drafts count in a bias, and the last hundred outcomes in a correction."""
_LOCAL_RATE = 0.2  # doubled 0.78 (0.38), halved 1.00 (0.99)
_LOCAL_LIMIT = 3.0
"""A session's correction in log-odds: its step for each surprise, so that some five move it by one,
and its bound."""

_Counts: TypeAlias = dict[tuple[str, int], list[float]]
"""Accepted and observed nodes by source and bucket; decayed."""


class SessionAcceptance:
    """The difference of one session from the model's average.

    It holds a correction of log-odds per source, and the shares of outcomes that the model's counts
    did not take.
    """

    def __init__(self) -> None:
        self.counts: _Counts = {}
        self._observed: dict[str, int] = {}
        self._bias: dict[str, float] = {}
        self._odds: dict[str, float] = {}

    def correct(self, source: str, probability: float) -> float:
        """The model's probability, corrected for this session."""
        odds = self._odds.get(source)
        if odds is None:
            return probability
        return odds * probability / (1 - probability + odds * probability)

    def observe(self, signal: Signal, expected: float, *, accepted: bool) -> float:
        """Learn from one outcome and the `expected` chance: a step of online logistic regression.

        Returns:
            The share of the outcome that the model's counts take; the rest is counted here.
        """
        source = signal.source
        bias = _MEMORY_OF_DRAFTS * self._bias.get(source, 0.0) + _LOCAL_RATE * (accepted - expected)
        bias = max(-_LOCAL_LIMIT, min(_LOCAL_LIMIT, bias))
        self._bias[source], self._odds[source] = bias, math.exp(bias)
        observed = self._observed.get(source, 0)
        self._observed[source] = observed + 1
        share = 1 / (1 + observed / _HEARD)
        _count(self.counts, signal, accepted, 1 - share)
        return share


@dataclass(slots=True)
class AcceptanceBias:
    """The shortfall of drafts from their expected acceptance, their cost and promises, in tokens.

    Chances are right on average, but a draft is made where they are highest, and the highest of
    many noisy estimates is too high. Texts that repeat themselves promise most behind the number of
    a list's next point or behind a heading, and there they often go on differently.

    The next draft must be expected to repay more than its cost, by the `doubt`: the shortfall as a
    share of the cost. It is a share because machines differ in how much a draft costs.
    """

    shortfall: float = 0.0
    spent: float = _WEIGHT_TOKENS
    promised: float = _WEIGHT_TOKENS

    @classmethod
    def doubted(cls, doubt: float) -> AcceptanceBias:
        """A bias without observations that begins with this doubt."""
        return cls(doubt * _WEIGHT_TOKENS)

    @property
    def doubt(self) -> float:
        """The recent shortfall of drafts as a share of their cost; negative after a surplus."""
        return self.shortfall / self.spent

    @property
    def kept(self) -> float:
        """The share of the recently promised tokens that were accepted, from 0 to 1."""
        return min(1.0, max(0.0, 1 - self.shortfall / self.promised))

    def forgive(self, kept: float) -> None:
        """Let the doubt fade by a round, to this share of it: the text may have changed."""
        self.shortfall *= kept

    def observe(self, missing: float, cost: float, promised: float) -> None:
        """Learn from a draft that cost `cost` tokens and gave `missing` fewer than it promised."""
        self.shortfall = _MEMORY_OF_DRAFTS * self.shortfall + missing
        self.spent = _fading(self.spent, cost)
        self.promised = _fading(self.promised, promised)


class Acceptance:
    """Calibrated acceptance of one model's sources. Model lifetime; state only."""

    def __init__(self) -> None:
        self._counts: _Counts = {}
        self._confidences: dict[str, DraftConfidence] = {}

    def estimate(self, signal: Signal, local: SessionAcceptance | None = None) -> float:
        """Probability that this node is accepted, given that its parent was."""
        key = signal.source, signal.bucket
        accepted, observed = self._counts.get(key, (0.0, 0.0))
        if local is not None and (counts := local.counts.get(key)) is not None:
            accepted, observed = accepted + counts[0], observed + counts[1]
        average = (accepted + _PRIOR_WEIGHT * signal.prior) / (observed + _PRIOR_WEIGHT)
        average = min(_SURE, max(1 - _SURE, average))
        return local.correct(signal.source, average) if local is not None else average

    def observe(
        self,
        signal: Signal,
        accepted: bool,  # noqa: FBT001 - the outcome is the datum
        local: SessionAcceptance | None = None,
    ) -> None:
        """Learn from one node whose parent was accepted."""
        share = 1.0
        if local is not None:
            share = local.observe(signal, self.estimate(signal, local), accepted=accepted)
        _count(self._counts, signal, accepted, share)

    def survival(
        self, signals: Iterable[Signal], local: SessionAcceptance | None = None
    ) -> list[float]:
        """Probability that each node of a chain is accepted together with all before it."""
        survival: list[float] = []
        alive = 1.0
        for signal in signals:
            alive *= self.estimate(signal, local)
            survival.append(alive)
        return survival

    def survival_of(self, draft: Draft, local: SessionAcceptance | None = None) -> list[float]:
        """Probability that each node of a tree is accepted together with all its ancestors."""
        return trees.survival(draft, lambda signal: self.estimate(signal, local))

    def tree(
        self,
        draft: Draft,
        chains: Iterable[Draft],
        local: SessionAcceptance | None = None,
    ) -> Draft:
        """The draft with the chains grafted in; a draft drawn from laws stays a chain."""
        if draft.drawn:
            return draft.trunk()
        return trees.grown(draft, chains, lambda signal: self.estimate(signal, local))

    def likely(self, local: SessionAcceptance | None) -> Callable[[Sequence[Signal]], bool]:
        """A rule for one free chain: draft on while its survival is above `LEAST_CHANCE`.

        It is called with each beginning of the chain in turn.
        """
        alive = 1.0

        def goes_on(signals: Sequence[Signal]) -> bool:
            nonlocal alive
            if signals:
                alive *= self.estimate(signals[-1], local)
            return alive > LEAST_CHANCE

        return goes_on

    def confidence(self, source: str) -> DraftConfidence:
        """The confidence of a neural source in its drafts."""
        return self._confidences.setdefault(source, DraftConfidence())

    def to_dict(self) -> dict[str, Any]:
        """Everything learned, as JSON has it."""
        return {
            "buckets": [
                [source, bucket, *counts] for (source, bucket), counts in self._counts.items()
            ],
            "confidences": {name: kept.to_dict() for name, kept in self._confidences.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Acceptance:
        """Restore what `to_dict` returned.

        Raises:
            ValueError: the data has another shape; learn anew.
        """
        acceptance = cls()
        try:
            for source, bucket, accepted, observed in data["buckets"]:
                counts = [float(accepted), float(observed)]
                if not 0 <= counts[0] <= counts[1] < math.inf:
                    raise ValueError(f"not acceptance counts: {counts}")
                acceptance._counts[str(source), int(bucket)] = counts
            old = data.get("outlooks")  # as profiles called it before 0.2
            for name, kept in (data["confidences"] if old is None else old).items():
                acceptance._confidences[str(name)] = DraftConfidence.from_dict(kept)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not acceptance counts: {error!r}") from error
        return acceptance


def _count(counts: _Counts, signal: Signal, accepted: bool, weight: float) -> None:  # noqa: FBT001
    """Count an observation in a bucket, which forgets in proportion to its `weight`."""
    bucket = counts.setdefault((signal.source, signal.bucket), [0.0, 0.0])
    kept = _MEMORY**weight
    bucket[0] = kept * bucket[0] + weight * accepted
    bucket[1] = kept * bucket[1] + weight


def _fading(known: float, more: float) -> float:
    """A sum over drafts after one more, whose older part fades to the weight it began with."""
    return _WEIGHT_TOKENS + _MEMORY_OF_DRAFTS * (known - _WEIGHT_TOKENS) + more
