"""A model whose template begins thoughts stops thinking where it is told to, drafts or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tiny
from worker_peer import Files, Heard, Script, Worker, load

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import (
    Delta,
    EndThoughts,
    Event,
    Generate,
    Message,
    QuestionAnswer,
    Started,
)
from localspec.worker import assemble
from localspec_daemon.supervisor.resumption import Stream

BEGUN = tiny.TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}"
FREE = tiny.TEMPLATE + "{# <think> </think> #}"
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
          "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module", params=[BEGUN, FREE], ids=["begun", "free"])
def worker(
    request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A worker on a pair that thinks: its template begins thoughts, or leaves that to the model."""
    folder = tmp_path_factory.mktemp("thoughts")
    target = tiny.build(folder / "target.gguf", template=request.param)
    worker = Worker(folder)
    worker.send(load(replace(files, target=target)))
    worker.until_ready()
    yield worker
    worker.close()


PLAIN = SamplingParams(temperature=0, logit_bias=dict.fromkeys(range(97, 123), 40.0))
AFTER = 5


def heard(worker: Worker, **fields: Any) -> tuple[str, str, Heard]:
    """The thoughts and the text of an answer of plain characters."""
    chat = {"messages": [Message("user", "why?")], "max_tokens": 40, "sampling": PLAIN}
    found = worker.one(**{"endpoint": "chat", **chat, **fields})
    thoughts = "".join(delta.reasoning for delta in found.deltas)
    return thoughts, "".join(delta.text for delta in found.deltas), found


def begins(worker: Worker) -> bool:
    """Whether the template begins thoughts."""
    return bool(heard(worker)[0])


@pytest.mark.parametrize("most", [1, 5, 17])
def test_thoughts_end_at_the_limit(worker: Worker, most: int) -> None:
    """The answer follows; without thoughts there is nothing to end."""
    thoughts, text, found = heard(worker, max_thoughts=most)
    if begins(worker):
        assert 0 < len(thoughts) <= 2 * most  # no token of these writes more than two characters
        assert text
    else:
        assert not thoughts
        assert text == heard(worker)[1]
    assert found.finished.reason == "length"


def test_with_a_limit_of_none_nothing_is_thought(worker: Worker) -> None:
    """The prompt has empty thoughts."""
    thoughts, text, _ = heard(worker, max_thoughts=0)
    assert (thoughts, bool(text)) == ("", True)


@pytest.mark.parametrize("most", [0, 3, 9])
def test_drafts_change_no_token_under_a_limit(worker: Worker, most: int) -> None:
    """Drafted or not, the thoughts and the text are the same."""
    found = [
        heard(worker, max_thoughts=most, speculation=SpeculationParams(mode=mode))[:2]
        for mode in ("off", "always")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("most", [0, 4])
def test_a_schema_is_kept_behind_thoughts(worker: Worker, most: int) -> None:
    """Thoughts are cut, and the answer is of the schema."""
    form = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    _, text, found = heard(
        worker, max_thoughts=most, response_format=form, ignore_eos=False, max_tokens=200,
        sampling=SamplingParams(temperature=0),
    )  # fmt: skip
    assert found.finished.reason == "stop"
    assert set(json.loads(text)) == {"ok"}


def test_a_beginning_that_the_client_gives_may_end_thoughts(worker: Worker) -> None:
    """Behind an end of thoughts nothing is limited."""
    thoughts, text, _ = heard(worker, max_thoughts=2, prefill="<think>x</think>so ")
    assert "</think>" not in thoughts + text
    assert len(thoughts + text) >= 10


@pytest.mark.parametrize("mode", ["off", "always"])
def test_thoughts_end_when_they_are_told_to(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """At once, and text follows; another worker goes on with them as this one would have.

    One that is still being prepared waits for that; without one, or without marks, it is said.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = tiny.build(tmp_path / "target.gguf", template=BEGUN)
    asked = Generate(
        id="a", endpoint="chat", client="c", messages=[Message("user", "why?")], max_tokens=90,
        sampling=PLAIN, speculation=SpeculationParams(mode=mode), ignore_eos=True,
        reasoning_control=True,
    )  # fmt: skip
    thought: list[Event] = []

    def answered(event: Event) -> list[EndThoughts]:
        if isinstance(event, Delta) and event.reasoning:
            thought.append(event)
            return [EndThoughts("q", asked.id)] if len(thought) == AFTER else []
        return []

    with assemble.load(load(replace(files, target=target)), lambda *_: None) as loaded:
        script = Script([asked], answered).run(loaded)
        deltas = script.all(Delta)
        (told,) = script.all(QuestionAnswer)
        assert told.text == ""
        text = "".join(delta.text for delta in deltas)
        assert len(text) > AFTER
        ended = script.events.index(told)
        late = [each for each in script.events[ended:] if isinstance(each, Delta)]
        assert len("".join(each.reasoning for each in late)) <= len("</think>")
        stream = Stream(asked)
        for event in script.events[:ended]:
            if isinstance(event, Started | Delta):
                stream.take(event)
        stream.thoughts_over = True
        rest = Script([stream.command()]).run(loaded)
        assert "".join(delta.text for delta in rest.all(Delta)) == text
        early = Script([asked, EndThoughts("q", asked.id)]).run(loaded)
        assert early.all(QuestionAnswer)[0].text == ""
        assert not any(delta.reasoning for delta in early.all(Delta))
        plain = msgspec.structs.replace(asked, messages=None, prompt="so", endpoint="completion")
        unmarked = Script([plain, EndThoughts("q", plain.id)]).run(loaded)
        assert "marks no thoughts" in unmarked.all(QuestionAnswer)[0].text
        lost = Script([EndThoughts("q", "gone")]).run(loaded)
        assert "no active completion" in lost.all(QuestionAnswer)[0].text
