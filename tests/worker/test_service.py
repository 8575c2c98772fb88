"""When the worker does what: order, cancelling, heartbeats, failure. The engine is real."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from worker_peer import GREEDY, Files, Script, load

from localspec.control.controller import Controller
from localspec.engine import calibrate
from localspec.engine.llama.context import Context
from localspec.engine.step import Engine, Limits
from localspec.errors import EngineError
from localspec.types import Backend, ForwardOutput, Row, SpeculationParams
from localspec.wire.messages import (
    Cancel,
    Command,
    Delta,
    Event,
    Failed,
    Finished,
    Generate,
    Goodbye,
    Heartbeat,
    Quit,
    Started,
)
from localspec.worker import assemble
from localspec.worker.assemble import Loaded
from localspec.worker.preparation import PreparedRequest, RequestPreparer
from localspec.worker.service import HEARTBEAT_SECONDS, Service


def generate(id_: str, prompt: str = "hello", **fields: Any) -> Generate:
    """A greedy completion of 6 tokens."""
    defaults = {
        "max_tokens": 6,
        "prompt": prompt,
        "ignore_eos": True,
        "speculation": SpeculationParams(mode="off"),
    }
    return Generate(
        id=id_, endpoint="completion", client="c", sampling=GREEDY, **{**defaults, **fields}
    )


@pytest.fixture(params=[False, True], ids=["CPU", "device"])
def loaded(pair: Loaded, request: pytest.FixtureRequest) -> Loaded:
    """The pair; results of a step are sent at once, or while a device computes the next one."""
    target = pair.engine.target
    assert isinstance(target, Context)
    target.waits = request.param
    return pair


@pytest.fixture(scope="module")
def pair(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """The pair in this process, strictly, 2 slots, 32 rows of prefill."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with assemble.load(load(files), lambda *_: None) as loaded:
            while loaded.idle.advance(time.monotonic()):
                pass
            yield loaded


def test_costs_are_measured_in_idle_time(loaded: Loaded) -> None:
    """Of target and draft model; measurements in the last slot do not disturb it."""
    costs = loaded.profile.costs
    assert costs.measured_drafters == {"model"}
    assert set(costs.measured_rows()) >= {1, 2, 4, 8, 16, 32}
    assert costs.furthest >= calibrate.far_tokens(loaded.engine.target)
    assert not loaded.idle.measuring
    texts = []
    for mode in ("off", "always"):
        how = SpeculationParams(mode=mode)
        both = [generate(name, max_tokens=12, speculation=how) for name in ("a", "b")]
        script = Script(both).run(loaded)
        texts.append(
            [
                [token for delta in script.all(Delta) if delta.id == id_ for token in delta.tokens]
                for id_ in "ab"
            ]
        )
    assert texts[0] == texts[1]


def test_a_step_gives_each_session_at_most_one_delta(loaded: Loaded) -> None:
    """Between two deltas of one request every other active request has had its turn."""
    script = Script([generate("a", max_tokens=20), generate("b", max_tokens=20)]).run(loaded)
    order = [event.id for event in script.all(Delta)]
    assert order == ["a", "b"] * 20


def test_an_answer_ends_at_its_stop_string_beside_one_that_goes_on(loaded: Loaded) -> None:
    """Also where it is seen when the next forward is on its way: that gives it nothing."""
    undisturbed = Script([generate("b", "other", max_tokens=20)]).run(loaded)
    whole = Script([generate("a", max_tokens=20)]).run(loaded)
    text = "".join(event.text for event in whole.all(Delta))
    stop = text[8:11]
    asked = [generate("a", max_tokens=20, stop=[stop]), generate("b", "other", max_tokens=20)]
    script = Script(asked).run(loaded)
    assert "".join(event.text for event in script.all(Delta, "a")) == text[: text.index(stop)]
    (ended,) = script.all(Finished, "a")
    decided = [token for event in script.all(Delta, "a") for token in event.decided]
    assert (ended.reason, ended.usage.completion_tokens) == ("stop", len(decided))
    said = [token for event in whole.all(Delta) for token in event.decided]
    assert decided == said[: len(decided)]
    assert [e.text for e in script.all(Delta, "b")] == [e.text for e in undisturbed.all(Delta)]
    assert loaded.engine.free_slots == 2


