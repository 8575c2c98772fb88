"""Replays of plain's texts: what is asked for, and what follows from the answers."""

from __future__ import annotations

from typing import Any

import pytest
from measured import MODEL, answer, results
from scripted import Peer

from localspec.bench import arms, hindsight
from localspec.bench.results import Replay
from localspec.bench.suite import Prompt
from localspec.bench.summary import summarize
from localspec.client import Client
from localspec.wire.messages import Trace

PRICED = MODEL | {
    "cost_ms_by_rows": {"1": 10.0, "2": 16.0, "4": 20.0},
    "draft_ms": {"model": 4.0},
    "host_ms": 0.0,
    "row_multiple": 1,
}
TOLD: dict[str, Any] = {
    "id": "r",
    "prompt_tokens": 9,
    "cached_tokens": 0,
    "tokens": 2,
    "max_draft": 24,
    "gaps": [0.0, 0.0],
    "margins": [1.0, 2.0],
    "after": {"pieces": ["a", "b"], "gap": 0.5},
    "drafters": {"lookup": {"free": True, "survives": [1, 0], "predicted": [0.5, None]}},
}
REFUSED = {"error": {"code": "context_length_exceeded", "message": "too long"}}
FENCED = "Rename it:\n```python\nx = 1\n```\n"


def replay(prompt: str, free: list[int], neural: list[int], **changes: Any) -> Replay:
    """Of a text whose first token, which the prompt gives, is followed by these."""
    fields: dict[str, Any] = {
        "prompt": prompt,
        "turn": 0,
        "tokens": 1 + len(free),
        "max_draft": 24,
        "drafters": {
            "lookup": Trace(True, [0, *free], [0.5] * (1 + len(free))),
            "model": Trace(False, [0, *neural], [0.5] * (1 + len(free))),
        },
    }
    return Replay(**(fields | changes))


def test_every_text_of_plain_is_replayed_with_its_history() -> None:
    """By the daemon's own model; a refused one, and what there is no text of, is left out."""
    prompts = [Prompt("qa/1", "qa", ("Why?", "And then?")), Prompt("qa/2", "qa", ("Who?",))]
    texts = {("qa/1", 0): "one", ("qa/1", 1): "two"}
    received: list[str] = []
    with Peer([(200, TOLD), (400, REFUSED)]) as peer:
        ways = arms.own(Client(peer.socket_path), MODEL).values()
        found = hindsight.replays(ways, prompts, texts, lambda _count, text: received.append(text))
    traces = {"lookup": Trace(True, [1, 0], [0.5, None])}
    assert found == [Replay("qa/1", 0, 2, 24, traces, prompt_tokens=9)]
    assert [asked.path for asked in peer.asked] == ["/v1/replay"] * 2
    first, second = (asked.body for asked in peer.asked)
    assert (first["model"], first["text"]) == ("tiny", "one")
    assert [message["content"] for message in second["messages"]] == ["Why?", "one", "And then?"]
    assert len(received) == 2


def test_an_arm_that_predicts_has_replays_of_its_own() -> None:
    """Where there is something to predict; plain's is asked without it."""
    prompts = [Prompt("edit/1", "edit", (FENCED,)), Prompt("qa/1", "qa", ("Who?",))]
    texts = {("edit/1", 0): "x = 2", ("qa/1", 0): "me"}
    with Peer([(200, TOLD)] * 3) as peer:
        ways = arms.own(Client(peer.socket_path), MODEL).values()
        found = hindsight.replays(ways, prompts, texts, lambda _count, _text: None)
    assert [(one.prompt, one.predicts) for one in found] == [
        ("edit/1", False),
        ("edit/1", True),
        ("qa/1", False),
    ]
    predictions = [asked.body.get("prediction") for asked in peer.asked]
    assert predictions == [None, {"type": "content", "content": "x = 1\n"}, None]


def test_each_arm_is_bounded_by_what_its_drafters_allow() -> None:
    """Four decoded tokens take 40 ms; a copy of three and the bonus 20; drafting three 32.

    To draft three is also the best fixed setting.
    """
    measured = results(
        *(answer("qa/1", arm, 1.0) for arm in ("plain", "auto", "lookup", "model", "http://x")),
        model=PRICED,
        replays=[replay("qa/1", [3, 2, 1, 0], [3, 2, 1, 0])],
    )
    assert hindsight.possible(measured) == {
        "auto": {"qa/1": pytest.approx((2.0, 2.0))},
        "lookup": {"qa/1": pytest.approx((2.0, 2.0))},
        "model": {"qa/1": pytest.approx((40 / 32, 40 / 32))},
    }


