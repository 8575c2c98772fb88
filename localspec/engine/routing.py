"""Decides whether a request speculates at all, and names the reason if not.

That is decided once, before anything is drafted or prefilled for drafting. Branches in order:

| # | reason | when | mode "always" |
| --- | --- | --- | --- |
| 1 | off-by-request | the request or the configuration says mode "off" | |
| 2 | no-rollback | the target's memory can neither trim tokens nor restore a copy | the same |
| 3 | pair-mismatch | no drafter is left, as the draft model does not fit the target | the same |
| 4 | no-drafter | no drafter is loaded, or the request allows none of them | the same |
| 5 | short-request | fewer than `SHORT_TOKENS` tokens are expected | speculates |
| 6 | high-temperature | high temperature, where drafts were mostly rejected lately | speculates |
| 7 | speculating | otherwise | |
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

Reason: TypeAlias = Literal[
    "off-by-request",
    "no-rollback",
    "pair-mismatch",
    "no-drafter",
    "short-request",
    "high-temperature",
    "speculating",
]

SPECULATING: Literal["speculating"] = "speculating"

SHORT_TOKENS = 32
"""Below this, reading the prompt into a draft model costs more than it can win."""

HOT_TEMPERATURE = 0.7
POOR_ACCEPTANCE = 0.1
"""At a hot temperature the law is flat; accepted less often, drafts lose on any staircase."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The facts about a request when it is admitted.

    Attributes:
        mode: As the request, or the configuration, asks.
        drafters: Names of the drafters that are loaded, usable and allowed by the request.
        predicted_tokens: Output tokens to expect (`Lengths.predict`).
        pair_fits: False when a draft model was there but does not fit the target.
        can_roll_back: The target's memory can forget rejected tokens.
        temperature: Of the sampler chain.
        acceptance: Share of drafted tokens accepted lately at such a temperature, None if unknown.
    """

    mode: Literal["auto", "off", "always"]
    drafters: tuple[str, ...]
    predicted_tokens: float
    pair_fits: bool = True
    can_roll_back: bool = True
    temperature: float = 0.0
    acceptance: float | None = None


def route(facts: RequestFacts) -> Reason:
    """The first branch of the table above that applies; only SPECULATING opens drafters."""
    return _impossible(facts) or _unwise(facts) or SPECULATING


def _impossible(facts: RequestFacts) -> Reason | None:
    """Branches 1 to 4."""
    if facts.mode == "off":
        return "off-by-request"
    if not facts.can_roll_back:
        return "no-rollback"
    if not facts.drafters:
        return "no-drafter" if facts.pair_fits else "pair-mismatch"
    return None


def _unwise(facts: RequestFacts) -> Reason | None:
    """Branches 5 and 6."""
    if facts.mode == "always":
        return None
    if facts.predicted_tokens < SHORT_TOKENS:
        return "short-request"
    hot = facts.temperature >= HOT_TEMPERATURE
    if hot and facts.acceptance is not None and facts.acceptance < POOR_ACCEPTANCE:
        return "high-temperature"
    return None


_UNKNOWN_TOKENS = 256.0
"""The expected length without history: that of a medium chat answer."""
_USUAL_TOKENS = {"infill": 24.0}
"""Endpoints with a usual length of their own: an editor's completions are about a line."""


_UNSEEN_TOKENS = 32.0
"""The least number of tokens still assumed of an unknown answer. A long one is assumed to have as
many left as it already has beyond these."""
_UNSEEN_ANSWERS = 6.0
"""The weight of that assumption, in answers, beside those that were seen."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """How long an answer may become: the lengths of earlier `answers`, and a least length."""

    answers: tuple[int, ...] = ()
    at_least: int = 0

    def remaining(self, n_output: int) -> float:
        """Tokens still to expect after `n_output`: the mean over answers that were longer."""
        rests = [tokens - n_output for tokens in self.answers if tokens > n_output]
        unseen = max(n_output - _UNSEEN_TOKENS, _UNSEEN_TOKENS)
        mean = (sum(rests) + _UNSEEN_ANSWERS * unseen) / (len(rests) + _UNSEEN_ANSWERS)
        return max(mean, float(self.at_least - n_output))


class Lengths:
    """The lengths of the latest answers to each (client, endpoint), in tokens. Model lifetime.

    The prediction is the upper quartile of the last 16: taking a long answer for a short one loses
    all of its speed-up, the reverse costs only what the draft model read. Bounded: the clients seen
    longest ago are forgotten.
    """

    _KEPT_ANSWERS = 16
    _KEPT_KEYS = 1024
    _ENOUGH_ANSWERS = 3

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], deque[int]] = OrderedDict()

    def observe(self, client: str, endpoint: str, tokens: int) -> None:
        """Note an answer that came to its end, or to its limit, after `tokens` tokens."""
        key = client, endpoint
        self._seen.setdefault(key, deque(maxlen=self._KEPT_ANSWERS)).append(tokens)
        self._seen.move_to_end(key)
        if len(self._seen) > self._KEPT_KEYS:
            self._seen.popitem(last=False)

    def expect(self, client: str, endpoint: str, at_least: int = 0) -> Expectation:
        """The expected length of an answer to this client and endpoint."""
        return Expectation(tuple(self._seen.get((client, endpoint), ())), at_least)

    def predict(self, client: str, endpoint: str, max_tokens: int | None) -> float:
        """Output tokens to expect of the next answer, never more than `max_tokens`."""
        answers = self._seen.get((client, endpoint), ())
        expected = _USUAL_TOKENS.get(endpoint, _UNKNOWN_TOKENS)
        if len(answers) >= self._ENOUGH_ANSWERS:
            expected = float(sorted(answers)[len(answers) * 3 // 4])
        return expected if max_tokens is None else min(expected, float(max_tokens))


class HotAcceptance:
    """Share of drafted tokens accepted at hot temperatures. Model lifetime.

    What was learned fades with every hot request, also with those that did not speculate because of
    it. So after some of them the share is unknown again, and a request may speculate to measure it.
    """

    _MEMORY = 0.95
    _ENOUGH_DRAFTED = 48.0

    def __init__(self) -> None:
        self._drafted = 0.0
        self._accepted = 0.0

    def observe(self, temperature: float, drafted: int, accepted: int) -> None:
        """Note a finished request; one that did not speculate has zero drafted tokens."""
        if temperature >= HOT_TEMPERATURE:
            self._drafted = self._MEMORY * self._drafted + drafted
            self._accepted = self._MEMORY * self._accepted + accepted

    def acceptance(self, temperature: float) -> float | None:
        """The share at a hot temperature; None at any other, and while too little is known."""
        if temperature < HOT_TEMPERATURE or self._drafted < self._ENOUGH_DRAFTED:
            return None
        return self._accepted / self._drafted