def test_requests_are_served_in_the_order_in_which_they_came(loaded: Loaded) -> None:
    """With two slots, five requests start in order, each as soon as a slot is free."""
    script = Script([generate(str(index)) for index in range(5)]).run(loaded)
    assert [event.id for event in script.all(Started)] == list("01234")
    assert [event.id for event in script.all(Finished)] == list("01234")
    busy = 0
    for event in script.events:
        busy += isinstance(event, Started) - isinstance(event, Finished)
        assert busy <= 2


def test_cancelling_in_prefill_frees_the_slot_within_two_steps(loaded: Loaded) -> None:
    """A long prompt is left behind at once, and what was waiting takes its place."""
    before = loaded.engine.steps
    script = Script(
        [generate("long", "x" * 480)],
        lambda event: [Cancel("long")] if isinstance(event, Started) else [],
    ).run(loaded)
    last = script.all(Finished, "long")[0]
    assert last.reason == "cancelled"
    assert last.usage.completion_tokens == 0
    assert script.all(Delta) == []
    assert loaded.engine.steps - before <= 2
    assert loaded.engine.free_slots == 2


def test_cancelling_in_the_middle_leaves_a_bystander_alone(loaded: Loaded) -> None:
    """The cancelled stream ends within two more deltas; the other's text is what it always was."""
    alone = Script([generate("b", max_tokens=20)]).run(loaded)
    script = Script(
        [generate("a", "other", max_tokens=20), generate("b", max_tokens=20)],
        lambda event: [Cancel("a")] if isinstance(event, Delta) and event.id == "a" else [],
    ).run(loaded)
    assert [e.reason for e in script.all(Finished)] == ["cancelled", "length"]
    assert 1 <= len(script.all(Delta, "a")) <= 2
    assert [e.text for e in script.all(Delta, "b")] == [e.text for e in alone.all(Delta)]


def test_a_request_cancelled_in_the_queue_never_starts(loaded: Loaded) -> None:
    """A waiting request ends as cancelled; those around it are served."""
    script = Script([*(generate(id_) for id_ in "abcd"), Cancel("c"), Cancel("nobody")]).run(loaded)
    assert [event.id for event in script.all(Started)] == list("abd")
    cancelled = script.all(Finished, "c")
    assert [event.reason for event in cancelled] == ["cancelled"]
    assert cancelled[0].usage.prompt_tokens == 0


def once_started(others: Sequence[Command]) -> Callable[[Event], Sequence[Command]]:
    """A script's answers: others come when the first request has its slot."""
    coming = iter([others])
    return lambda event: next(coming, ()) if isinstance(event, Started) else ()


def test_a_warm_up_makes_way_and_is_read_on_later(loaded: Loaded) -> None:
    """A request has its slot at once; text that was read is not read again."""
    warm_up = generate("warm", "wW"[loaded.engine.waits] * 480, max_tokens=0)
    script = Script([warm_up], once_started([generate("a", max_tokens=20)])).run(loaded)
    assert [event.id for event in script.all(Started)] == ["warm", "a", "warm"]
    assert [(event.id, event.reason) for event in script.all(Finished)] == [
        ("a", "length"), ("warm", "length"),
    ]  # fmt: skip
    first, *_, again = script.all(Started)
    assert first.cached_tokens < again.cached_tokens < 480
    warm = script.all(Finished, "warm")[0]
    assert (warm.usage.prompt_tokens, warm.usage.completion_tokens) == (480, 0)