def test_turns_of_a_conversation_add_up() -> None:
    """As the times of its answers do in the measured ratio; they share one setting.

    Drafting three takes 20 ms for the first and 20 + 18 + 16 + 10 for the second, plain 40 each.
    """
    measured = results(
        *(answer("qa/1", arm, 1.0) for arm in ("plain", "lookup")),
        model=PRICED,
        replays=[
            replay("qa/1", [3, 2, 1, 0], [0] * 4),
            replay("qa/1", [0] * 4, [0] * 4, turn=1),
        ],
    )
    assert hindsight.possible(measured) == {"lookup": {"qa/1": pytest.approx((80 / 60, 1.0))}}


def test_a_fixed_setting_drafts_by_the_model_where_lookup_has_nothing() -> None:
    """A copy of three and the bonus, then a draft of one and the bonus, each by the same setting.

    16 ms for the copies whatever was set for the model, 16 + 4 where it drafts; plain is 60 ms.
    """
    traces = {
        "lookup": Trace(True, [0, 1, 0, 1, 0, 0, 0], [0.5] * 5 + [None] * 2),
        "model": Trace(False, [0, 0, 0, 0, 0, 1, 0], [0.5] * 7),
    }
    measured = results(
        *(answer("qa/1", arm, 1.0) for arm in ("plain", "auto")),
        model=PRICED,
        replays=[replay("qa/1", [0] * 6, [0] * 6, drafters=traces)],
    )
    assert hindsight.possible(measured) == {"auto": {"qa/1": pytest.approx((60 / 52, 60 / 52))}}


def test_a_prediction_raises_the_bound_of_its_own_arm_only() -> None:
    """The replay that knew it counts there, and nowhere else."""
    measured = results(
        *(answer("edit/1", arm, 1.0) for arm in ("plain", "auto", "prediction")),
        model=PRICED,
        replays=[
            replay("edit/1", [0] * 4, [0] * 4),
            replay("edit/1", [3, 2, 1, 0], [0] * 4, predicts=True),
        ],
    )
    found = hindsight.possible(measured)
    assert found["auto"] == {"edit/1": pytest.approx((1.0, 1.0))}
    assert found["prediction"] == {"edit/1": pytest.approx((2.0, 2.0))}


def test_reached_is_the_ratio_by_the_bound() -> None:
    """Over the prompts that have one; others count in the ratio alone."""
    measured = results(
        *(answer(name, "plain", 2.0) for name in ("qa/1", "qa/2")),
        answer("qa/1", "lookup", 2.0 / 1.5),
        answer("qa/2", "lookup", 4.0),
        model=PRICED,
        replays=[replay("qa/1", [3, 2, 1, 0], [0] * 4)],
    )
    cell = summarize(measured).cells["qa"]["lookup"]
    assert cell.bound is not None
    assert (cell.bound.mean, cell.bound.reached, cell.bound.prompts) == pytest.approx((2, 0.75, 1))
    assert summarize(measured).cells["qa"]["plain"].bound is None


def test_without_a_staircase_nothing_is_bounded() -> None:
    """A bound that is not measured would be a guess."""
    measured = results(
        answer("qa/1", "plain", 1.0),
        answer("qa/1", "auto", 1.0),
        model=PRICED | {"cost_ms_by_rows": None},
        replays=[replay("qa/1", [3, 2, 1, 0], [0] * 4)],
    )
    assert hindsight.possible(measured) == {}


def test_reliability_counts_every_proposal_in_its_bin() -> None:
    """Predicted is a mean, observed a share; what had no proposal counts nowhere."""
    trace = Trace(True, [1, 0, 2, 0, 1], [0.25, 0.25, 0.96, None, 1.0])
    found = hindsight.reliability(
        [
            replay("qa/1", [0], [0], drafters={"lookup": trace}),
            replay("qa/1", [0], [0], drafters={"lookup": trace}, predicts=True),
        ]
    )
    assert found == {
        "lookup": [
            hindsight.Bin(0.2, 0.3, 0.25, 0.5, 2),
            hindsight.Bin(0.95, 0.98, 0.96, 1.0, 1),
            hindsight.Bin(0.98, 1.0, 1.0, 1.0, 1),
        ]
    }
    assert hindsight.reliability([]) == {}
