"""Decides whether a draft model drafts on while the target verifies, and how far. Pure.

A continuation is worth something only if all of the draft is accepted and its guess of the bonus
token is right. On a device of its own, a forward of the draft that ends before the target's costs
nothing. The time by which it ends later, and the time by which it slows the target down on a shared
device, are lost in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from localspec.control.acceptance import LEAST_CHANCE, Acceptance
from localspec.control.confidence import DEPTH
from localspec.control.costs import Costs
from localspec.control.memory import SESSION, moved
from localspec.control.round import View
from localspec.types import Draft, Signal

_AHEAD = 2
"""Forwards of the shortest continuation: the first guesses the bonus token and saves nothing."""
_PRIOR_FORWARDS = 8
"""Forwards of the draft that the first belief about contention counts for."""
_TRIAL_ROUNDS = 64
"""Rounds after which contention is measured again where it forbids continuations, each time twice
as many, up to 16 times. Two forwards in 64 rounds are less than one percent."""
_ALONE_ROUNDS = 16
"""One round in so many, and the first of each row count, is not overlapped, to learn how long the
target's forwards take when they run alone."""
_ALONE_KEPT = 0.8
"""Memory of how far such forwards of a row count are from the cost curves, which leave out the cost
of changes of rows."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time of the target's forward in one round, as time to draft in. Seconds.

    The target's forward takes `lasts`, a forward of the draft takes `step`. Each second of the
    draft makes the target's forward `contention` seconds longer. A continuation has at most `nodes`
    nodes. With `always` it goes on whatever it costs.
    """

    step: float
    lasts: float
    contention: float
    nodes: int
    always: bool = False

    def pays(self, chance: float, elapsed: float, forwards: int = 1) -> bool:
        """Whether `forwards` more of the draft pay, `elapsed` seconds after the target's began.

        `chance` is the probability that all drafted tokens before them become text.
        """
        if self.always:
            return True
        late = max(0.0, forwards * self.step - max(0.0, self.lasts - elapsed))
        cost = late + self.contention * forwards * self.step
        return chance >= LEAST_CHANCE and chance * self.step > cost


class Overlap:
    """Decides on the continuations of one model's drafts. Model lifetime; state only, no clock.

    Args:
        costs: The machine's curves.
        acceptance: The chances of the draft model's nodes.
        always: Whether to continue drafts whatever that costs.
        shared: Whether target and draft compute on the same device, as far as is known.
    """

    def __init__(
        self, costs: Costs, acceptance: Acceptance, *, always: bool = False, shared: bool = False
    ) -> None:
        self._costs, self._acceptance = costs, acceptance
        self._always = always
        self._expected = 1.0 if shared else 0.0
        self._more = self._drafted = 0.0
        self._step = 0.0
        self._alone: dict[int, float] = {}
        self._rounds = self._passed = 0
        self._rest = _TRIAL_ROUNDS

    @property
    def contention(self) -> float:
        """Seconds by which each second of the draft makes the target's forward longer."""
        weight = _PRIOR_FORWARDS * self._step
        if not weight + self._drafted:
            return self._expected
        found = (self._more + self._expected * weight) / (self._drafted + weight)
        return max(0.0, found)

    def window(
        self, name: str, rows: int, attended: float, sessions: Sequence[tuple[View, Draft]]
    ) -> Window | None:
        """The time to draft on behind these drafts; None where that does not pay.

        It is also None in a round in which the target runs alone to be measured.

        Args:
            name: The draft model's name.
            rows: Rows of the target's forward.
            attended: Tokens that these rows look back on, all together.
            sessions: Sessions whose drafts may be continued, and the verified part of each draft.
        """
        cells = max((view.cells for view, _ in sessions), default=0)
        step = self._costs.draft(name, 1, 1, cells)
        lasts = self._costs.target(rows, attended) * self._alone.get(rows, 1.0)
        window = Window(step, lasts, self.contention, 1 + DEPTH, self._always)
        chances = [
            self.chance(view, draft.signals) * view.expected_target_confidence
            for view, draft in sessions
        ]
        self._step = step
        if not self._pays(window, chances):
            return self._trial(window, chances)
        self._rounds += 1
        alone = rows not in self._alone or self._rounds % _ALONE_ROUNDS == 0
        return None if alone and not self._always else window

    def chance(self, view: View, *signals: Iterable[Signal]) -> float:
        """Probability that all of these nodes, one behind the other, become text."""
        chain = [signal for part in signals for signal in part]
        return self._acceptance.survival(chain, view.local)[-1] if chain else 1.0

    def alone(self, rows: int, attended: float, took: float) -> None:
        """Learn from a forward of the target that ran alone and took `took` seconds."""
        longer = took / self._costs.target(rows, attended)
        known = self._alone.setdefault(rows, longer)
        self._alone[rows] = moved(known, min(longer, 2 * known), _ALONE_KEPT)

    def beside(self, window: Window, took: float, drafted: float) -> None:
        """Learn from a forward that took `took` seconds beside `drafted` seconds of the draft."""
        self._more = SESSION * self._more + took - window.lasts
        self._drafted = SESSION * self._drafted + drafted

    def _trial(self, window: Window, chances: Sequence[float]) -> Window | None:
        """Now and then a short window where contention is the only reason against one."""
        if not self._pays(replace(window, contention=0.0), chances):
            return None
        self._passed += 1
        if self._passed < self._rest:
            return None
        self._passed, self._rest = 0, min(2 * self._rest, 16 * _TRIAL_ROUNDS)
        return replace(window, contention=0.0, nodes=_AHEAD)

    @staticmethod
    def _pays(window: Window, chances: Sequence[float]) -> bool:
        return any(window.pays(chance, 0.0, _AHEAD) for chance in chances)
