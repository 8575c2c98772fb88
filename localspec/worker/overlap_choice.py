"""Decides whether drafts may be continued during verification, by where both models compute."""

from __future__ import annotations

from localspec.catalog.plan import Plan
from localspec.config import Config
from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.control.overlap import Overlap
from localspec.engine.llama import cores
from localspec.machine import Machine

_HOST = "CPU"


def overlap(
    config: Config, plan: Plan, machine: Machine | None, costs: Costs, acceptance: Acceptance
) -> Overlap | None:
    """The pair's `Overlap`, which decides by cost or is always on; None if no draft continues."""
    if config.draft.overlap == "off" or plan.draft is None:
        return None
    if config.draft.overlap == "on":
        return Overlap(costs, acceptance, always=True)
    if machine is not None:
        return Overlap(costs, acceptance, shared=not machine.draft_is_apart)
    shared = _places(plan, "target") & _places(plan, "draft")
    if _HOST in shared and not _threads_apart(config):
        return None  # both would use all cores; taking turns is faster
    return Overlap(costs, acceptance, shared=bool(shared))


def on_host(config: Config, plan: Plan) -> bool:
    """Whether forwards of both models may run on the CPU at the same time.

    Then neither may use what the whole process shares: the shortlist, and the tuned threads.
    """
    wish = config.draft.overlap
    both = _HOST in _places(plan, "target") & _places(plan, "draft")
    return both and (wish == "on" or (wish == "auto" and _threads_apart(config)))


def _places(plan: Plan, model: str) -> set[str]:
    """The devices that compute a part of this model."""
    return {part.device for part in plan.parts if part.model == model and part.weight_bytes}


def _threads_apart(config: Config) -> bool:
    """Whether the configured threads of both models have a core each."""
    target, draft = config.engine.target.threads, config.engine.draft.threads
    return min(target, draft) > 0 and target + draft <= max(cores.counts())
