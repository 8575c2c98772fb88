"""Measures a round besides its forwards: `python -m localspec.microbench.host`.

The real engine, lookup, draft model's drafter and controller decide over logits that were prepared
in memory, so that no model is needed and nothing but host time passes. Forwards pretend to take
what they do on a machine whose staircase is flat up to `ROWS`, so that the controller fills them.
Standard output carries one JSON object, the `HostPath` of `bench/host.py`.

Measured are the dearest rounds, `ROWS` rows, all of them kept; and those of one row that draft
nothing, of a session that may draft and of a plain one, on a device: what the host does while that
computes is no part of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar, cast

import msgspec
import numpy as np

from localspec import drafters
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, Costs
from localspec.control.round import DraftPlan, Policy, Round, SessionStats, View
from localspec.engine.block_max import BlockMax
from localspec.engine.exactness.classes import Shape
from localspec.engine.routing import SPECULATING, Expectation
from localspec.engine.sampling import Sampler
from localspec.engine.session import Request
from localspec.engine.speculation.verification import StepOutput
from localspec.engine.step import Engine, Limits
from localspec.engine.verify import VERIFIERS, Frontier
from localspec.types import (
    Draft,
    Drafter,
    DraftRequest,
    DraftSession,
    ForwardOutput,
    Proposing,
    Reading,
    Row,
    SamplingParams,
    Signal,
    SpeculationParams,
    Token,
)

ROWS = 8
VOCABULARY = 151_936
"""Rows and width of the logits of one round: eight rows of Qwen2.5's vocabulary."""

WAYS = {
    "greedy": (SamplingParams(temperature=0.0), 0.3),
    "sampled": (SamplingParams(temperature=0.8, top_k=40), 1.0),
}
"""The ways of choosing tokens, each with the milliseconds that a round should stay under."""

_PROMPT_TOKENS = 512
_EDIT_EVERY = 48
"""The answer copies the prompt but for one token in this many, so that drafts are rejected too."""
_PEAK = 30.0
"""Logit of the next token; all others are normally distributed with deviation 3."""
_WARM_ROUNDS = 20
_DIRECT_REPEATS = 200

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class _Stopwatch:
    """Seconds of the current round by part, and a clock to which forwards add pretended time."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._pretended = 0.0

    def time(
        self, part: str, work: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs
    ) -> _Result:
        """The result of `work`; its time is added to `part`."""
        began = time.perf_counter()
        try:
            return work(*args, **named)
        finally:
            self.seconds[part] += time.perf_counter() - began

    def pretend(self, seconds: float) -> None:
        self._pretended += seconds

    def now(self) -> float:
        return time.perf_counter() + self._pretended


class _Prepared:  # and a `Waiting`
    """A `Backend` with prepared logits: after any row of `text` the next token is the likeliest.

    Args:
        text: Prompt and answer.
        vocabulary: Width of a row.
        seconds: The time that a forward pretends to take, by its rows.
        watch: Its clock gets the pretended time.
    """

    n_slots = 1
    max_rows = 512
    waits = False

    def __init__(
        self,
        text: Sequence[Token],
        vocabulary: int,
        seconds: Callable[[int], float],
        watch: _Stopwatch,
    ) -> None:
        self.n_vocab = vocabulary
        self.context = len(text)
        self.text = text
        self._seconds = seconds
        self._watch = watch
        self.meanwhile: Callable[[], None] = lambda: None
        random = np.random.default_rng(0)
        self._logits = random.normal(0, 3, (ROWS, vocabulary)).astype(np.float32)
        self._planted = [(0, float(row[0])) for row in self._logits]

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """The prepared logits of the rows that want them, with their next tokens the likeliest."""
        return self._watch.time("forward", self._decode, rows)

    def _decode(self, rows: Sequence[Row]) -> ForwardOutput:
        wanting = [row.position for row in rows if row.wants_logits]
        for index, position in enumerate(wanting):
            row = self._logits[index]
            token, covered = self._planted[index]
            row[token] = covered
            token = self.text[position + 1]
            self._planted[index] = (token, float(row[token]))
            row[token] = _PEAK
        if self.waits:
            self.meanwhile()
        self._watch.pretend(self._seconds(len(rows)))
        return ForwardOutput(self._logits[: len(wanting)])

    def truncate(self, slot: int, length: int) -> int:
        """Do nothing: this backend remembers no tokens."""
        del slot
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Do nothing: there is no state to restore."""


