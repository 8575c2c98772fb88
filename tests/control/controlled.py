"""The controller at work in a simulated world; what it gets to see of costs is noisy."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from control.simulator import CONFIDENCES, Device, Machine, Outcome, Text, accepted

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, Costs
from localspec.control.round import Drafted, Neural, Plan, Round, VerifiedDraft, View
from localspec.types import Draft, Signal


def profiled(machine: Machine, rng: random.Random, samples: int = 3) -> Costs:
    """Costs as a measurement at load leaves them: interleaved, noisy, changes apart."""
    costs, row = Costs(), machine.row_seconds
    costs.measured(1, row * machine.target(1))
    costs.expect_draft("neural", machine.step)
    for alike, change in enumerate(machine.changes):
        costs.expect_change(alike, row * change)
    costs.expect_draft_change("neural", row * sum(machine.draft_changes))
    for _ in range(samples):
        for rows in POINTS:
            costs.measured(rows, row * machine.target(rows) * rng.lognormvariate(0, machine.noise))
        costs.measured_draft("neural", 1, 4, row * machine.draft(1, 4))
        costs.measured_draft("neural", 64, 1, row * machine.draft(64, 1))
    return costs


class Useless:
    """A free source that promises much and is hardly ever right, as a corpus of another project."""

    RIGHT = 0.03
    PRIORS = (0.3, 0.5, 0.7)

    def __init__(self, name: str, seed: int) -> None:
        self._name, self._seed = name, seed

    def draft(self, position: int, budget: int) -> Draft:
        """Its chain at a position, the same whenever it is asked; now and then nothing."""
        rng = random.Random(f"{self._name} {self._seed} {position}")  # noqa: S311 — a simulation
        nodes = min(budget, rng.choice((0, 1, 3, 8, 24)))
        tokens = [int(rng.random() < self.RIGHT) for _ in range(nodes)]
        bucket = rng.randrange(len(self.PRIORS))
        return Draft.chain(tokens, [Signal(self._name, bucket, self.PRIORS[bucket])] * nodes)


class Controlled:
    """The controller at work on one text, with everything it needs around it."""

    def __init__(
        self,
        machine: Machine,
        text: Text,
        seed: int,
        *,
        controller: Controller | None = None,
        believed: Machine | None = None,
        sources: Sequence[str] = ("lookup", "neural"),
        unread: int = 1,
        budget: int = 24,
        moods: Mapping[int, Machine] | None = None,
        silent_from: int | None = None,
        prefill: float = 100.0,
        useless: int = 0,
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311 — a simulation
        self.machine = machine
        self.device = Device(machine, moods or {})
        self.text = text
        costs = None if controller else profiled(believed or machine, self.rng)
        self.controller = controller or Controller(costs or Costs(), Acceptance())
        self.sources = sources
        self.budget = budget
        self.silent_from = text.length + budget if silent_from is None else silent_from
        self.prefill = prefill
        self.useless = [Useless(f"useless {number}", seed) for number in range(useless)]
        self.target_confidence = CONFIDENCES[text.bucket[0]]
        self.stats = self.controller.open_session()
        self.read = -unread + 1
        self.outcome = Outcome()

    def play(self, until: int | None = None) -> Outcome:
        """Go on to position `until`, or to the end of the text."""
        stop = self.text.length if until is None else until
        while self.outcome.tokens < stop:
            self._round()
        return self.outcome

    def view(self) -> View:
        """The session as the engine would show it: nobody knows how long an answer will be."""
        position = self.outcome.tokens
        lookup = self.text.lookup(position, self.budget) if "lookup" in self.sources else Draft()
        neural = Neural("neural", position - self.read + 1, before=self.device.source.rows)
        return View(
            free=((lookup,) if lookup else ()) + self._useless(position),
            neural=(neural,) if "neural" in self.sources else (),
            budget=self.budget,
            remaining=float(min(self.text.length - position, max(position - 32, 32))),
            stats=self.stats,
            target_confidence=self.target_confidence,
            elapsed_seconds=self.machine.row_seconds * (self.prefill + self.outcome.time),
        )

    def _useless(self, position: int) -> tuple[Draft, ...]:
        chains = (each.draft(position, self.budget) for each in self.useless)
        return tuple(chain for chain in chains if chain)

    def _round(self) -> None:
        position, outcome, device = self.outcome.tokens, self.outcome, self.device
        row = self.machine.row_seconds
        view = self.view()
        (plan,) = self.controller.plan([view], before=device.target.rows)
        tail, drafted, cost = Draft(), None, 0.0
        if plan.extend is not None:
            tail, drafted, cost = self._extend(plan)
        whole = plan.base.then(tail)
        (count,) = self.controller.cut([view], [whole])
        draft = whole.head(count)
        kept = accepted(draft)
        if tail:
            self.read = position + min(accepted(whole), kept, len(whole) - 1) + 1
        rows = max(1 + len(draft), self.controller.padded(1 + len(draft)))
        target, host = device.decode(position, rows), device.at(position).host
        outcome.time += target + host + cost
        for place in range(position, position + kept + 1):
            self.target_confidence += (
                CONFIDENCES[self.text.bucket[place]] - self.target_confidence
            ) / 6
        outcome.passed(kept + 1)
        for signal in draft.signals:
            outcome.drafted[signal.source] = outcome.drafted.get(signal.source, 0) + 1
        self.controller.observe(
            Round(
                rows=rows,
                target_seconds=row * target * self._noise(),
                host_seconds=row * host,
                drafted=() if drafted is None else (drafted,),
                views=(view,),
                judged=(VerifiedDraft(draft, kept),),
                committed=((1,) * (kept + 1),),
                alike=device.target.alike,
            )
        )

    def _extend(self, plan: Plan) -> tuple[Draft, Drafted, float]:
        """The neural source's addition to the plan's base, and its cost in rows."""
        position, track = self.outcome.tokens, self.device.source
        pending, changed, row = position - self.read + 1, track.changed, self.machine.row_seconds
        reads = min(pending + len(plan.base), plan.read)
        tail, steps = Draft(), 0
        if reads == pending + len(plan.base):
            self.read += pending
            if position < self.silent_from:
                while len(tail) < plan.budget and plan.worth(tail.signals):
                    tail = self.text.neural(position + len(plan.base), len(tail) + 1)
                steps = len(tail) - 1
        else:
            self.read += reads
        each = [1] * reads if plan.stride == 1 else [reads]
        cost = self.device.draft(position, each, steps)
        pending, depth = min(pending, reads), len(tail)
        if plan.stride == 1:
            pending, depth = 1, depth + pending - 1
        seconds, changes = row * cost * self._noise(), track.changed - changed
        return tail, Drafted("neural", pending, depth, seconds, changes=changes), cost

    def _noise(self) -> float:
        spike = 3.0 if self.rng.random() < 0.02 else 1.0
        return spike * self.rng.lognormvariate(0, self.machine.noise)
