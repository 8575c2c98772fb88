"""Attribution of crashes to requests, and resumed streams: driven by lists of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import Poisonous
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import (
    Delta,
    Detokenize,
    Generate,
    Render,
    Replay,
    SoFar,
    Spent,
    Started,
)
from localspec_daemon.supervisor.resumption import MAX_RESUMES, Files, Stream, digest
from localspec_daemon.supervisor.suspects import (
    MAX_FAULTS,
    REFUSAL_SECONDS,
    TRIAL_TOKENS,
    RefusedRequests,
    Trials,
)

FILES: Files = ((1, 2, 3, 4),)


def request(id_: str = "r", prompt: str = "hello", seed: int = 1) -> Generate:
    """Returns a completion."""
    sampling = SamplingParams(seed=seed)
    return Generate(id_, "completion", "someone", sampling, SpeculationParams(), prompt=prompt)


def delta(text: str, decided: list[int], decided_by: list[str], rounds: int) -> Delta:
    """Returns a worker's event of a round."""
    spent = Spent(rounds=rounds)
    return Delta("r", text, [], decided=decided, decided_by=decided_by, spent=spent)


# --- the state of a stream ------------------------------------------------------------------------


def test_before_a_word_has_come_the_request_is_sent_again() -> None:
    """Also when it had its slot; the client gets a single start event."""
    stream = Stream(request())
    assert stream.command() is stream.request
    assert stream.take(Started("r", 2, 0, prompt=[1, 2])) is not None
    assert stream.command() is stream.request
    assert stream.take(Started("r", 2, 0, prompt=[1, 2])) is None


def test_what_was_decided_on_all_workers_goes_to_the_next() -> None:
    """Tokens in order with their sources, the latest figures, the first prompt."""
    stream = Stream(request())
    for event in (
        Started("r", 2, 1, prompt=[1, 2]),
        delta("a", [5, 6], ["target", "lookup"], rounds=1),
        Started("r", 2, 0, prompt=[1, 2]),
        delta("", [7], ["model"], rounds=2),
    ):
        stream.take(event)
    command = stream.command()
    assert isinstance(command, Generate)
    assert command.so_far == SoFar(
        [1, 2], 1, [5, 6, 7], ["target", "lookup", "model"], [], Spent(rounds=2)
    )
    assert msgspec.structs.replace(command, so_far=None) == stream.request


def test_an_echo_alone_is_not_said_twice() -> None:
    """The next worker knows that the prompt was sent, though no token was decided."""
    stream = Stream(request())
    stream.take(Started("r", 2, 0, prompt=[1, 2]))
    stream.take(Delta("r", "hello", []))
    command = stream.command()
    assert isinstance(command, Generate)
    assert command.so_far == SoFar([1, 2], 0, [], [], [], Spent())


def test_a_digest_is_of_what_is_asked() -> None:
    """It excludes the client, the id, the seed and the number of resumes."""
    same = msgspec.structs.replace(request("other", seed=9), client="else")
    assert digest(same) == digest(request())
    assert digest(request(prompt="other")) != digest(request())
    assert digest(Replay(request(), "a")) != digest(Replay(request(), "b")) != digest(request())
    assert digest(Render("1", request())) == digest(Render("2", same)) != digest(request())
    assert digest(Detokenize("1", [1])) == digest(Detokenize("2", [1]))


# --- trials ---------------------------------------------------------------------------------------


@dataclass
class CrashScenario:
    """A worker and its requests, some of which always kill it."""

    killing: frozenset[int]
    trials: Trials = field(default_factory=Trials)
    deaths: int = 0

    def run(self, streams: Sequence[Stream]) -> list[Stream]:
        """Runs all requests until each is finished or blamed; returns the blamed."""
        waiting = list(streams)
        while waiting:
            running = [each for each in waiting if self.trials.admits(each)]
            killers = [each for each in running if int(each.request.id) in self.killing]
            if killers:
                self.deaths += 1
                self.trials.crashed(running, faulty=True)
                waiting = [each for each in waiting if not each.blamed]
                continue
            for each in running:
                self.trials.progressed(each, TRIAL_TOKENS)
                self.trials.over(each)
            waiting = [each for each in waiting if each not in running]
        return [each for each in streams if each.blamed]


@given(st.integers(1, 8), st.sets(st.integers(0, 7), max_size=4))
def test_exactly_the_killers_are_convicted_and_cost_two_workers_each(
    count: int, killing: set[int]
) -> None:
    """For any number and order; no other request comes near the limit of resumes."""
    streams = [Stream(request(str(number))) for number in range(count)]
    court = CrashScenario(frozenset(killing))
    blamed = court.run(streams)
    killers = [each for each in streams if int(each.request.id) in killing]
    assert blamed == killers
    assert court.deaths <= MAX_FAULTS * len(killers)
    assert all(each.crashes <= 1 <= MAX_RESUMES for each in streams if each not in killers)


