"""Infills through a real worker: prompts, deadlines, reuse while typing, prompts in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from msgspec.structs import replace
from worker_peer import Files, Heard, Worker, load

from localspec.types import SamplingParams, Snippet

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
BEFORE = "def add(a, b):\n    return a + b\n\n" * 5
AFTER = "\n\nsay(add(1, 2))\n"
BIAS = {10: 70.0} | dict.fromkeys(range(97, 123), 60.0)
LINES = SamplingParams(8.0, top_k=0, top_p=1.0, min_p=0.0, seed=1, logit_bias=BIAS)
"""A random model writes letters, and lines of about ten."""


@pytest.fixture(scope="module", params=[True, False], ids=["strict", "standard"])
def worker(
    request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A worker with a model that fills in, in one cache and with a stream for each slot."""
    folder = tmp_path_factory.mktemp("fim")
    target = tiny.build(folder / "target.gguf", specials=MARKS)
    worker = Worker(folder)
    exactness = "strict" if request.param else "standard"
    pair = Files(target, files.draft, files.stranger)
    told = load(pair, context=1024, slots=3, exactness=exactness)
    worker.send(replace(told, draft_path=None))
    worker.until_ready()
    yield worker
    worker.close()


def fill(worker: Worker, before: str = BEFORE, **fields: Any) -> Heard:
    """An infill between two texts."""
    return worker.one(before, **{"endpoint": "infill", "suffix": AFTER, **fields})


def cached(heard: Heard) -> int:
    """Tokens of the prompt that were not read again."""
    return heard.finished.usage.cached_tokens


def test_an_infill_reads_both_sides_and_other_files(worker: Worker) -> None:
    """Its prompt is as long as all its parts and the tokens around them."""
    alone = fill(worker).finished.usage.prompt_tokens
    assert alone == fill(worker, suffix="").finished.usage.prompt_tokens + len(AFTER)
    extra = [Snippet("import add", "a.py")]
    names = len("myproject\na.py\nfilename\nimport add") + 3
    assert fill(worker, extra=extra).finished.usage.prompt_tokens == alone + names
    assert fill(worker, begun="xy").finished.usage.prompt_tokens == alone + 2


def test_a_model_without_the_tokens_says_so(fresh: Worker, files: Files) -> None:
    """Not with words in the prompt that it has never seen."""
    fresh.send(replace(load(files), draft_path=None))
    fresh.until_ready()
    assert fill(fresh).failed.param == "suffix"


def test_a_few_changed_letters_near_the_end_are_read_from_there_on(worker: Worker) -> None:
    """What stands before them is not, wherever the tokens part; the answer is a new one's."""
    text = BEFORE + "def sub(the, he):\n    return the"
    fill(worker, text)
    for longer in (text + " - ", text + " - he", text[:-1], text + "in"):
        again = fill(worker, longer)
        assert cached(again) >= again.finished.usage.prompt_tokens - len(AFTER) - 16
        alone = fill(worker, longer, client=f"alone {len(longer)}")
        assert cached(alone) == 0
        assert alone.text == again.text or worker.ready.exactness != "strict"


def test_the_deadline_ends_an_answer_that_has_a_line(worker: Worker) -> None:
    """With what there is; before it has one it goes on."""
    common: dict[str, Any] = {"sampling": LINES, "max_tokens": 200}
    late = fill(worker, predict_seconds=0.0, **common)
    whole = fill(worker, **common)
    assert whole.text.startswith(late.text)
    assert "\n" in late.text
    assert len(late.text) < len(whole.text)
    assert late.finished.reason == "length"


def test_a_line_that_leaves_the_block_ends_it(worker: Worker) -> None:
    """A random model never indents, so its second line is the end."""
    heard = fill(worker, sampling=LINES, max_tokens=200, indent=4)
    assert heard.text.strip("\n")
    assert "\n" not in heard.text.strip("\n")
    assert heard.finished.reason == "stop"


def test_a_warm_up_reads_and_says_nothing(worker: Worker) -> None:
    """The next request finds its prompt read."""
    text = "warm " + BEFORE
    warm = fill(worker, text, max_tokens=0)
    assert warm.deltas == []
    assert cached(fill(worker, text)) == warm.finished.usage.prompt_tokens - 1


def test_requests_that_begin_the_same_read_it_once(worker: Worker) -> None:
    """Three at once: one reads, two take it over, and each says what it would have said alone."""
    text = "twins\n" + BEFORE * 3
    asked = [
        worker.request(
            text,
            endpoint="infill",
            suffix=AFTER,
            max_tokens=20,
            sampling=SamplingParams(temperature=0.9, seed=seed),
        )
        for seed in range(3)
    ]
    together = worker.answer(*asked)
    read = [one.finished.usage.prompt_tokens - cached(one) for one in together]
    assert sorted(read)[:2] == [1, 1]
    if worker.ready.exactness == "strict":
        for one, request in zip(together, asked, strict=True):
            alone = worker.one(
                text, endpoint="infill", suffix=AFTER, max_tokens=20, sampling=request.sampling,
                client=f"alone {request.id}",
            )  # fmt: skip
            assert one.text == alone.text


def test_a_named_session_finds_its_slot_again(worker: Worker) -> None:
    """Others that begin alike do not take it, however often they come."""
    fill(worker, "mine " + BEFORE, session="editor")
    for turn in range(4):
        fill(worker, f"mine {turn}" + BEFORE, session=f"chat {turn % 2}")
    again = fill(worker, "mine " + BEFORE, session="editor")
    assert cached(again) == again.finished.usage.prompt_tokens - 1
