"""Whether a draft model drafts on while the target verifies, and how far. Pure.

What it adds then is worth something only if all of the draft is accepted and its guess of the bonus
token is right. A forward that ends in time costs nothing on a device of its own; what it lasts
longer, and what it slows the target down where both share a device, is lost in any case.
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
"""Forwards of the least continuation: the first guesses the bonus token, which saves nothing."""
_PRIOR_FORWARDS = 8
"""So many forwards of the draft weigh as much as what is believed of contention before."""
_TRIAL_ROUNDS = 64
"""Where contention forbids it, it is measured again after so many rounds, and later each time:
two forwards in 64 rounds are less than one percent."""
_ALONE_ROUNDS = 16
"""One round in so many is not overlapped, nor the first of a row count: of the target's forwards it
is learned there what they take when they run alone."""
_ALONE_KEPT = 0.8
"""Of such forwards, in how far those of a row count are from the curves, which leave out what
changes of rows take."""


@dataclass(frozen=True, slots=True)
class Window:
    """The target's forward of one round as time to draft in. Seconds.

    The forward `lasts` so long, and one of the draft a `step`. Each second of the draft makes the
    target's longer by `contention`. A continuation has at most so many `nodes`.
    """

    step: float
    lasts: float
    contention: float
    nodes: int
    always: bool = False

    def pays(self, chance: float, elapsed: float, forwards: int = 1) -> bool:
        """Whether so many more forwards of the draft, `elapsed` after the target's began, pay.

        `chance` is that all of the drafted tokens before them become text.
        """
        if self.always:
            return True
        late = max(0.0, forwards * self.step - max(0.0, self.lasts - elapsed))
        cost = late + self.contention * forwards * self.step
        return chance >= LEAST_CHANCE and chance * self.step > cost


class Overlap:
    """Decides for one model. Model lifetime; state only, no clock.

    Args:
        costs: The machine's curves.
        acceptance: The chances of the draft model.
        always: Whatever it costs.
        shared: Target and draft compute on the same device, as far as is known.
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
        """Seconds that the target's forward becomes longer for each second of the draft's."""
        weight = _PRIOR_FORWARDS * self._step
        if not weight + self._drafted:
            return self._expected
        found = (self._more + self._expected * weight) / (self._drafted + weight)
        return max(0.0, found)

    def window(
        self, name: str, rows: int, attended: float, sessions: Sequence[tuple[View, Draft]]
    ) -> Window | None:
        """The time to draft on behind these drafts of a round; None where that does not pay.

        Args:
            name: The draft model's.
            rows: Of the target's forward.
            attended: Tokens that these rows look back on, all together.
            sessions: Those that may be continued, and what is verified of each.
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
        """How likely all of these nodes, one behind the other, become text."""
        chain = [signal for part in signals for signal in part]
        return self._acceptance.survival(chain, view.local)[-1] if chain else 1.0

    def alone(self, rows: int, attended: float, took: float) -> None:
        """Learn from a forward of the target that ran alone."""
        longer = took / self._costs.target(rows, attended)
        known = self._alone.setdefault(rows, longer)
        self._alone[rows] = moved(known, min(longer, 2 * known), _ALONE_KEPT)

    def beside(self, window: Window, took: float, drafted: float) -> None:
        """Learn from one beside which so many seconds were drafted."""
        self._more = SESSION * self._more + took - window.lasts
        self._drafted = SESSION * self._drafted + drafted

    def _trial(self, window: Window, chances: Sequence[float]) -> Window | None:
        """A short window now and then where contention alone speaks against one."""
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