def test_nobody_boards_during_a_trial_and_sixteen_tokens_end_it() -> None:
    """Other suspects and new requests wait for that."""
    one, other, new = (Stream(request(id_)) for id_ in ("one", "other", "new"))
    trials = Trials()
    assert trials.crashed([one, other], faulty=True) is None
    assert trials.admits(one)
    assert not trials.admits(other)
    assert not trials.admits(new)
    assert not trials.progressed(one, TRIAL_TOKENS - 1)
    assert not trials.progressed(other, TRIAL_TOKENS)
    assert trials.progressed(one, 1)
    assert trials.admits(new)
    assert trials.admits(other)
    assert not trials.admits(Stream(request("newer")))
    trials.over(other)
    assert trials.admits(Stream(request("newest")))


def test_nobody_is_tried_for_what_came_from_outside() -> None:
    """All run at once and none is blamed; but each death counts as a resume."""
    streams = [Stream(request(str(number))) for number in range(3)]
    trials = Trials()
    for _ in range(MAX_RESUMES + 1):
        assert trials.crashed(streams, faulty=False) is None
        assert all(trials.admits(each) for each in streams)
    assert [(each.crashes, each.faults) for each in streams] == [(MAX_RESUMES + 1, 0)] * 3


def test_who_was_accused_with_a_killer_is_cleared() -> None:
    """A long stream outlives any number of crashing neighbours."""
    good, trials = Stream(request("good")), Trials()
    for number in range(9):
        bad = Stream(request(str(number)))
        assert trials.crashed([good, bad], faulty=True) is None
        assert trials.admits(bad)
        assert trials.crashed([bad], faulty=True) is bad
        assert trials.admits(good)
    assert (good.crashes, good.faults, good.suspected) == (0, 0, False)


def test_who_shares_the_worker_with_a_suspect_is_not_blamed() -> None:
    """An acquitted stream runs beside the next trial at no cost to its resumes."""
    one, other = Stream(request("one")), Stream(request("other"))
    trials = Trials()
    trials.crashed([one, other], faulty=True)
    assert trials.admits(one)
    trials.progressed(one, TRIAL_TOKENS)
    assert trials.admits(other)
    assert trials.crashed([one, other], faulty=True) is other
    assert (one.crashes, other.crashes) == (0, 2)


# --- refused requests -----------------------------------------------------------------------------


def test_a_blamed_request_is_refused_for_a_while_and_nothing_else() -> None:
    """For every client; the sentence has the reason and the time."""
    table = RefusedRequests()
    table.check(FILES, request(), 0.0)
    assert "SIGSEGV" in str(table.add(FILES, request(), "SIGSEGV", 0.0))
    table.check(FILES, request(prompt="other"), 1.0)
    with pytest.raises(Poisonous, match="9 minutes"):
        table.check(FILES, request(seed=3), 60.0)
    table.check(FILES, request(), REFUSAL_SECONDS)


IDENTITIES = st.tuples(*[st.integers(0, 3)] * 4)


@given(
    st.sets(st.tuples(st.tuples(IDENTITIES), st.text(max_size=2)), min_size=1, max_size=5),
    st.tuples(st.tuples(IDENTITIES), st.text(max_size=2)),
)
def test_a_verdict_is_of_one_request_on_the_files_of_one_model(
    blamed: set[tuple[Files, str]], asked: tuple[Files, str]
) -> None:
    """The same request is served by another model, and by a replaced file."""
    table = RefusedRequests()
    for files, prompt in blamed:
        table.add(files, request(prompt=prompt), "SIGABRT", 0.0)
    files, prompt = asked
    refused = False
    try:
        table.check(files, request(prompt=prompt), 1.0)
    except Poisonous:
        refused = True
    assert refused == (asked in blamed)


def test_the_table_of_refused_requests_has_an_end() -> None:
    """Expired entries are dropped first, then the oldest."""
    table = RefusedRequests()
    for number in range(300):
        table.add(FILES, request(prompt=str(number)), "SIGSEGV", float(number))
    table.check(FILES, request(prompt="0"), 300.0)
    with pytest.raises(Poisonous):
        table.check(FILES, request(prompt="299"), 300.0)
    assert len(table) == 256
    table.add(FILES, request(), "SIGSEGV", 10_000.0)
    assert len(table) == 1
