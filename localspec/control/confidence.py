"""The expected worth of a neural draft before it is made, and the best node to stop it at.

A draft model's confidence in a token, calibrated, is the chance that the target agrees. A draft is
therefore a random walk over levels of confidence: each step costs a forward of the draft model, and
the draft may stop after any step. How likely each level is depends on the target's own confidence
in the text, and each drafted node is evidence about that confidence. `DraftConfidence` learns the
shares of levels by target confidence. `solve` finds the best moments to stop for one machine's
costs, by dynamic programming, so that the worth of a draft is known before its first forward.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localspec.control.memory import SESSION, moved

Array: TypeAlias = NDArray[np.float64]

DEPTH = 16
"""The most nodes of a draft for which stopping is solved."""
LEVEL_EDGES = (0.43, 0.6, 0.82, 0.945, 0.985)
"""The chances at which one level of confidence ends and the next begins."""
TARGET_CONFIDENCES = (0.45, 0.55, 0.65, 0.75, 0.84, 0.91, 0.96, 0.99)
"""The target's mean confidence in a text: knots, between which shares are interpolated."""

_FIRST_CHANCES = np.array([0.28, 0.47, 0.7, 0.9, 0.97, 0.996])
"""Mean chance of acceptance in each level, before any draft was observed."""
_NEWS = 0.3
"""The share of its distance to a node's chance by which the expected target confidence moves."""
_FIRST_SHARES = np.array(
    [
        (0.23, 0.26, 0.27, 0.10, 0.06, 0.08),
        (0.18, 0.22, 0.28, 0.11, 0.09, 0.12),
        (0.16, 0.20, 0.26, 0.11, 0.10, 0.17),
        (0.11, 0.16, 0.25, 0.10, 0.11, 0.27),
        (0.06, 0.12, 0.21, 0.10, 0.12, 0.39),
        (0.03, 0.07, 0.16, 0.09, 0.12, 0.53),
        (0.01, 0.03, 0.12, 0.07, 0.10, 0.67),
        (0.01, 0.01, 0.05, 0.03, 0.06, 0.84),
    ]
)
"""First shares (target confidence, level) of the levels: of a 0.5B model drafting for a 1.5B one,
over the built-in suite."""
_FIRST_WEIGHT = 40.0
"""Observed nodes that the first shares of each target confidence count for."""
_MEMORY = 0.998
"""The share of a target confidence's counts that is kept at each node observed there."""