def test_warm_ups_in_every_slot_delay_no_request(
    loaded: Loaded,
) -> None:
    """Two conversations fill both slots.

    While two answers run, only the latest of three is read.
    """
    new = "nN"[loaded.engine.waits]
    others = [generate("a", max_tokens=20), generate("b", "other", max_tokens=20)]
    for at in range(3):
        others += [generate(str(at), f"{new}v" * (50 + at), max_tokens=0, session="v")]
    warm = [generate(name, f"{new}{name}" * 150, max_tokens=0, session=name) for name in "vw"]
    script = Script(warm, once_started(others)).run(loaded)
    ended = [event.id for event in script.all(Finished)]
    assert set(ended[:3]) == {"v", "0", "1"}
    assert [event.usage.prompt_tokens for event in script.all(Finished)[:3]] == [0, 0, 0]
    assert ended[3:5] == ["a", "b"]
    assert set(ended[5:]) == {"w", "2"}


@pytest.mark.parametrize("echo", [False, True], ids=["plain", "echo"])
def test_a_prompt_that_takes_too_long_is_answered_and_read_on(loaded: Loaded, echo: bool) -> None:
    """With nothing but its echo, after so long; the next request finds all of it read."""
    prompt = "qukw"[2 * echo + loaded.engine.waits] * 400
    asked = [generate("late", prompt, prompt_seconds=0.0, session="editor", echo=echo)]
    script = Script(asked).run(loaded)
    late, read_on = script.all(Finished)
    assert (late.id, late.reason, late.usage.completion_tokens) == ("late", "length", 0)
    assert [delta.text for delta in script.all(Delta)] == [prompt] * echo
    assert (read_on.id, read_on.usage.prompt_tokens) == ("late+", 400)
    (again,) = Script(asked).run(loaded).all(Finished)
    assert (again.usage.cached_tokens, again.usage.completion_tokens) == (399, 6)


def test_quit_ends_open_requests_with_an_error(loaded: Loaded) -> None:
    """Active and waiting requests get a last event; then the worker's own last message."""
    script = Script(
        [generate(id_, max_tokens=300) for id_ in "abc"],
        lambda event: [Quit()] if isinstance(event, Delta) else [],
    ).run(loaded)
    assert [(event.id, event.code) for event in script.all(Failed)] == [
        (id_, "server_shutdown") for id_ in "cab"
    ]
    assert isinstance(script.events[-1], Goodbye)


def test_heartbeats_come_between_prefill_chunks_and_count(loaded: Loaded) -> None:
    """A beat about each second of the clock, in prefill too, with steps that move and totals."""
    ticks = itertools.count()
    prompt = "yz"[loaded.engine.waits] * 400  # which no slot remembers
    script = Script([generate("a", prompt, speculation=SpeculationParams(mode="always"))])
    Service(loaded, script, lambda: next(ticks) * HEARTBEAT_SECONDS / 2).run()
    beats = script.all(Heartbeat)
    first_delta = script.events.index(script.all(Delta)[0])
    in_prefill = [e for e in script.events[:first_delta] if isinstance(e, Heartbeat) and e.active]
    assert len(in_prefill) >= 2
    assert in_prefill[0].steps < in_prefill[-1].steps
    last = beats[-1]
    assert (last.prompt_tokens_total, last.completion_tokens_total) == (400, 6)
    assert last.cost_ms_by_rows.keys() >= {1, 2, 4, 8}
    assert any(beat.decode_tokens_per_second > 0 for beat in beats)


class Failing:
    """The real context until its n-th decode, which llama.cpp is made out to have refused."""

    def __init__(self, context: Backend, decodes: int) -> None:
        self.n_vocab, self.n_slots = context.n_vocab, context.n_slots
        self.context, self.max_rows = context.context, context.max_rows
        self._real = context
        self._left = decodes

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """The real thing, or the failure."""
        self._left -= 1
        if self._left < 0:
            raise EngineError("llama_decode gave -3 for 1 rows: out of memory.")
        return self._real.decode(rows)

    def truncate(self, slot: int, length: int) -> int:
        """The real thing."""
        return self._real.truncate(slot, length)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """The real thing."""
        self._real.checkpoint(slot, lasting=lasting)


