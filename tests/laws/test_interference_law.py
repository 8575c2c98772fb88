"""Exactness under weather: cancels, crashes, other settings and unloading between any two steps."""

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
class Weather:
    """Requests on one engine after the other: what is decided goes on, what is held is lost."""

    harness: Harness
    lives: ExitStack
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
        """Admit whoever waits, and one step of the engine."""
        while self.waiting and self.engine.free_slots:
            number, request = self.waiting.popitem()
            self._board(number, self.engine.admit(request))
        for advance in self.engine.step():
            if advance.finish is not None:
                self._over(advance.session)

    def _board(self, number: int, session: Session) -> None:
        self.running[session] = number
        if session.finish is not None:  # nothing of it was left to be said
            self._over(session)

    def _over(self, session: Session) -> None:
        self.engine.retire(session)
        self.answers[self.running.pop(session)] = output(session)

    def live(self, requests: list[Request], days: list[Day]) -> None:
        """Answer them, while on each day there are some steps and something happens."""
        self.waiting = dict(enumerate(requests))
        for steps, event, choice in days:
            for _ in range(steps):
                self.step()
            event(self, choice)
        while self.waiting or self.running:
            self.step()

    def assert_answered(self, expected: list[list[Token]]) -> None:
        """Who came to an end has all of these tokens, who left the first of them."""
        assert sorted(self.answers) == list(range(len(expected)))
        for number, answer in self.answers.items():
            whole = len(answer) if number in self.cancelled else TOKENS
            assert answer == expected[number][:whole]

    def calm(self, _choice: int) -> None:
        """Nothing."""

    def cancel(self, choice: int) -> None:
        """One client leaves."""
        for session in list(self.running)[choice % SLOTS :][:1]:
            self.cancelled.add(self.running[session])
            self._over(session)

    def crash(self, _choice: int) -> None:
        """The engine is gone with all that it held; another one goes on with what was decided."""
        for session, number in self.running.items():
            self.waiting[number] = replace(session.request, so_far=output(session))
        self.running.clear()
        self.engine = self._engine()

    def reconfigure(self, choice: int) -> None:
        """Other sources, depth and chunks from here on."""
        self.names = SOURCES[choice % len(SOURCES)]
        self.depth = DEPTHS[choice % len(DEPTHS)]
        self.prefill_rows = (16, 32, 64)[choice % 3]
        self.crash(choice)

    def unload(self, choice: int) -> None:
        """New memory as well, of the target and of the draft."""
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
            self.lives.callback(each.close)
        self.harness = replace(self.harness, memory=target, draft_memory=draft)
        self.crash(choice)


Event: TypeAlias = Callable[[Weather, int], None]
Day: TypeAlias = tuple[int, Event, int]

EVENTS: tuple[Event, ...] = (
    Weather.calm, Weather.cancel, Weather.crash, Weather.crash, Weather.reconfigure, Weather.unload,
)  # fmt: skip
CHAIN, NAMES, DEPTH = map(st.sampled_from, (sorted(CHAINS), SOURCES, DEPTHS))
DAY = st.tuples(st.integers(0, 12), st.sampled_from(EVENTS), st.integers(0, 9))


@pytest.fixture(scope="module")
def plain(harness: Harness) -> Callable[[str], list[list[Token]]]:
    """The answers of plain decoding, one at a time on a calm day."""

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
@given(chain=CHAIN, drafts=st.tuples(NAMES, DEPTH), days=st.lists(DAY, max_size=6))
def test_no_weather_changes_a_token(
    harness: Harness,
    plain: Callable[[str], list[list[Token]]],
    chain: str,
    drafts: tuple[tuple[str, ...], int],
    days: list[Day],
) -> None:
    """Who comes to an end has the tokens of plain decoding, who left has the first of them."""
    with ExitStack() as lives:
        weather = Weather(harness, lives, *drafts)
        weather.live(asked(harness, chain), days)
        weather.assert_answered(plain(chain))
