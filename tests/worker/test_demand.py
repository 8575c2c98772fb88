"""Requests for strict exactness wait for the check, and hold no other up that need not wait."""

from __future__ import annotations

from pathlib import Path

from worker_peer import Files, Worker, load

from localspec.types import SpeculationParams
from localspec.wire.messages import (
    Event,
    Failed,
    Finished,
    Generate,
    Progress,
    Ready,
    Started,
)
from localspec.worker.exactness_decision import UNCHECKED


def _ends(event: Event, id_: str) -> bool:
    return isinstance(event, Finished | Failed) and event.id == id_


def test_a_request_for_strict_waits_for_the_check_and_hears_how_long(
    files: Files, tmp_path: Path
) -> None:
    """It comes right after the start, others are answered before; it has its answer or a reason."""
    worker = Worker(tmp_path)
    worker.send(load(files, exactness="auto"))
    worker.until_ready()
    assert worker.ready.exactness == "standard"
    usual = worker.one("abc", max_tokens=4)
    assert usual.finished.speculation.exactness == "standard"
    asked = worker.request("abc", max_tokens=4, speculation=SpeculationParams(exactness="strict"))
    worker.send(asked)
    events = worker.until(lambda event: _ends(event, asked.id))
    waits = [event for event in events if isinstance(event, Progress)]
    (ready,) = [event for event in events if isinstance(event, Ready)]
    assert waits
    assert all(event.id == asked.id and " of " in event.why for event in waits)
    assert UNCHECKED not in ready.exactness_detail
    if ready.exactness == "strict":
        assert any(isinstance(event, Started) for event in events)
        assert events[-1].speculation.exactness == "strict"  # type: ignore[union-attr]
    else:
        assert "not in force" in events[-1].message  # type: ignore[union-attr]
        assert "auto: " in events[-1].message  # type: ignore[union-attr]
    worker.close()


def test_a_request_for_strict_holds_no_other_up_while_answers_run(
    files: Files, tmp_path: Path
) -> None:
    """The check cannot begin before a long answer ends; short ones behind it need not wait."""
    worker = Worker(tmp_path)
    worker.send(load(files, exactness="auto"))
    worker.until_ready()
    long = worker.request("abc", max_tokens=300)
    strict = worker.request("abc", max_tokens=4, speculation=SpeculationParams(exactness="strict"))
    short = worker.request("xyz", max_tokens=4)
    worker.send(long)
    worker.until(lambda event: isinstance(event, Started) and event.id == long.id)
    worker.send(strict)
    worker.send(short)
    events = worker.until(lambda event: _ends(event, strict.id))
    ended = [event.id for event in events if isinstance(event, Finished | Failed)]
    assert ended == [short.id, long.id, strict.id]
    worker.close()


def test_strict_requests_are_refused_in_standard_mode(files: Files, tmp_path: Path) -> None:
    """With the configuration line that would change that."""
    worker = Worker(tmp_path)
    worker.send(load(files, exactness="standard"))
    worker.until_ready()
    asked: Generate = worker.request(
        "abc", max_tokens=4, speculation=SpeculationParams(exactness="strict")
    )
    worker.send(asked)
    last = worker.until(lambda event: _ends(event, asked.id))[-1]
    assert (last.code, last.param) == ("invalid_request", "speculation.exactness")  # type: ignore[union-attr]
    assert "engine.exactness" in last.fix  # type: ignore[union-attr]
    worker.close()
