"""The controller at work in a simulated world; what it gets to see of costs is noisy."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from control.simulator import CONFIDENCES, Device, Machine, Outcome, Text, Track, accepted

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, Costs
from localspec.control.round import Drafted, DraftPlan, Neural, Round, VerifiedDraft, View
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


@dataclass
class Other:
    """A further neural source: right as often as it says, and `lower` levels less sure.

    A token costs `step`, reading one `read`, in rows of the target; `unread` of the prompt at
    first.
    """

    name: str
    lower: int = 0
    step: float = 0.1
    read: float = 0.02
    unread: int = 1
    honesty: float = 1.0
    track: Track = field(default_factory=Track)

    def draft(self, text: Text, position: int, depth: int) -> Draft:
        """Its chain at a position, the same whenever it is asked: a true token is 1."""
        tokens, signals = [], []
        for place in range(position, position + depth):
            rng = random.Random(f"{self.name} {place}")  # noqa: S311 — a simulation
            bucket = min(text.bucket[place] + self.lower, len(CONFIDENCES) - 1)
            tokens.append(int(rng.random() < self.honesty * CONFIDENCES[bucket]))
            signals.append(Signal(self.name, bucket, CONFIDENCES[bucket]))
        return Draft.chain(tokens, signals)

    def seconds(self, machine: Machine, reads: Sequence[int], steps: int) -> float:
        """Forwards that read so many rows, then some of one row, in rows of the target."""
        cost = 0.0
        for rows in (*reads, *[1] * steps):
            cost += self.step + (rows - 1) * self.read
            cost += self.track.forward(rows, machine.draft_changes)
        return cost


class Controlled:
    """The controller at work on one text, with everything it needs around it.

    `held_up` are the rows of the target that a drafted round takes more, by how many there were
    before; `spikes` is the share of forwards that seem to take three times as long.
    """

    policy: ClassVar[type[Controller]] = Controller

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
        others: Sequence[Other] = (),
        held_up: Callable[[int], float] = lambda _drafted: 0.0,
        spikes: float = 0.02,
    ) -> None:
        self.rng = random.Random(seed)  # noqa: S311 — a simulation
        self.machine = machine
        self.device = Device(machine, moods or {})
        self.text = text
        costs = None if controller else profiled(believed or machine, self.rng)
        self.controller = controller or self.policy(costs or Costs(), Acceptance())
        self.sources = sources
        self.budget = budget
        self.silent_from = text.length + budget if silent_from is None else silent_from
        self.prefill = prefill
        self.useless = [Useless(f"useless {number}", seed) for number in range(useless)]
        self.target_confidence = CONFIDENCES[text.bucket[0]]
        self.stats = self.controller.open_session()
        self.held_up, self.spikes = held_up, spikes
        self.drafted_rounds = 0
        self.others = {each.name: each for each in others}
        row = machine.row_seconds
        for each in others:
            self.controller.costs.expect_draft(each.name, each.step)
            self.controller.costs.measured_draft(each.name, 1, 4, row * 4 * each.step)
            cost = each.step + 63 * each.read
            self.controller.costs.measured_draft(each.name, 64, 1, row * cost)
        self.read = {"neural": -unread + 1} | {each.name: -each.unread + 1 for each in others}
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
        tracks = {"neural": self.device.source} if "neural" in self.sources else {}
        tracks |= {name: each.track for name, each in self.others.items()}
        neural = tuple(
            Neural(name, position - self.read[name] + 1, before=track.rows)
            for name, track in tracks.items()
        )
        return View(
            free=((lookup,) if lookup else ()) + self._useless(position),
            neural=neural,
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
            read = position + min(accepted(whole), kept, len(whole) - 1) + 1
            self.read[tail.signals[0].source] = read
        rows = max(1 + len(draft), self.controller.padded(1 + len(draft)))
        target, host = device.decode(position, rows), device.at(position).host
        if draft or drafted is not None:
            target += self.held_up(self.drafted_rounds)
            self.drafted_rounds += 1
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
                first=device.target.first,
            )
        )

    def _extend(self, plan: DraftPlan) -> tuple[Draft, Drafted, float]:
        """The neural source's addition to the plan's base, and its cost in rows."""
        assert plan.extend is not None, "a plan that is extended"
        name, position, row = plan.extend, self.outcome.tokens, self.machine.row_seconds
        other = self.others.get(name)
        track = other.track if other else self.device.source
        pending, changed = position - self.read[name] + 1, track.changed
        known = len(track.known)
        reads = min(pending + len(plan.base), plan.read)
        tail, steps = Draft(), 0
        if reads == pending + len(plan.base):
            self.read[name] += pending
            if position < self.silent_from:
                while len(tail) < plan.budget and plan.worth(tail.signals):
                    start, depth = position + len(plan.base), len(tail) + 1
                    more = other.draft(self.text, start, depth) if other else None
                    tail = more or self.text.neural(start, depth)
                steps = len(tail) - 1
        else:
            self.read[name] += reads
        if other:
            cost = other.seconds(self.machine, [reads], steps)
        else:
            cost = self.device.draft(position, [reads], steps)
        pending, depth = min(pending, reads), len(tail)
        seconds, changes = row * cost * self._noise(), track.changed - changed
        first = len(track.known) > known
        return tail, Drafted(name, pending, depth, seconds, changes=changes, first=first), cost

    def _noise(self) -> float:
        spike = 3.0 if self.rng.random() < self.spikes else 1.0
        return spike * self.rng.lognormvariate(0, self.machine.noise)