@dataclass
class _TimedPolicy:
    """A policy, timed."""

    policy: Policy
    watch: _Stopwatch

    def open_session(self) -> SessionStats | None:
        return self.policy.open_session()

    def wants_slow_source(
        self, name: str, stats: SessionStats | None, beside: str | None = None
    ) -> bool:
        return self.policy.wants_slow_source(name, stats, beside)

    def likely(self, stats: SessionStats | None) -> Callable[[Sequence[Signal]], bool]:
        return self.policy.likely(stats)

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        return self.watch.time("controller plan", self.policy.plan, views, other_rows, before)

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        return self.watch.time("controller trees", self.policy.trees, views, drafts)

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        return self.watch.time("controller cut", self.policy.cut, views, drafts, other_rows)

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        return self.policy.paid(views, nodes, other_rows)

    def padded(self, rows: int) -> int:
        return self.policy.padded(rows)

    def asks(self, stats: SessionStats | None) -> bool:
        return self.policy.asks(stats)

    def even(self, rows: Sequence[int]) -> bool:
        return self.policy.even(rows)

    def observe(self, round_: Round) -> None:
        self.watch.time("controller observe", self.policy.observe, round_)


@dataclass
class _TimedDrafter:
    """A drafter, timed. `part` is the name of the time of its proposals."""

    drafter: Drafter
    watch: _Stopwatch
    part: str
    name: str = field(init=False)
    free: bool = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.free = self.drafter.name, self.drafter.free

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> DraftSession:
        return _TimedSession(self.drafter.open(slot, prompt, sampler, prediction), self.watch)

    def read(self, session: DraftSession, most: int) -> int:
        inner = cast("_TimedSession", session).session
        return self.drafter.read(inner, most) if isinstance(self.drafter, Reading) else 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        inner = [
            replace(request, session=cast("_TimedSession", request.session).session)
            for request in requests
        ]
        return self.watch.time(self.part, self.drafter.propose, inner)

    def close(self) -> None:
        self.drafter.close()


@dataclass
class _TimedSession:
    """A drafter's memory of one request; its commits are timed."""

    session: DraftSession
    watch: _Stopwatch

    @property
    def pending(self) -> int:
        return self.session.pending

    def commit(self, tokens: Sequence[Token]) -> None:
        self.watch.time("drafters' commit", self.session.commit, tokens)

    def close(self) -> None:
        self.session.close()


def measure(*, rounds: int, vocabulary: int = VOCABULARY) -> dict[str, Any]:
    """The figures of `HostPath`: `rounds` of the dearest rounds each way, and undrafted ones."""
    ways = {
        name: {"limit_ms": limit_ms, **_way(sampling, rounds, vocabulary)}
        for name, (sampling, limit_ms) in WAYS.items()
    }
    undrafted = {
        name: _undrafted(route, rounds, vocabulary)
        for name, route in (("plain", "off-by-request"), ("speculating", SPECULATING))
    }
    return {"rows": ROWS, "vocabulary": vocabulary, "ways": ways, "undrafted": undrafted}


def _undrafted(route: str, rounds: int, vocabulary: int) -> dict[str, float]:
    """Rounds of one row between a device's forwards, with a text that repeats nothing."""
    watch = _Stopwatch()
    length = _PROMPT_TOKENS + _WARM_ROUNDS + 2 * rounds
    text = np.random.default_rng(2).permutation(vocabulary)[:length].tolist()
    target = _Prepared(text, vocabulary, _target_seconds, watch)
    target.waits = True
    engine = _engine(target, watch)
    _admit(engine, WAYS["greedy"][0], text, route)
    took: list[float] = []
    for _ in range(_WARM_ROUNDS + rounds):
        seconds, advances = _step(engine, watch)
        if engine.steps > _WARM_ROUNDS and len(advances) == 1 and "draft" not in watch.seconds:
            took.append(seconds)
    return _span(took)


def _way(sampling: SamplingParams, rounds: int, vocabulary: int) -> dict[str, Any]:
    watch = _Stopwatch()
    text = _text(_PROMPT_TOKENS + ROWS * (2 * rounds + _WARM_ROUNDS), vocabulary)
    target = _Prepared(text, vocabulary, _target_seconds, watch)
    seen = list(_rounds(_engine(target, watch), sampling, text, rounds, watch))
    parts: dict[str, list[float]] = defaultdict(list)
    for _, seconds in seen:
        for part, spent in seconds.items():
            parts[part].append(spent)
    parts |= _verification(target, sampling, text)
    return {
        "rounds": len(seen),
        "round": _span([whole for whole, _ in seen]),
        "parts": {part: _span(spent) for part, spent in parts.items()},
    }


