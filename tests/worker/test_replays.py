"""Replays beside requests in one worker: order, refusals, cancelling, the end. The engine is real.

The line is scripted: it answers events with commands, and says Quit when nothing is left to do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from worker_peer import CONTEXT, GREEDY, Files, Script, load

from localspec.types import SpeculationParams
from localspec.wire.messages import (
    Cancel,
    Command,
    Delta,
    Failed,
    Finished,
    Generate,
    Goodbye,
    Heartbeat,
    Message,
    Quit,
    Replay,
    Replayed,
    Started,
)
from localspec.worker import assemble
from localspec.worker.assemble import Loaded
from localspec.worker.service import HEARTBEAT_SECONDS

PROMPT = "one two three one two three one"
EAGLE = SpeculationParams(drafters=["eagle"])


@pytest.fixture(scope="module")
def loaded(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """The pair in this process, strictly, 2 slots, costs measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with assemble.load(load(files), lambda *_: None) as loaded:
            while loaded.idle.advance(time.monotonic()):
                pass
            yield loaded


def generate(id_: str, prompt: str | None = PROMPT, **fields: Any) -> Generate:
    """A greedy completion of 24 tokens."""
    defaults: dict[str, Any] = {
        "max_tokens": 24,
        "prompt": prompt,
        "ignore_eos": True,
        "speculation": SpeculationParams(),
    }
    return Generate(
        id=id_, endpoint="completion", client="c", sampling=GREEDY, **{**defaults, **fields}
    )


def replay(id_: str, text: str = "one two three four", **fields: Any) -> Replay:
    """A replay of a text that followed the prompt."""
    return Replay(generate(id_, **fields), text)


def test_a_replay_reports_every_token_and_drafter(loaded: Loaded) -> None:
    """Gaps and margins for each token, a trace for each drafter, what is likeliest after it."""
    script = Script([replay("r"), replay("c", prompt=None, messages=[Message("user", PROMPT)])])
    plain, chat = script.run(loaded).all(Replayed)
    assert (plain.id, chat.id) == ("r", "c")
    assert chat.prompt_tokens > plain.prompt_tokens > 0
    for result in (plain, chat):
        assert result.tokens == len(result.gaps) == len(result.margins) > 0
        assert all(gap >= 0 for gap in result.gaps)
        assert set(result.drafters) == {"lookup", "grammar", "model"}
        for trace in result.drafters.values():
            assert len(trace.survives) == len(trace.predicted) == result.tokens
        assert result.after.gap >= 0
        assert all(result.after.pieces)
    assert plain.drafters["lookup"].free
    assert not plain.drafters["model"].free
    assert not script.all(Failed)


def test_a_request_may_leave_drafters_out_and_bound_the_drafts(loaded: Loaded) -> None:
    """As it may when it is answered."""
    text = "one two three one two three"
    nobody = SpeculationParams(drafters=[])
    short = SpeculationParams(drafters=["lookup"], max_draft=2)
    script = Script([replay("a", text, speculation=nobody), replay("b", text, speculation=short)])
    first, second = script.run(loaded).all(Replayed)
    assert first.drafters == {}
    assert second.max_draft == max(second.drafters["lookup"].survives) == 2
    assert first.gaps == second.gaps


def test_an_empty_text_gives_the_first_token(loaded: Loaded) -> None:
    """The position after the prompt, where a first difference may lie."""
    (result,) = Script([replay("r", "")]).run(loaded).all(Replayed)
    assert (result.tokens, result.gaps, result.margins) == (0, [], [])
    assert result.after.gap > 0


