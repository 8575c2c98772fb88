"""How likely a drafted token is to be accepted, learned from what the target said.

Three layers, each starting from the one before: the drafter's own prior, what nodes of this source
and bucket have done on this model (kept on disk), and how this session differs from that. A neural
source is also asked before it drafts: `Yield` remembers what its drafts have been worth lately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.types import Signal

_PRIOR_WEIGHT = 8.0
"""Observations that a drafter's prior counts for: a bucket's first misses must not silence it."""
_MEMORY = 0.997
"""Forgetting per observation of a bucket: it follows the last few hundred."""
_SURE = 0.999
"""No estimate is surer, so that a session's correction can still move it."""

_FADING = 0.97
"""Per session: a source that once disappointed is tried again some fifty sessions later."""

_LOCAL_RATE = 0.12
_LOCAL_MEMORY = 0.99
_LOCAL_LIMIT = 3.0
"""A session's correction in log-odds: about 8 surprises move it by one, and it fades in 100."""


@dataclass(slots=True)
class Yield:
    """What a source's drafts gave: decaying sums over rounds in which it drafted.

    A round is described by nodes drafted, nodes then verified, and expected accepted nodes. The
    verified counts are kept as a histogram, because the target's cost over rows is jagged.
    """

    memory: float
    rounds: float = 0.0
    gain: float = 0.0
    drafted: float = 0.0
    survived: float = 0.0
    verified: dict[int, float] = field(default_factory=dict)

    def add(self, survival: Sequence[float], verified: int) -> None:
        """One draft: the cumulative survival of its nodes, and how many of them were verified."""
        for count in self.verified:
            self.verified[count] *= self.memory
        self.rounds = self.memory * self.rounds + 1
        self.gain = self.memory * self.gain + sum(survival[:verified])
        self.drafted = self.memory * self.drafted + len(survival)
        self.verified[verified] = self.verified.get(verified, 0.0) + 1
        before = 1.0
        alone = 0.0
        for now in survival:
            alone += now / before if before > 0 else 0.0
            before = now
        self.survived = self.memory * self.survived + alone

    def fade(self) -> None:
        """Count all that was seen for less, the averages unchanged."""
        faded = Yield(self.memory).plus(self, _FADING * self.rounds)
        self.rounds, self.gain, self.drafted = faded.rounds, faded.gain, faded.drafted
        self.survived, self.verified = faded.survived, faded.verified

    def plus(self, other: Yield, weight: float) -> Yield:
        """This one with `weight` rounds of the other's average added."""
        scale = weight / other.rounds
        verified = dict(self.verified)
        for count, rounds in other.verified.items():
            verified[count] = verified.get(count, 0.0) + scale * rounds
        return Yield(
            self.memory,
            self.rounds + weight,
            self.gain + scale * other.gain,
            self.drafted + scale * other.drafted,
            self.survived + scale * other.survived,
            verified,
        )

    @property
    def agreement(self) -> float:
        """Mean probability that one more drafted token is accepted, if those before it were."""
        return self.survived / self.drafted


class Local:
    """How one session differs from the model's average: a correction of log-odds per source."""

    def __init__(self) -> None:
        self._bias: dict[str, float] = {}
        self._odds: dict[str, float] = {}

    def correct(self, source: str, probability: float) -> float:
        """The probability for this session."""
        odds = self._odds.get(source)
        if odds is None:
            return probability
        return odds * probability / (1 - probability + odds * probability)

    def observe(self, source: str, expected: float, *, accepted: bool) -> None:
        """One outcome and what `correct` had expected: a step of online logistic regression."""
        bias = _LOCAL_MEMORY * self._bias.get(source, 0.0) + _LOCAL_RATE * (accepted - expected)
        bias = max(-_LOCAL_LIMIT, min(_LOCAL_LIMIT, bias))
        self._bias[source], self._odds[source] = bias, math.exp(bias)


class Acceptance:
    """Calibrated acceptance of one model's sources. Model lifetime; state only."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, int], list[float]] = {}  # accepted, observed; decayed
        self.yields: dict[str, Yield] = {}

    def estimate(self, signal: Signal, local: Local | None = None) -> float:
        """Probability that this node is accepted, given that its parent was."""
        accepted, observed = self._buckets.get((signal.source, signal.bucket), _NOTHING)
        average = (accepted + _PRIOR_WEIGHT * signal.prior) / (observed + _PRIOR_WEIGHT)
        average = min(_SURE, max(1 - _SURE, average))
        return local.correct(signal.source, average) if local is not None else average

    def observe(self, signal: Signal, accepted: bool, local: Local | None = None) -> None:  # noqa: FBT001 — the outcome is the datum
        """One node whose parent was accepted, and what the target said of it."""
        if local is not None:
            local.observe(signal.source, self.estimate(signal, local), accepted=accepted)
        bucket = self._buckets.setdefault((signal.source, signal.bucket), [0.0, 0.0])
        bucket[0] = _MEMORY * bucket[0] + accepted
        bucket[1] = _MEMORY * bucket[1] + 1

    def survival(self, signals: Iterable[Signal], local: Local | None = None) -> list[float]:
        """Probability that each node of a chain is accepted together with all before it."""
        survival: list[float] = []
        alive = 1.0
        for signal in signals:
            alive *= self.estimate(signal, local)
            survival.append(alive)
        return survival

    def to_dict(self) -> dict[str, Any]:
        """Everything learned, as JSON has it."""
        return {
            "buckets": [
                [source, bucket, *counts] for (source, bucket), counts in self._buckets.items()
            ],
            "yields": {
                name: {
                    "memory": kept.memory,
                    "rounds": kept.rounds,
                    "gain": kept.gain,
                    "drafted": kept.drafted,
                    "survived": kept.survived,
                    "verified": {str(count): share for count, share in kept.verified.items()},
                }
                for name, kept in self.yields.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Acceptance:
        """What `to_dict` gave.

        Raises:
            ValueError: the data has another shape; learn anew.
        """
        acceptance = cls()
        try:
            for source, bucket, accepted, observed in data["buckets"]:
                counts = [float(accepted), float(observed)]
                if not 0 <= counts[0] <= counts[1] < math.inf:
                    raise ValueError(f"not acceptance counts: {counts}")
                acceptance._buckets[str(source), int(bucket)] = counts
            for name, kept in data["yields"].items():
                verified = {int(count): float(share) for count, share in kept["verified"].items()}
                acceptance.yields[str(name)] = Yield(**{**kept, "verified": verified})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not acceptance counts: {error!r}") from error
        return acceptance


_NOTHING = (0.0, 0.0)
