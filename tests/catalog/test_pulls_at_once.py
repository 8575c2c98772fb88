"""Pulls and imports of several processes at once: each thing is done once, and none is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tiny
from catalog.test_fetching import REPO, serve
from catalog.test_pull import wait_for_request

from localspec.catalog import acquire, header
from localspec.catalog.reference import Reference
from localspec.catalog.transfer import Step
from localspec.errors import ModelError

pytestmark = pytest.mark.timeout(60)


def one_waits_for_the_other(hub: Any, directory: Path, *repos: str) -> list[Path | str]:
    """The results of two pulls; the second waits while the first is in the middle of a part."""
    hub.hold, waiting = threading.Event(), threading.Event()
    done: list[Path | str] = ["", ""]

    def fetch(place: int) -> None:
        def report(step: Step) -> None:
            if step.stage == "waiting" and place:
                waiting.set()

        try:
            done[place] = acquire.fetch(found[place], directory, report, "mine")
        except ModelError as error:
            done[place] = error.message

    found = [acquire.look(Reference(repo, ""), 1 << 40) for repo in repos]
    threads = [threading.Thread(target=fetch, args=(place,)) for place in (0, 1)]
    threads[0].start()
    wait_for_request(hub)
    threads[1].start()
    assert waiting.wait(30)
    hub.hold.set()
    for thread in threads:
        thread.join()
    return done


@pytest.fixture
def parts(hub: Any, tmp_path: Path) -> int:
    """The number of files of the Hub's split model."""
    tiny.build(tmp_path / "Tiny-Q4_0.gguf", split_tensors=7)
    found = sorted(tmp_path.glob("Tiny-Q4_0-*.gguf"))
    serve(hub, *found)
    return len(found)


def test_two_pulls_of_a_split_model_fetch_its_parts_once(
    hub: Any, parts: int, tmp_path: Path
) -> None:
    """The second waits, and finds the model that the first has joined."""
    models = tmp_path / "models"
    path = models / "mine.gguf"
    assert one_waits_for_the_other(hub, models, REPO, REPO) == [path, path]
    assert header.read(path).architecture == "llama"
    assert len(hub.ranges) == parts
    assert not (models / ".mine").exists()


def test_another_split_model_does_not_pass_for_the_one_that_was_waited_for(
    hub: Any, parts: int, tmp_path: Path
) -> None:
    """Of two repositories pulled under one name the second is refused."""
    hub.repos.append("other/tiny-GGUF")
    path = tmp_path / "models" / "mine.gguf"
    first, second = one_waits_for_the_other(hub, path.parent, REPO, "other/tiny-GGUF")
    assert first == path
    assert "from somewhere else" in str(second)
    assert len(hub.ranges) == parts