class DraftConfidence:
    """A source's confidence levels by target confidence. Model lifetime; state only."""

    def __init__(self) -> None:
        self._counts = _FIRST_WEIGHT * _FIRST_SHARES
        self.chances = _FIRST_CHANCES.copy()

    def observe(self, chances: Sequence[float], target_confidence: float) -> None:
        """Learn from one draft: the chance of each node, given that its parent is accepted."""
        for chance in chances:
            knot, share = _place(TARGET_CONFIDENCES, target_confidence)
            where = bisect_right(LEVEL_EDGES, chance)
            self.chances[where] = moved(self.chances[where], chance, SESSION)
            for row, weight in ((knot, 1 - share), (knot + 1, share)):
                self._counts[row] *= _MEMORY**weight
                self._counts[row, where] += weight
            target_confidence = news(target_confidence, chance)

    @property
    def shares(self) -> Array:
        """Shares (target_confidence, level) of the levels of confidence."""
        shares: Array = self._counts / self._counts.sum(1, keepdims=True)
        return shares

    def to_dict(self) -> dict[str, Any]:
        """Everything learned, as JSON has it."""
        return {"counts": self._counts.tolist(), "chances": self.chances.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DraftConfidence:
        """Restore what `to_dict` returned.

        Raises:
            ValueError: the data has another shape; learn anew.
        """
        confidence = cls()
        try:
            counts = np.array(data["counts"], dtype=float)
            chances = np.array(data["chances"], dtype=float)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a draft confidence: {error!r}") from error
        sane = counts.shape == _FIRST_SHARES.shape and np.isfinite(counts).all()
        sane = sane and (counts >= 0).all() and (counts.sum(1) > 0).all()
        if (
            not sane
            or chances.shape != (len(_FIRST_CHANCES),)
            or not ((chances >= 0) & (chances <= 1)).all()
        ):
            raise ValueError("not a draft confidence: the numbers have another shape")
        confidence._counts, confidence.chances = counts, chances
        return confidence


def news(target_confidence: float, chance: float) -> float:
    """The target confidence to expect after a drafted node with this chance."""
    return target_confidence + _NEWS * (chance - target_confidence)


def _place(knots: Sequence[float], value: float) -> tuple[int, float]:
    """The index of the last knot up to `value`, and the value's share of the way to the next."""
    knot = min(max(bisect_right(knots, value) - 1, 0), len(knots) - 2)
    share = (value - knots[knot]) / (knots[knot + 1] - knots[knot])
    return knot, min(max(share, 0.0), 1.0)


# --- optimal stopping -----------------------------------------------------------------------------

_FALLING = [
    -math.exp(-hazard / 100)
    for hazard in (0, 1, 3, 6, 10, 15, 20, 30, 40, 55, 70, 90, 120, 160, 220, 300, 400)
]
"""Knots of the tables by the chance that all nodes so far survive, negated to be ascending."""


def _between(knots: Array, values: Array) -> tuple[NDArray[np.intp], Array]:
    """The index of the knot before each value, and its share of the way to the next."""
    inside = np.clip(values, knots[0], knots[-1])
    before = np.minimum(np.searchsorted(knots, inside, side="right") - 1, len(knots) - 2)
    return before, (inside - knots[before]) / (knots[before + 1] - knots[before])


def _towards(knots: Array, values: Array) -> Array:
    """Weights (level, knot, knot) that interpolate a table at `values` (knot, level)."""
    before, share = _between(knots, values.T)
    weights = np.zeros((*before.shape, len(knots)))
    np.put_along_axis(weights, before[..., None], 1 - share[..., None], 2)
    np.put_along_axis(weights, before[..., None] + 1, share[..., None], 2)
    return weights


class Ahead(NamedTuple):
    """Expected outcome of a draft that stops at the best moments.

    `worth` is in tokens beyond those that the same time gives without the draft; `accepted` is the
    number of accepted nodes.
    """

    worth: float
    accepted: float


@dataclass(frozen=True, slots=True)
class StoppingTable:
    """The solved stopping problem of one source, one machine and one rate.

    `tables[:, nodes, alive, target_confidence]` are the fields of `Ahead` for drafting on behind
    `nodes` nodes, all to be verified; `prices[nodes]` are the tokens that verifying so many costs.
    """

    tables: Array
    prices: Sequence[float]

    def ahead(self, target_confidence: float, survival: Sequence[float] = ()) -> Ahead:
        """The outcome of a draft that goes on after nodes with this `survival`, these included."""
        nodes = len(survival)
        alive = survival[-1] if survival else 1.0
        if nodes >= DEPTH or -alive > _FALLING[-1]:
            return Ahead(-math.inf, 0.0)
        before, share = _place(_FALLING, -alive)
        knot, turn = _place(TARGET_CONFIDENCES, target_confidence)
        corners = self.tables[:, nodes, before : before + 2, knot : knot + 2].tolist()
        worth, accepted = (
            (1 - share) * ((1 - turn) * a + turn * b) + share * ((1 - turn) * c + turn * d)
            for (a, b), (c, d) in corners
        )
        gain = sum(survival)
        return Ahead(gain - self.prices[nodes] + worth, gain + accepted)

    def goes_on(self, survival: Sequence[float], target_confidence: float) -> bool:
        """Whether to draft another node after nodes with this `survival`."""
        if len(survival) >= DEPTH:
            return False
        gains = accumulate(survival, initial=0.0)
        stopping = max(gain - price for gain, price in zip(gains, self.prices, strict=False))
        return self.ahead(target_confidence, survival).worth > stopping


def solve(confidence: DraftConfidence, prices: Sequence[float], step: float) -> StoppingTable:
    """Solve the optimal stopping of a draft, backwards from its last node.

    Drafting a node costs `step` and shows its level of confidence. The node is then dropped, or it
    is verified and perhaps followed by another.

    Args:
        confidence: The source's levels of confidence.
        prices: (DEPTH + 1,) tokens that verifying 0, 1, ... nodes costs; prices[0] is 0.
        step: Tokens that drafting one node costs.
    """
    target_confidence = np.array(TARGET_CONFIDENCES)[:, None]
    falling = np.array(_FALLING)
    alive = -falling[:, None] * confidence.chances
    fall = _towards(falling, -alive)
    turn = _towards(
        target_confidence[:, 0],
        target_confidence + _NEWS * (confidence.chances - target_confidence),
    ).transpose(0, 2, 1)
    gain, shares = (
        alive.T[:, :, None],
        confidence.shares.T[:, None, :],
    )  # (level, alive, target_confidence)
    tables = np.zeros((2, DEPTH + 1, len(_FALLING), len(TARGET_CONFIDENCES)))
    for nodes in range(DEPTH - 1, -1, -1):
        on, accepted = fall @ tables[:, None, nodes + 1] @ turn
        kept = gain - (prices[nodes + 1] - prices[nodes]) + np.maximum(on, 0.0)
        accepted = np.where(kept > 0, gain + np.where(on > 0, accepted, 0.0), 0.0)
        tables[0, nodes] = (np.maximum(kept, 0.0) * shares).sum(0) - step
        tables[1, nodes] = (accepted * shares).sum(0)
    return StoppingTable(tables[:, :DEPTH], prices)
