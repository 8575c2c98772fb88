"""Pulls and imports of several processes at once: each thing is done once, and none is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tiny
from catalog.test_fetching import REPO, serve
from catalog.test_pull import wait_for_request

from localspec.catalog import acquire, header, origins, shelf
from localspec.catalog.origins import Origin
from localspec.catalog.reference import Reference
from localspec.catalog.registry import Registry
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


def test_each_of_many_writers_keeps_its_record(tmp_path: Path) -> None:
    """Where files come from, and which drafts are attached."""
    writers, each = 8, 5
    ready = threading.Barrier(writers)
    names = [f"{writer}-{number}" for writer in range(writers) for number in range(each)]

    def write(mine: list[str]) -> None:
        ready.wait()
        for name in mine:
            (tmp_path / f"{name}.gguf").touch()
            origins.remember(tmp_path, f"{name}.gguf", Origin(f"someone/{name}"))
            Registry(tmp_path).attach(name, "draft")

    threads = [threading.Thread(target=write, args=(names[at::writers],)) for at in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(origins.read(tmp_path)) == sorted(f"{name}.gguf" for name in names)
    assert sorted(Registry(tmp_path).drafts()) == sorted(names)
    left = {path.name for path in tmp_path.iterdir() if path.suffix != ".gguf"}
    assert left == {"origins.json", "drafts.json"}


def test_the_record_of_a_model_that_is_being_joined_stays(tmp_path: Path) -> None:
    """Its file does not exist yet; that of a model that was deleted goes."""
    begun = Origin("someone/tiny", "Q4_0", unfinished=True)
    (tmp_path / "two.gguf").touch()
    origins.remember(tmp_path, "one.gguf", begun)
    origins.remember(tmp_path, "deleted.gguf", Origin("someone/deleted"))
    origins.remember(tmp_path, "two.gguf", Origin("someone/two"))
    assert origins.read(tmp_path) == {"one.gguf": begun, "two.gguf": Origin("someone/two")}
    origins.remember(tmp_path, "one.gguf", None)
    assert list(origins.read(tmp_path)) == ["two.gguf"]


@pytest.mark.parametrize("kind", ["whole", "in parts"])
def test_the_second_of_two_imports_of_one_name_is_refused(tmp_path: Path, kind: str) -> None:
    """The one that is whole first has the name, and nothing of the other is left."""
    models = tmp_path / "models"
    first = tiny.build(tmp_path / "first.gguf")
    second = tiny.build(tmp_path / "second.gguf", seed=1)
    if kind == "in parts":
        tiny.build(tmp_path / "second.gguf", seed=1, split_tensors=7)
        second = min(tmp_path.glob("second-*.gguf"))
    begun = threading.Event()

    def meanwhile(_: Step) -> None:
        if not begun.is_set():
            begun.set()
            other = threading.Thread(target=shelf.add, args=(first, models, print), kwargs=named)
            other.start()
            other.join()

    named = {"name": "mine"}
    with pytest.raises(ModelError, match="has been taken meanwhile"):
        shelf.add(second, models, meanwhile, name="mine")
    assert [path.name for path in models.iterdir()] == ["mine.gguf"]
    assert (models / "mine.gguf").read_bytes() == first.read_bytes()
