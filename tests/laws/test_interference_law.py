"""Answers stay exact under interference: cancels, crashes, settings and unloading between steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, PROMPTS, ROWS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS, DEPTHS

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.session import Request, Session
from localspec.engine.step import Engine
from localspec.types import Token

TOKENS = 40
SOURCES = ((), ("lookup",), ("model",), ("lookup", "model"))


@dataclass
class Interference:
    """Requests on a sequence of engines, each of which continues the answers of the one before."""

    harness: Harness
    stack: ExitStack
    names: tuple[str, ...]
    depth: int
    prefill_rows: int = 32
    waiting: dict[int, Request] = field(default_factory=dict)
    running: dict[Session, int] = field(default_factory=dict)
    answers: dict[int, list[Token]] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.engine = self._engine()

    def _engine(self) -> Engine:
        neural = "model" if "model" in self.names else None
        policy = FixedDepth(self.depth, neural)
        drafters = self.harness.drafters(*self.names)
        return self.harness.engine(drafters, policy, prefill_rows=self.prefill_rows)

    def step(self) -> None:
        """Admit waiting requests and run one step of the engine."""
        while self.waiting and self.engine.free_slots:
            number, request = self.waiting.popitem()
            self._admitted(number, self.engine.admit(request))
        for advance in self.engine.step():
            if advance.finish is not None:
                self._end(advance.session)

    def _admitted(self, number: int, session: Session) -> None:
        self.running[session] = number
        if session.finish is not None:  # nothing of it was left to be said
            self._end(session)

    def _end(self, session: Session) -> None:
        self.engine.retire(session)
        self.answers[self.running.pop(session)] = output(session)

    def run(self, requests: list[Request], incidents: list[Incident]) -> None:
        """Answer the requests; each incident comes after some steps."""
        self.waiting = dict(enumerate(requests))
        for steps, event, choice in incidents:
            for _ in range(steps):
                self.step()
            event(self, choice)
        while self.waiting or self.running:
            self.step()

    def assert_answered(self, expected: list[list[Token]]) -> None:
        """A finished answer has all of these tokens, a cancelled one the first of them."""
        assert sorted(self.answers) == list(range(len(expected)))
        for number, answer in self.answers.items():
            whole = len(answer) if number in self.cancelled else TOKENS
            assert answer == expected[number][:whole]

    def no_fault(self, _choice: int) -> None:
        """Do nothing."""

    def cancel(self, choice: int) -> None:
        """One client leaves."""
        for session in list(self.running)[choice % SLOTS :][:1]:
            self.cancelled.add(self.running[session])
            self._end(session)

    def crash(self, _choice: int) -> None:
        """The engine is lost with its memory; another one continues the answers."""
        for session, number in self.running.items():
            self.waiting[number] = replace(session.request, so_far=output(session))
        self.running.clear()
        self.engine = self._engine()

    def reconfigure(self, choice: int) -> None:
        """Change drafters, depth and prefill rows from here on."""
        self.names = SOURCES[choice % len(SOURCES)]
        self.depth = DEPTHS[choice % len(DEPTHS)]
        self.prefill_rows = (16, 32, 64)[choice % 3]
        self.crash(choice)

    def unload(self, choice: int) -> None:
        """Change the contexts of target and draft too."""
        target, draft = (
            Context.open(
                model,
                Placement(threads=1),
                slots=SLOTS,
                context=CONTEXT,
                rows=ROWS,
                streams=self.harness.memory.streams,
            )
            for model in (self.harness.target, self.harness.draft)
        )
        for each in (target, draft):
            self.stack.callback(each.close)
        self.harness = replace(self.harness, memory=target, draft_memory=draft)
        self.crash(choice)


Event: TypeAlias = Callable[[Interference, int], None]
Incident: TypeAlias = tuple[int, Event, int]

EVENTS: tuple[Event, ...] = (
    Interference.no_fault, Interference.cancel, Interference.crash,
    Interference.crash, Interference.reconfigure, Interference.unload,
)  # fmt: skip
CHAIN, NAMES, DEPTH = map(st.sampled_from, (sorted(CHAINS), SOURCES, DEPTHS))
INCIDENT = st.tuples(st.integers(0, 12), st.sampled_from(EVENTS), st.integers(0, 9))


@pytest.fixture(scope="module")
def plain(harness: Harness) -> Callable[[str], list[list[Token]]]:
    """Answers of plain decoding, one at a time without interference."""

    @cache
    def answers(chain: str) -> list[list[Token]]:
        alone = (
            finish(harness.engine({}, FixedDepth(0)), [each]) for each in asked(harness, chain)
        )
        return [output(session) for (session,) in alone]

    return answers


def asked(harness: Harness, chain: str) -> list[Request]:
    """One request for each prompt."""
    return [harness.request(prompt, CHAINS[chain], tokens=TOKENS) for prompt in PROMPTS]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chain=CHAIN, drafts=st.tuples(NAMES, DEPTH), incidents=st.lists(INCIDENT, max_size=6))
def test_no_interference_changes_a_token(
    harness: Harness,
    plain: Callable[[str], list[list[Token]]],
    chain: str,
    drafts: tuple[tuple[str, ...], int],
    incidents: list[Incident],
) -> None:
    """A finished answer has the tokens of plain decoding, a cancelled one the first of them."""
    with ExitStack() as stack:
        interference = Interference(harness, stack, *drafts)
        interference.run(asked(harness, chain), incidents)
        interference.assert_answered(plain(chain))
