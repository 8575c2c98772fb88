"""Rebuilds what surrounds an engine when its exactness changes while the model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.catalog.plan import Plan
from localspec.control.controller import Controller
from localspec.engine.exactness.classes import Shape
from localspec.engine.step import Engine
from localspec.errors import OutOfMemory
from localspec.wire.messages import Ready
from localspec.worker.exactness_choice import ExactnessChoice
from localspec.worker.exactness_decision import ExactnessDecision
from localspec.worker.exactness_probe import BackgroundProbe
from localspec.worker.loader import Loader
from localspec.worker.profile import Profile
from localspec.worker.strict_cost import StrictCost

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context

_log = logging.getLogger("localspec.worker")


@dataclass(frozen=True, slots=True)
class Undecided:
    """A load whose "auto" may be undecided: the verdict, if there is one, and its file."""

    choice: ExactnessChoice
    verdict: StrictCost | None


class ExactnessSwitch:
    """Switches a loaded model to the other exactness; `ready` describes the worker as it is now.

    Implements `exactness_decision.Switching`. Model lifetime.

    Args:
        loader: Has loaded the model.
        target: The target's context.
        engine: Decodes in it.
        controller: Plans that engine's drafts.
        probe: Words the present claim.
        off: The reason why the model does not speculate; None where it does.
        why: The reason why it has no larger plan; empty where there is none.
        others: Plans for the other exactness, made when nothing was loaded.
        more: Further fields of `Ready`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that a change concerns
        self,
        loader: Loader,
        target: Context,
        engine: Engine,
        controller: Controller,
        probe: BackgroundProbe,
        off: str | None,
        why: str,
        others: Sequence[Plan],
        more: Mapping[str, Any],
    ) -> None:
        self._loader, self._target, self._engine = loader, target, engine
        self._controller, self._probe = controller, probe
        self._off, self._why, self._others, self._more = off, why, others, more
        self.ready = self._described()

    @property
    def strict(self) -> bool:
        """Whether every slot has a stream of its own now."""
        return self._loader.strict

    def decision(
        self, profile: Profile, unknown: Undecided | None, known: Shape | None
    ) -> ExactnessDecision:
        """The idle work that decides exactness; it is over at once where the class is `known`."""
        verdict = unknown.verdict if unknown else StrictCost(self.strict, "")
        decision = ExactnessDecision(
            self._engine,
            profile,
            self,
            verdict=verdict,
            kept=unknown.choice if unknown else None,
            prefill_rows=self._loader.command.config.engine.prefill_rows,
            before=lambda: self._loader.threads.measure(self._target, profile),
            over=known is not None,
        )
        self._probe.remark = lambda: "; ".join(
            filter(None, (decision.sentence, verdict.sentence if unknown and verdict else ""))
        )
        self.ready = self._described()
        return decision

    def arrange(self, *, strict: bool) -> None:
        """Rearrange the target's memory. Raises OutOfMemory, ModelError."""
        now = self._loader.plan
        for plan in self._others:
            if (plan.target, plan.draft, plan.head, plan.slots) == (
                now.target,
                now.draft,
                now.head,
                now.slots,
            ):
                self._others = [now]
                self._loader.arrange(self._target, plan, "strict" if strict else "standard")
                self._engine.arrange(self._engine.shape)
                self._controller.costs.snapshots = self._target.snapshots
                self._controller.arrange(self._engine.shape.multiple, self._engine.layout)
                return
        raise OutOfMemory("There is no memory for the other exactness with all layers in place.")

    def known(self, *, strict: bool) -> Profile:
        """The profile of the model in strict or standard use."""
        return self._loader.profile("strict" if strict else "standard")

    def decided(self, shape: Shape, verdict: StrictCost) -> None:
        """Take note that forwards are of this class from now on."""
        self._controller.arrange(shape.multiple, self._engine.layout)
        self._probe.remark = lambda: verdict.sentence if verdict.why else ""
        self.ready = self._described()
        _log.info("exactness=%s %s", self.ready.exactness, self._probe.detail)

    def _described(self) -> Ready:
        ready = self._loader.ready(self._target, self._engine, self._probe, self._off, self._why)
        return msgspec.structs.replace(ready, **self._more)
