"""The cost of strict exactness on a machine, and whether it is chosen. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 0.03
"""`exactness = "auto"` is strict where that costs less than this share of a request's time."""

PROMPT_TOKENS, ANSWER_TOKENS = 256, 256
"""The request that is priced: neither its prompt nor its answer takes all of the time."""

SHORT_TOKENS = 8192
"""Strict use may shorten a context that was not configured, but not below this."""


@dataclass(frozen=True, slots=True)
class RequestForwards:
    """The fastest forwards of strict and standard use, in seconds.

    step, row: A forward that gives a lone answer its next token: `step` has as many rows as the
        class demands, `row` has one.
    read, chunk: A token of a prompt: `read` in the largest forwards of the class, `chunk` in those
        of standard use.
    """

    step: float
    row: float
    read: float
    chunk: float

    @property
    def price(self) -> float:
        """The share by which the request takes longer in strict use; at least 0."""
        strict = PROMPT_TOKENS * self.read + ANSWER_TOKENS * self.step
        standard = PROMPT_TOKENS * self.chunk + ANSWER_TOKENS * self.row
        return max(0.0, strict / standard - 1)


@dataclass(frozen=True, slots=True)
class StrictCost:
    """The outcome of "auto": strict or not, and why, for people.

    It is not `sure` where the machine was busy: then it holds for a day.
    """

    strict: bool
    why: str
    sure: bool = True

    @property
    def exactness(self) -> str:
        """The value of `engine.exactness` that is chosen."""
        return "strict" if self.strict else "standard"

    @property
    def sentence(self) -> str:
        """The verdict and how sure it is, for status."""
        return f"auto: {self.why}" + ("" if self.sure else ", as far as a busy machine tells")


def strict_cost_of(forwards: RequestForwards, *, sure: bool = True) -> StrictCost:
    """Choose strict where it costs little."""
    price = forwards.price
    if price < MOST:
        return StrictCost(True, f"strict costs {price:.1%} of a request's time here", sure)
    return StrictCost(False, f"strict would cost {price:.0%} of a request's time here", sure)


def too_slow_at_once(step: float, row: float, *, sure: bool = True) -> StrictCost | None:
    """Refuse strict by decoding's forwards alone, as if it read prompts as fast as standard use."""
    price = RequestForwards(step, row, read=row, chunk=row).price
    if price < MOST:
        return None
    why = f"strict would cost at least {price:.0%} of a request's time here"
    return StrictCost(False, why, sure)


def too_few_slots(together: int, slots: int) -> StrictCost | None:
    """Refuse strict where a forward or memory would hold fewer requests."""
    if together >= slots:
        return None
    return StrictCost(False, f"strictly, {together} of {slots} requests could go on together here")


def context_too_short(strict_context: int, context: int, *, asked: bool) -> StrictCost | None:
    """Refuse strict where its slots, each with memory of its own, are too short.

    Args:
        strict_context: Tokens of one request in strict use.
        context: Tokens of one request in standard use.
        asked: Whether the configuration names a length; otherwise only a short one matters.
    """
    if strict_context >= (context if asked else min(context, SHORT_TOKENS)):
        return None
    tokens = f"{strict_context} tokens instead of {context}"
    return StrictCost(False, f"strict would leave each request {tokens}")