def test_an_engine_that_fails_is_not_used_again_and_ends_no_request(loaded: Loaded) -> None:
    """Run raises; no goodbye, no further step. Requests hear nothing, for they go on elsewhere."""
    context, shape = loaded.engine.target, loaded.profile.shape
    assert shape is not None
    engine = Engine(
        Failing(context, 3),
        {},
        Controller(loaded.profile.costs, loaded.profile.acceptance),
        ends=loaded.model.eog,
        shape=shape,
        limits=Limits(),
        clock=lambda: 0.0,
    )
    script = Script([generate(id_) for id_ in "abc"])
    with pytest.raises(EngineError, match="out of memory"):
        script.run(replace(loaded, engine=engine))
    assert not script.all(Failed)
    assert not script.all(Finished)
    assert not script.all(Goodbye)


class Torn:
    """A preparer one of whose requests has a grammar that raises."""

    def __init__(self, preparer: RequestPreparer, id_: str) -> None:
        self._preparer, self._id = preparer, id_

    def prepare(self, request: Generate) -> PreparedRequest:
        """The prepared request; that one with the grammar."""
        prepared = self._preparer.prepare(request)
        mine: Any = self
        return replace(prepared, constraint=mine) if request.id == self._id else prepared

    def mask(self, path: Sequence[int]) -> NDArray[np.bool_]:
        """It is no grammar at all."""
        raise ArithmeticError(f"torn after {len(path)} tokens")


def test_a_request_that_fails_in_a_step_ends_alone(loaded: Loaded) -> None:
    """It gets an error with the fix; other requests their answers, and the worker lives."""
    alone = Script([generate("a")]).run(loaded)
    torn: Any = Torn(loaded.preparer, "b")
    script = Script([generate(id_) for id_ in "abcd"]).run(replace(loaded, preparer=torn))
    (failed,) = script.all(Failed)
    assert (failed.id, failed.code) == ("b", "internal_error")
    assert "torn" in failed.message
    assert "localspec logs" in failed.fix
    assert sorted(event.id for event in script.all(Finished)) == ["a", "c", "d"]
    assert [e.text for e in script.all(Delta, "a")] == [e.text for e in alone.all(Delta)]
    assert loaded.engine.free_slots == 2
    assert isinstance(script.events[-1], Goodbye)


def test_a_second_load_is_an_error_of_the_protocol(loaded: Loaded, files: Files) -> None:
    """A worker hosts one model for its whole life."""
    with pytest.raises(EngineError, match="one model"):
        Script([load(files)]).run(loaded)


def test_loading_reports_progress_and_keeps_measurements(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages come in order and end at 1; a second load neither probes nor measures again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, rested = stages_of(files)
    assert first == ["target", "warmup", "probe", "draft"]
    assert rested > 0
    again, rested = stages_of(files)
    assert again == ["target", "warmup", "draft"]
    assert rested == 0


def stages_of(files: Files) -> tuple[list[str], int]:
    """The stages of one load, and how much was measured after it."""
    said: dict[str, list[float]] = {}
    forwards: list[int] = []

    def on_stage(stage: str, done: float, why: str = "") -> None:
        said.setdefault(stage, []).append(done)
        if why:  # how many forwards, and of how many
            assert stage == "probe"
            count, total = map(int, why.rpartition(", ")[2].split(" of "))
            assert done == count / total <= 1
            forwards.append(count)

    with assemble.load(load(files), on_stage) as loaded:
        rested = 0
        while loaded.idle.advance(time.monotonic()):
            rested += 1
        assert loaded.cost_ms_by_rows().keys() >= {1, 2, 4, 8}
    for fractions in said.values():
        assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert bool(forwards) == ("probe" in said)
    assert forwards == sorted(set(forwards))
    return list(said), rested


def test_a_damaged_profile_is_measured_anew(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be lost or damaged; loading goes on without it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stages_of(files)
    profile = next((tmp_path / "localspec" / "profiles").iterdir())
    whole = json.loads(profile.read_text())
    parts = [json.dumps({**whole, part: {"nonsense": [1]}}) for part in ("costs", "shape")]
    for damage in ("", "{", json.dumps({**whole, "version": 0}), *parts):
        profile.write_text(damage)
        assert "probe" in stages_of(files)[0]