def _text(length: int, vocabulary: int) -> list[Token]:
    """A prompt, and an answer that continues by copying it with some other tokens."""
    random = np.random.default_rng(1)
    prompt: list[Token] = random.integers(0, vocabulary, _PROMPT_TOKENS).tolist()
    text = (prompt * (length // _PROMPT_TOKENS + 1))[:length]
    edits = range(_PROMPT_TOKENS + _EDIT_EVERY, length, _EDIT_EVERY)
    for place, token in zip(edits, random.integers(0, vocabulary, len(edits)), strict=True):
        text[place] = int(token)
    return text


def _target_seconds(rows: int) -> float:
    """Seconds of a forward: flat up to `ROWS` and dear beyond, so that rounds have `ROWS` rows."""
    return 0.02 if rows <= ROWS else 0.02 * rows / 2


def _draft_seconds(_rows: int) -> float:
    """Seconds of a draft's forward, as dear as the target's: it is considered, but never asked."""
    return 0.02


def _a_word(_token: Token) -> bytes:
    return b" word"


def _engine(target: _Prepared, watch: _Stopwatch) -> Engine:
    """The engine of one session, with lookup and a draft model, on a machine of known costs."""
    costs = Costs()
    for rows in POINTS * 3:
        costs.measured(rows, _target_seconds(rows))
    draft = _Prepared(target.text, target.n_vocab, _draft_seconds, watch)
    sources: list[tuple[str, Drafter]] = [
        ("lookup proposal", drafters.load("lookup", piece=_a_word)),
        ("draft", drafters.load("model", context=draft, n_vocab=target.n_vocab, ends=frozenset())),
    ]
    return Engine(
        target,
        {drafter.name: _TimedDrafter(drafter, watch, part) for part, drafter in sources},
        _TimedPolicy(Controller(costs, Acceptance()), watch),
        ends=frozenset({-1}),
        shape=Shape(),
        limits=Limits(max_draft=ROWS - 1),
        clock=watch.now,
    )


def _rounds(
    engine: Engine, sampling: SamplingParams, text: list[Token], rounds: int, watch: _Stopwatch
) -> Iterator[tuple[float, dict[str, float]]]:
    """Host seconds, in all and by part, of `rounds` rounds in which all `ROWS` rows were kept."""
    _admit(engine, sampling, text, SPECULATING)
    done = 0
    finished = False
    while done < rounds and not finished:
        seconds, advances = _step(engine, watch)
        finished = any(advance.finish for advance in advances)
        kept = sum(len(advance.tokens) for advance in advances)
        if engine.steps > _WARM_ROUNDS and kept == ROWS and "draft" not in watch.seconds:
            done += 1
            yield seconds, dict(watch.seconds)


def _step(engine: Engine, watch: _Stopwatch) -> tuple[float, list[StepOutput]]:
    """Seconds of a step besides its forward, and its outputs; `watch` has the parts' times."""
    watch.seconds.clear()
    began = time.perf_counter()
    advances = engine.step()
    return time.perf_counter() - began - watch.seconds.pop("forward"), advances


def _admit(engine: Engine, sampling: SamplingParams, text: list[Token], route: str) -> None:
    """Admit a session whose answer will be the rest of `text` after the prompt."""
    engine.admit(
        Request(
            id="host",
            client="host",
            prompt=text[:_PROMPT_TOKENS],
            sampling=sampling,
            speculation=SpeculationParams(),
            max_tokens=len(text) - _PROMPT_TOKENS - 1,
            route=route,
            expectation=Expectation(at_least=len(text)),
        )
    )


def _verification(
    target: _Prepared, sampling: SamplingParams, text: list[Token]
) -> dict[str, list[float]]:
    """Times of verification and of certainties, called directly on one draft that is kept."""
    start = _PROMPT_TOKENS
    logits = target.decode([Row(text[start + i], start + i, 0, True) for i in range(ROWS)]).logits
    signals = [Signal("lookup", 0, 0.5)] * (ROWS - 1)
    draft = Draft.chain(text[start + 1 : start + ROWS], signals)
    frontier = Frontier(Sampler(sampling), [], start + 1, frozenset({-1}))
    verify: list[float] = []
    look: list[float] = []
    for _ in range(_DIRECT_REPEATS):
        began = time.perf_counter()
        rows = [BlockMax(row) for row in logits]
        verdict = VERIFIERS["coupled"](draft, rows, frontier)
        judged = time.perf_counter()
        for row in rows:
            row.certainty()
        verify.append(judged - began)
        look.append(time.perf_counter() - judged)
        assert len(verdict.accepted) == len(draft)  # noqa: S101 - otherwise less would be measured
    return {"verification": verify, "certainty": look}


def _span(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "least_ms": round(1000 * min(seconds, default=0.0), 4),
        "median_ms": round(1000 * statistics.median(seconds or [0.0]), 4),
    }


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m localspec.microbench.host", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    asked = parser.parse_args()
    report = measure(rounds=asked.rounds, vocabulary=asked.vocabulary)
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
