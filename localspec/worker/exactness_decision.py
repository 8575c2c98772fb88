"""Decides in idle moments how exact forwards are, and puts the result in force."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from localspec.engine.calibrate import FAR_TOKENS, Timed
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import CountingBackend, Search, Shape, Step
from localspec.engine.exactness.probe import REACH
from localspec.engine.images import sees
from localspec.engine.kv.cells import unasked
from localspec.engine.kv.rollback import Rollback
from localspec.engine.kv.slots import Slot
from localspec.engine.pieces import Pieces
from localspec.engine.set_aside import SlotsSetAside
from localspec.engine.step import Engine
from localspec.errors import ModelError, NoRoom
from localspec.types import Backend, Token
from localspec.worker import exactness_choice
from localspec.worker.exactness_choice import ExactnessChoice
from localspec.worker.profile import Profile
from localspec.worker.strict_cost import StrictCost

_log = logging.getLogger("localspec.worker")

_Found = TypeVar("_Found")

UNCHECKED = "not checked yet"
"""The detail of a class without a claim."""


def unchecked(target: Backend, rollback: Rollback, *, strict: bool) -> Shape:
    """The class of forwards before the check: any rows or, if `strict`, the cheapest strict class.

    With the latter no text has to be read again if that class turns out to hold.
    """
    if rollback == "none":
        return classes.standard(target, rollback=rollback)
    rows = next(classes.candidates(rollback)).max_rows if strict else target.max_rows
    return Shape(1, min(rows, target.max_rows), rollback, detail=UNCHECKED)


class Switching(Protocol):
    """Changes what depends on exactness around an engine: its memory, its plan and its profile."""

    @property
    def strict(self) -> bool:
        """Whether every slot has a stream of its own now."""

    def arrange(self, *, strict: bool) -> None:
        """Rearrange the target's memory; all slots are empty. Raises ModelError, NoRoom."""

    def known(self, *, strict: bool) -> Profile:
        """The profile of the model in strict or standard use."""

    def decided(self, shape: Shape, verdict: StrictCost) -> None:
        """Take note that forwards are of this class from now on."""


