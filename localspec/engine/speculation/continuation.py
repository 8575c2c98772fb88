"""A draft model continues its draft while the target verifies it (pipelined drafting).

It drafts as if the whole draft were accepted; its first token is a guess of the bonus token. If the
target agrees with all of the draft and with that guess, the other tokens are carried into the next
round, which need not draft them. Otherwise they are forgotten, and the draft model's memory goes
back as after any rejected draft. Either way the target alone decides the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from localspec.control.overlap import Overlap, Window
from localspec.control.round import RECURRING_READS, View
from localspec.engine.forward_thread import ForwardThread, Running
from localspec.engine.session import Session
from localspec.engine.speculation.drafting import Drafting
from localspec.engine.speculation.verification import Outcome
from localspec.types import Backend, Draft, DraftRequest, ForwardOutput, Row, Signal

_NONE = Draft()


@dataclass(frozen=True, slots=True)
class ContinuedDraft:
    """A session whose draft may be continued; `base` is the part of the draft to be verified."""

    session: Session
    view: View
    base: Draft


class Continuation:
    """Continues the drafts of one engine's rounds. Used by the engine's thread.

    Args:
        drafting: Has the drafters.
        overlap: Decides whether drafts are continued, and how far.
        clock: Seconds, monotonic.
    """

    def __init__(self, drafting: Drafting, overlap: Overlap, clock: Callable[[], float]) -> None:
        self._drafting, self._overlap, self._clock = drafting, overlap, clock
        self._beside = ForwardThread(clock)
        self._made: dict[Session, tuple[Draft, Draft]] = {}
        self.running = False
        """Whether a forward of the target runs beside this thread."""
        self.late = 0.0
        """Seconds from the end of the latest forward until this thread asked for its result."""
        self.ran = False
        """Whether drafts were continued beside the latest forward."""

    def decode(
        self,
        target: Backend,
        rows: Sequence[Row],
        sessions: Sequence[ContinuedDraft],
        meanwhile: Callable[[], None],
    ) -> ForwardOutput:
        """A forward of the target, with continuations of these drafts beside it where they pay.

        `meanwhile` is called once a forward runs beside. Raises what the target raises.
        """
        self.late, self.ran = 0.0, False
        self._made.clear()
        attended = sum(row.position for row in rows)
        for name in self._drafting.beside:
            able = [each for each in sessions if _continues(name, each)]
            pairs = [(each.view, each.base) for each in able]
            window = self._overlap.window(name, len(rows), attended, pairs) if able else None
            if window is not None:
                return self._overlapped(target, rows, name, able, window, meanwhile)
        began = self._clock()
        output = target.decode(rows)
        if sessions:
            self._overlap.alone(len(rows), attended, self._clock() - began)
        return output

    def _overlapped(  # noqa: PLR0913, PLR0917 - a forward, and what runs beside it
        self,
        target: Backend,
        rows: Sequence[Row],
        name: str,
        able: Sequence[ContinuedDraft],
        window: Window,
        meanwhile: Callable[[], None],
    ) -> ForwardOutput:
        began = self._clock()
        self.running = True
        running = self._beside.start(target, rows)
        try:
            if running is None:
                self.running = False
                return target.decode(rows)
            try:
                meanwhile()
                drafted = self._draft(name, able, window, running, began)
            finally:
                asked = self._clock()
                output = running.result()
        finally:
            self.running = False
        self.ran, self.late = True, max(0.0, asked - running.ended)
        self._overlap.beside(window, running.ended - began, drafted)
        return output

    def _draft(
        self,
        name: str,
        able: Sequence[ContinuedDraft],
        window: Window,
        running: Running,
        began: float,
    ) -> float:
        """Continue these drafts until it does not pay or the target is done; seconds it took."""

        def asked(each: ContinuedDraft) -> DraftRequest:
            def worth(signals: Sequence[Signal]) -> bool:
                if running.done or len(signals) >= window.nodes:
                    return False
                chance = self._overlap.chance(each.view, each.base.signals, signals)
                return window.pays(chance, self._clock() - began)

            opened = each.session.drafters[name]
            return DraftRequest(opened, each.base, each.view.budget - len(each.base), worth)

        start = self._clock()
        able = [each for each in able if name in each.session.drafters]  # one may have failed
        sessions = [each.session for each in able]
        made = self._drafting.ask(name, [asked(each) for each in able], sessions)
        for each, draft in zip(able, made, strict=True):
            self._made[each.session] = each.base, draft
        return self._clock() - start

    def settle(self, outcomes: Mapping[Session, Outcome]) -> None:
        """Keep the continuations that the target agreed with, for the next round."""
        for session, outcome in outcomes.items():
            base, made = self._made.get(session, (_NONE, _NONE))
            text = (*base.tokens, *made.tokens[:1])
            kept = bool(made) and text == tuple(outcome.advance.tokens)
            session.carried = (
                Draft.chain(made.tokens[1:], made.signals[1:], made.laws[1:]) if kept else _NONE
            )
        self._made.clear()


def _continues(name: str, each: ContinuedDraft) -> bool:
    """Whether a source may continue this session's draft.

    Only under coupled verification: its noise belongs to positions, so it is exact whatever was
    drafted before.
    """
    return (
        name in each.session.drafters
        and each.session.request.speculation.verify == "coupled"
        and each.view.budget > len(each.base) + 1
        and any(
            neural.name == name and neural.pending <= RECURRING_READS for neural in each.view.neural
        )
    )
