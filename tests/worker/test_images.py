"""Images in a worker: requests go on elsewhere, are counted, read ahead and kept on disk."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import projectors
import pytest
from PIL import Image as Pillow
from worker.test_resume import ALWAYS, SEEDED, same
from worker_peer import Files, Worker, load

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Generate, Load, Message, QuestionAnswer, Quit, Render
from localspec.wire.values import Image
from localspec.worker.images import UNSEEN, Images

SIZE = 160, 112
ROWS = 70
"""Of an image, at least."""


@pytest.fixture(scope="module", params=["one dimension", "two dimensions"])
def loading(
    request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Load:
    """A pair, and a projector for its target."""
    folder, kind = tmp_path_factory.mktemp("projector"), projectors.LLAVA
    if request.param == "two dimensions":
        kind = projectors.QWEN
        target = projectors.reader(folder / "target.gguf")
        draft = projectors.reader(folder / "draft.gguf", seed=1, like=0, noise=0.2)
        files = Files(target, draft, files.stranger)
    path = projectors.build(folder / "mmproj.gguf", kind=kind)
    return msgspec.structs.replace(load(files), projector=str(path))


@pytest.fixture(scope="module")
def worker(loading: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that reads images."""
    worker = Worker(tmp_path_factory.mktemp("cache"))
    worker.send(loading)
    worker.until_ready()
    yield worker
    worker.close()


def image(seed: int) -> Image:
    """A picture's file, as a client sent it."""
    made = io.BytesIO()
    Pillow.frombytes("RGB", SIZE, projectors.pixels(seed, *SIZE)).save(made, "PNG")
    return Image("messages[0].content[0]", made.getvalue())


def asked(worker: Worker, *seeds: int, text: str = "hello, hello, hello", **more: Any) -> Generate:
    """A chat about these pictures."""
    images = [image(seed) for seed in seeds]
    content = "".join(one.mark for one in images) + text
    message = Message("user", content, images=images)
    return worker.request(messages=[message], endpoint="chat", max_tokens=24, **more)


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), SEEDED])
def test_where_a_worker_died_does_not_show_behind_an_image(
    worker: Worker, sampling: SamplingParams
) -> None:
    """The next worker reads the image again, and finds it in the prompt that was begun."""
    whole = same(worker, asked(worker, 1, 2, 1, sampling=sampling, speculation=ALWAYS))
    assert whole.finished.usage.prompt_tokens > 3 * ROWS


def test_a_prompt_with_an_image_is_counted_and_read_ahead(worker: Worker) -> None:
    """As many tokens as it takes; a warm-up leaves only its last token to be read."""
    request = asked(worker, 5, text="what is there?")
    worker.send(Render("count", request))
    told = worker.until(lambda event: isinstance(event, QuestionAnswer))[-1]
    assert isinstance(told, QuestionAnswer)
    warm = worker.answer(msgspec.structs.replace(request, id="warm", max_tokens=0))[0]
    assert warm.finished.usage.prompt_tokens == len(told.tokens)
    heard = worker.answer(request)[0]
    assert heard.finished.usage.prompt_tokens == len(told.tokens)
    assert heard.finished.usage.cached_tokens == len(told.tokens) - 1


def test_another_client_finds_nothing_of_an_image(worker: Worker) -> None:
    """Not even its rows: the same file is another image to it."""
    first = worker.answer(asked(worker, 7))[0]
    other = worker.answer(asked(worker, 7, client="somebody"))[0]
    assert other.finished.usage.cached_tokens == 0
    assert other.text == first.text


def test_an_image_that_was_read_stays_on_disk(loading: Load, tmp_path: Path) -> None:
    """The next worker takes over what the one before had read, image and all."""
    answers = []
    for _ in range(2):
        worker = Worker(tmp_path)
        worker.send(loading)
        worker.until_ready()
        answers.append(worker.answer(asked(worker, 1, 2))[0])
        worker.idle()
        worker.send(Quit())
        assert worker.process.wait(60) == 0
        worker.close()
    first, second = answers
    assert second.text == first.text
    assert second.started is not None
    assert second.started.origin == "disk"
    assert second.finished.usage.cached_tokens > 2 * ROWS


@pytest.mark.timeout(60)
def test_a_blind_model_reads_a_note_in_place_of_a_tool_s_images() -> None:
    """Of any number, and wherever they stand; a text like a mark that is none stays."""
    images = [Image("messages[1].content", str(number).encode()) for number in range(50_000)]
    other = Image("", b"another").mark
    told = Message("tool", f"{other} ".join(one.mark for one in images), images=images)
    sampling, speculation = SamplingParams(), SpeculationParams()
    request = Generate("1", "chat", "me", sampling, speculation, messages=[told])
    read, seen = Images(None, "this model reads none", 1).read(request)
    assert not seen.tokens
    assert read.messages == [Message("tool", f"{other} ".join([UNSEEN] * len(images)))]
