"""What is around an engine and changes with its exactness while a model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.catalog.plan import Plan
from localspec.control.controller import Controller
from localspec.control.strict_cost import StrictCost
from localspec.engine.exactness.classes import Shape
from localspec.engine.step import Engine
from localspec.errors import OutOfMemory
from localspec.wire.messages import Ready
from localspec.worker.exactness_choice import ExactnessChoice
from localspec.worker.exactness_decision import Deciding
from localspec.worker.exactness_probe import BackgroundProbe
from localspec.worker.loader import Loader
from localspec.worker.profile import Profile

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context

_log = logging.getLogger("localspec.worker")


@dataclass(frozen=True, slots=True)
class Unknown:
    """The verdict on "auto" as far as it is known, and where it is kept."""

    choice: ExactnessChoice
    verdict: StrictCost | None


class House:
    """`deciding.Arranging` over a loaded model; says in `ready` what the worker is. Model lifetime.

    Args:
        loader: What has loaded it.
        target: Its context.
        engine: Which decodes in it.
        controller: Which decides for that.
        reach: Says what is claimed.
        off: Why it does not speculate, if it does not.
        why: Why it has no larger plan, if there was one.
        others: Plans for the other exactness, made when nothing was loaded.
        more: What else is said in `Ready`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that a change concerns
        self,
        loader: Loader,
        target: Context,
        engine: Engine,
        controller: Controller,
        reach: BackgroundProbe,
        off: str | None,
        why: str,
        others: Sequence[Plan],
        more: Mapping[str, Any],
    ) -> None:
        self._loader, self._target, self._engine = loader, target, engine
        self._controller, self._probe = controller, reach
        self._off, self._why, self._others, self._more = off, why, others, more
        self.ready = self._said()

    @property
    def strict(self) -> bool:
        """Whether every slot has a stream of its own now."""
        return self._loader.strict

    def deciding(self, profile: Profile, unknown: Unknown | None, known: Shape | None) -> Deciding:
        """What finds out the rest; nothing where the shape is `known`, and why it is so."""
        verdict = unknown.verdict if unknown else StrictCost(self.strict, "")
        deciding = Deciding(
            self._engine,
            profile,
            self,
            verdict=verdict,
            kept=unknown.choice if unknown else None,
            prefill_rows=self._loader.command.config.engine.prefill_rows,
            before=lambda: self._loader.cores(self._target, profile),
            over=known is not None,
        )
        self._probe.remark = lambda: "; ".join(
            filter(None, (deciding.sentence, verdict.sentence if unknown and verdict else ""))
        )
        self.ready = self._said()
        return deciding

    def arrange(self, *, strict: bool) -> None:
        """Let the target's memory be so. Raises OutOfMemory where it cannot, or ModelError."""
        now = self._loader.plan
        for plan in self._others:
            if (plan.target, plan.draft, plan.slots) == (now.target, now.draft, now.slots):
                self._others = [now]
                self._loader.arrange(self._target, plan, "strict" if strict else "standard")
                self._engine.arrange(self._engine.shape)
                self._controller.arrange(self._engine.shape.multiple, self._engine.layout)
                return
        raise OutOfMemory("There is no memory for the other exactness with all layers in place.")

    def known(self, *, strict: bool) -> Profile:
        """What was kept for such use of the model."""
        return self._loader.profile("strict" if strict else "standard")

    def settled(self, shape: Shape, verdict: StrictCost) -> None:
        """Forwards are of this class from now on."""
        self._controller.arrange(shape.multiple, self._engine.layout)
        self._probe.remark = lambda: verdict.sentence if verdict.why else ""
        self.ready = self._said()
        _log.info("exactness=%s %s", self.ready.exactness, self._probe.detail)

    def _said(self) -> Ready:
        said = self._loader.ready(self._target, self._engine, self._probe, self._off, self._why)
        return msgspec.structs.replace(said, **self._more)
