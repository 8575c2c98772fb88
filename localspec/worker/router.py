"""Routes requests: gathers the facts for the pure decision, and learns from finished answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from localspec.engine.kv.rollback import Rollback
from localspec.engine.routing import (
    Expectation,
    HotAcceptance,
    Lengths,
    Reason,
    RequestFacts,
    route,
)
from localspec.types import LOOKAHEAD, SourceCount
from localspec.wire.messages import Finished
from localspec.worker.preparation import PreparedRequest


class Router:
    """Decides for each request whether it speculates. Model lifetime; the engine's thread.

    Args:
        drafters: Names of the sources that are loaded and usable.
        pair_fits: False when a draft model was there but does not fit the target.
        rollback: How the target's memory goes back.
    """

    def __init__(self, drafters: Collection[str], *, pair_fits: bool, rollback: Rollback) -> None:
        self._drafters = tuple(drafters)
        self._pair_fits = pair_fits
        self._can_roll_back = rollback != "none"
        self._lengths = Lengths()
        self._heat = HotAcceptance()

    def route(self, prepared: PreparedRequest) -> tuple[Reason, Expectation]:
        """The routing reason, and the expected length of the answer."""
        request = prepared.request
        wish = request.speculation
        expected = self._lengths.predict(request.client, request.endpoint, prepared.max_tokens)
        at_least = min(len(prepared.prediction), prepared.max_tokens)
        facts = RequestFacts(
            mode=wish.mode,
            drafters=tuple(
                name for name in self._drafters if wish.drafters is None or name in wish.drafters
            ),
            predicted_tokens=max(expected, at_least),
            pair_fits=self._pair_fits,
            can_roll_back=self._can_roll_back,
            temperature=request.sampling.temperature,
            acceptance=self._heat.acceptance(request.sampling.temperature),
        )
        return route(facts), self._lengths.expect(request.client, request.endpoint, at_least)

    def learn(self, prepared: PreparedRequest, finished: Finished) -> None:
        """Learn from a finished request; a cancelled one teaches no length."""
        request = prepared.request
        if finished.reason != "cancelled":
            tokens = finished.usage.completion_tokens
            self._lengths.observe(request.client, request.endpoint, tokens)
        self._heat.observe(request.sampling.temperature, *chosen(finished.speculation.sources))


def chosen(sources: Mapping[str, SourceCount]) -> tuple[int, int]:
    """The drafted and accepted tokens of an answer, without lookahead's.

    Lookahead drafts in rows that are paid anyway. Its tokens are seldom accepted, and that says
    nothing about other drafts.
    """
    counts = [count for name, count in sources.items() if name != LOOKAHEAD]
    return sum(count.drafted for count in counts), sum(count.accepted for count in counts)