@pytest.mark.parametrize(
    ("asked", "code", "word"),
    [
        (replay("bad", "x" * CONTEXT), "context_length_exceeded", "Prompt and text"),
        (replay("bad", prompt="x" * CONTEXT), "context_length_exceeded", "prompt"),
        (replay("bad", "x" * 300_000), "too_large", "characters"),
        (replay("bad", prompt=None), "invalid_request", "exactly one"),
        (replay("bad", prompt=None, prompt_tokens=[1 << 20]), "invalid_request", "1048576"),
        (replay("bad", speculation=EAGLE), "invalid_request", "eagle"),
    ],
)  # fmt: skip
def test_a_wrong_replay_fails_alone_before_anything_is_decoded(
    loaded: Loaded, asked: Replay, code: str, word: str
) -> None:
    """Its error names the reason; a valid one and a request beside it are served."""
    script = Script([replay("good"), asked, generate("g")]).run(loaded)
    (result,) = script.all(Failed)
    assert (result.id, result.code) == ("bad", code)
    assert word in result.message
    assert [event.id for event in script.all(Replayed)] == ["good"]
    assert [event.id for event in script.all(Finished)] == ["g"]
    alone = loaded.engine.steps
    Script([asked]).run(loaded)
    assert loaded.engine.steps == alone


def test_requests_stream_on_beside_replays(loaded: Loaded) -> None:
    """The text is what it is alone, requests that wait come before replays, and all are served."""
    alone = Script([generate("a")]).run(loaded)
    commands: list[Command] = [
        replay("r1"),
        generate("a"),
        generate("b"),
        replay("r2"),
        generate("c"),
    ]
    script = Script(commands).run(loaded)
    text = [event.text for event in alone.all(Delta)]
    for id_ in "abc":
        streamed = [event.text for event in script.all(Delta) if event.id == id_]
        assert "".join(streamed) == "".join(text)
    assert [event.id for event in script.all(Started)] == list("abc")
    assert [event.id for event in script.all(Replayed)] == ["r1", "r2"]
    ended = [event for event in script.events if isinstance(event, Finished | Replayed)]
    assert len(ended) == 5


def test_a_cancelled_replay_frees_its_slot(loaded: Loaded) -> None:
    """Running or waiting; it sends no further event, and those behind it are served."""
    long = "one two three " * 20
    commands: list[Command] = [
        replay("a", long),
        generate("g"),
        replay("b"),
        replay("c"),
        Cancel("b"),
    ]
    script = Script(commands, lambda event: [Cancel("a")] if isinstance(event, Delta) else []).run(
        loaded
    )
    assert [event.id for event in script.all(Replayed)] == ["c"]
    assert [event.id for event in script.all(Finished)] == ["g"]
    assert not script.all(Failed)
    assert loaded.engine.free_slots == 2


def test_an_id_can_be_used_once_at_a_time(loaded: Loaded) -> None:
    """By requests and replays together."""
    script = Script([replay("x"), generate("x"), replay("x")]).run(loaded)
    assert [event.id for event in script.all(Failed)] == ["x", "x"]
    assert [event.id for event in script.all(Replayed)] == ["x"]


def test_quit_ends_replays_with_an_error(loaded: Loaded) -> None:
    """Running and waiting ones get the error that the model is unloaded; the slot is free."""
    script = Script(
        [generate("g"), replay("a", "one two three " * 20), replay("b")],
        lambda event: [Quit()] if isinstance(event, Delta) else [],
    ).run(loaded)
    assert [(event.id, event.code) for event in script.all(Failed)] == [
        (id_, "server_shutdown") for id_ in ("g", "a", "b")
    ]
    assert isinstance(script.events[-1], Goodbye)
    assert loaded.engine.free_slots == 2


def test_heartbeats_count_replays_and_report_costs(loaded: Loaded) -> None:
    """A replay counts as load, its steps as progress.

    Costs of a drafted token and the host are there.
    """
    script = Script(
        [replay("a", "one two three " * 20), replay("b")], tick_seconds=HEARTBEAT_SECONDS / 2
    ).run(loaded)
    beats = script.all(Heartbeat)
    busy = [beat for beat in beats if beat.active]
    assert {(beat.active, beat.waiting) for beat in busy} >= {(1, 1), (1, 0)}
    assert all(one.steps < other.steps for one, other in itertools.pairwise(busy))
    assert set(beats[-1].draft_ms) == {"model"}
    assert beats[-1].draft_ms["model"] > 0
    assert beats[-1].host_ms > 0