class ExactnessDecision:
    """Decides what "auto" is, or which class of forwards holds, while the engine is idle.

    Until it is over the worker claims no exactness. It uses every slot: texts in them are set
    aside, and put back as soon as a request takes a slot. Afterwards a search continues where it
    was; shorter measurements begin anew. The engine's thread.

    Args:
        engine: Makes the forwards.
        profile: Its costs learn the times of the forwards.
        switch: Changes whatever depends on exactness.
        verdict: Strict or standard, where that is known already; the class is still to be found.
        kept: Stores the verdict; None where the configuration decides.
        prefill_rows: Rows of a prompt in one forward of standard use.
        before: A measurement to make first, forward by forward.
        over: Whether there is nothing to decide.
    """

    def __init__(  # noqa: PLR0913 - everything that a decision changes
        self,
        engine: Engine,
        profile: Profile,
        switch: Switching,
        *,
        verdict: StrictCost | None,
        kept: ExactnessChoice | None,
        prefill_rows: int,
        before: Callable[[], Pieces[None]] | None = None,
        over: bool = False,
    ) -> None:
        self.over = over
        self.forgotten: list[Slot] = []
        """Texts that were read in forwards of another class, for `Reread`."""
        self._engine, self._profile, self._switch = engine, profile, switch
        self._verdict, self._kept, self._prefill_rows = verdict, kept, prefill_rows
        self._before = before
        self._aside = SlotsSetAside(engine)
        self._search: Search | None = None
        self._vacated = 0
        self._done, self._ahead = 0, 0 if over else self._expected()
        self._work: Iterator[None] = self._deciding()
        engine.vacate = self._vacate

    def _expected(self) -> int:
        """The forwards to expect if rows agree, counted on a backend that computes nothing."""
        blank, rollback = CountingBackend(self._engine.backend), self._engine.shape.rollback
        if rollback == "none" or (self._verdict and not self._verdict.strict):
            return sum(1 for _ in classes.differing(blank, rollback))
        search = self._searching(blank).step.total
        if self._verdict:
            return search
        looks = sum(1 for _ in classes.least_multiple(blank, rollback))
        return looks + search + exactness_choice.pricing(1)

    @property
    def step(self) -> Step:
        """The forwards made so far, and the expected total."""
        return Step(self._done, self._done + self._ahead)

    @property
    def sentence(self) -> str:
        """The progress, for people; empty when it is over."""
        if self.over:
            return ""
        what = "" if self._verdict else "auto: "
        return f"{what}checking in pauses, {self._done} of {self.step.total}"

    def advance(self, _now: float = 0.0) -> bool:
        """Make one forward; False where it is over."""
        if self.over:
            return False
        if not self._aside.out:
            self._aside.take_out()
        try:
            self.over = next(self._work, self) is self
            self._done += not self.over
            self._ahead = max(0, self._ahead - 1)
        except (NoRoom, ModelError) as error:
            _log.warning("exactness is not decided: %s", error)
            self.over = True
        if self.over and self._aside.out:
            self._aside.put_back()
        return not self.over

    def _vacate(self) -> None:
        """Put the texts back, as a request takes a slot."""
        if self._aside.out:
            if self._search is not None:
                self._search.vacate()
            self._aside.put_back()
            self._vacated += 1

    def _again(self, begun: Callable[[], Pieces[_Found]]) -> Pieces[_Found]:
        """Do `begun`'s work, anew whenever a request has taken a slot. Returns its result."""
        while True:
            known, pieces = self._vacated, begun()
            while known == self._vacated:
                try:
                    next(pieces)
                except StopIteration as done:
                    found: _Found = done.value
                    return found
                yield
            pieces.close()

    def _deciding(self) -> Iterator[None]:
        engine, verdict, switch = self._engine, self._verdict, self._switch
        if self._before is not None:
            yield from self._again(self._before)
        shape: Shape | None = None
        if verdict is None:
            verdict = yield from self._again(lambda: exactness_choice.looked(engine))
        if verdict is None or verdict.strict:
            was = engine.shape if switch.strict else None
            if not switch.strict:
                self._arrange(strict=True)
            shape = found = switch.known(strict=True).shape or (yield from self._searched())
            if verdict is None or not shape.bitwise:
                self._ahead = exactness_choice.pricing(shape.multiple)
                verdict = yield from self._again(
                    lambda: exactness_choice.priced(engine, found, self._prefill_rows)
                )
        if self._kept is not None and verdict != self._kept.verdict:
            self._kept.keep(verdict)
        if verdict.strict and shape is not None:
            self._claim(shape, verdict, was)
            return
        if switch.strict:
            self._arrange(strict=False)
        rollback = engine.shape.rollback
        self._ahead = sum(1 for _ in classes.differing(CountingBackend(engine.backend), rollback))
        any_rows = yield from self._again(lambda: classes.differing(engine.backend, rollback))
        self._take_over(any_rows, verdict)

    def _searching(self, target: Backend) -> Search:
        """A search for the cheapest class, as far into the context as costs are measured later."""
        return Search(
            target,
            rollback=self._engine.shape.rollback,
            cells=min(unasked(self._engine.backend), FAR_TOKENS + REACH),
        )

    def _searched(self) -> Pieces[Shape]:
        """Search for the class; the costs learn the times of its forwards."""
        target, clock = self._engine.backend, self._engine.clock
        search = self._searching(Timed(target, self._profile.costs.measured, clock))
        self._search = search
        pieces = search.pieces()
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                self._search = None
                found: Shape = done.value
                return found
            later = 0 if self._verdict else exactness_choice.pricing(1)
            self._ahead = search.step.total - search.step.done + later + 1  # `advance` takes 1 off
            yield

    def _arrange(self, *, strict: bool) -> None:
        """Rearrange the memory. Slots lose their texts, which are read again later."""
        self.forgotten += self._aside.forget()
        self._switch.arrange(strict=strict)

    def _claim(self, shape: Shape, verdict: StrictCost, was: Shape | None) -> None:
        """Put strict use in force. `was` is the class so far, None where slots shared a stream.

        A slot keeps its text if that was read in forwards of this class and is no longer than what
        was probed.
        """
        alike = was is not None and (was.multiple, was.max_rows, was.border, was.alone) == (
            shape.multiple,
            shape.max_rows,
            shape.border,
            shape.alone,
        )
        engine = self._engine
        if alike:
            self._aside.put_back()
            for slot, tokens in engine.held():
                if len(tokens) > shape.cells:
                    self.forgotten.append(engine.forget(slot))
        else:
            self.forgotten += self._aside.forget()
        self._take_over(shape, verdict)

    def _take_over(self, shape: Shape, verdict: StrictCost) -> None:
        profile = self._profile
        self._engine.arrange(shape)
        profile.path = self._switch.known(strict=self._switch.strict).path
        profile.shape = shape
        profile.save()
        self._switch.decided(shape, verdict)


class Reread:
    """Reads again, while the engine is idle, the texts that it forgot because the class changed.

    It ends when a request takes a slot: the request's prompt is read anyway. The engine's thread.
    """

    def __init__(self, engine: Engine, forgotten: list[Slot]) -> None:
        self._engine, self._texts = engine, forgotten
        self._slots_taken = -1

    def advance(self, _now: float = 0.0) -> bool:
        """Read some tokens; False where no text is left to read."""
        engine, texts = self._engine, self._texts
        if engine.slots_taken != self._slots_taken and self._slots_taken >= 0:
            texts.clear()
        while texts and not self._missing(texts[-1].tokens):
            texts.pop()
        if not texts:
            return False
        text = texts[-1]
        slot, start = engine.take_slot(text.client, text.tokens, text.session)
        try:
            _, count = engine.read(slot, text.tokens, start, len(text.tokens), text.adapters)
        except NoRoom:
            count, start = 0, 0
        held = text.tokens[: start + count]
        engine.release_slot(slot, text.client, held, text.session, adapters=text.adapters)
        if not count:
            texts.pop()
        self._slots_taken = engine.slots_taken
        return True

    def _missing(self, text: Sequence[Token]) -> bool:
        """Whether no slot holds the whole text, and there is a slot to read it in."""
        if sees(text):
            return False  # its images are gone with the request
        held = [tokens for _, tokens in self._engine.held()]
        begun = any(tokens == text[: len(tokens)] for tokens in held)
        there = any(text == tokens[: len(text)] for tokens in held)
        return not there and (begun or len(held) < self._engine.free_slots)
