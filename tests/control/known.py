"""A controller that knows its machine exactly, and drafts with the chances that a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from control.simulator import Machine

from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, Costs
from localspec.control.forwards import Layout
from localspec.control.round import DraftPlan, View
from localspec.types import Draft, Signal

FLAT = {1: 1, 8: 1.01, 32: 1.05}
LONG = 60.0
"""Seconds after which an answer may lose a whole draft."""


def controller(
    curve: Mapping[int, float],
    step: float = 0.3,
    multiple: int = 1,
    read: float = 0.08,
    layout: Layout = "shared",
) -> Controller:
    """A controller that knows this machine exactly."""
    machine = Machine(curve, step, read)
    costs = Costs()
    for _ in range(60):
        for rows in POINTS:
            costs.measured(rows, 0.03 * machine.target(rows))
        costs.measured_draft("neural", 1, 4, 0.03 * machine.draft(1, 4))
        costs.measured_draft("neural", 101, 1, 0.03 * machine.draft(101, 1))
    return Controller(costs, Acceptance(), multiple=multiple, layout=layout)


def chain(priors: Sequence[float], source: str = "lookup") -> Draft:
    """A chain whose nodes have these priors, each in a bucket of its own."""
    signals = [Signal(source, int(1000 * prior), prior) for prior in priors]
    return Draft.chain([1] * len(priors), signals)


def decide(control: Controller, view: View) -> tuple[DraftPlan, int]:
    """Plan and cut one session that nobody drafts for beyond the plan's base."""
    (plan,) = control.plan([view])
    (count,) = control.cut([view], [plan.base])
    return plan, count
