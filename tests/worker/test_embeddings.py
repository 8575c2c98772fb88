"""Embeddings from a real process: held to a forward in numpy, beside others, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
import pytest
from encoders import PLACES, WIDTH, Encoder, Vectors, bert
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_peer import Files, Worker, load

from localspec.catalog.plan import EMBEDDED_TEXTS
from localspec.wire.messages import Cancel, Embed, Failed, QuestionAnswer
from localspec.worker.embedding import MAX_TEXTS, scaled

POOLINGS = (gguf.PoolingType.MEAN, gguf.PoolingType.CLS, gguf.PoolingType.LAST)


@pytest.fixture(scope="module", params=POOLINGS, ids=[pooling.name for pooling in POOLINGS])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A model of each way to make one vector of many."""
    return bert(tmp_path_factory.mktemp("bert") / "bert.gguf", request.param)


@pytest.fixture(scope="module")
def worker(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that has loaded it."""
    worker = Worker(tmp_path_factory.mktemp("cache"))
    worker.send(load(Files(encoder.path, encoder.path, encoder.path)))
    worker.until_ready()
    yield worker
    worker.close()


def embed(worker: Worker, *asked: Embed) -> dict[str, QuestionAnswer | Failed]:
    """The answers to requests that were sent together, in the order in which they came."""
    for one in asked:
        worker.send(one)
    answers: dict[str, QuestionAnswer | Failed] = {}
    while len(answers) < len(asked):
        event = worker.receive()
        assert event is not None, worker.last_words()
        if isinstance(event, QuestionAnswer | Failed):
            answers[event.id] = event
    return answers


def vectors(worker: Worker, asked: Embed) -> list[Vectors]:
    """The vectors of one request."""
    result = embed(worker, asked)[asked.id]
    assert isinstance(result, QuestionAnswer), result
    return [np.frombuffer(vector, dtype="<f4") for vector in result.vectors]


def test_vectors_equal_numpys(worker: Worker, encoder: Encoder) -> None:
    """Texts and tokens, short ones and the longest, many in one forward."""
    texts: list[str | list[int | str]] = [
        "good",
        [1, 2, 3],
        "a",
        list(range(PLACES)),
        "a word or two",
    ]
    found = vectors(worker, Embed("raw", texts, norm=-1))
    unit = vectors(worker, Embed("unit", texts))
    narrow = vectors(worker, Embed("narrow", texts, width=8))
    for text, each, one, few in zip(texts, found, unit, narrow, strict=True):
        tokens: Any = text if isinstance(text, list) else list(text.encode())  # a byte is a token
        expected = encoder.embedding(tokens)
        assert np.abs(each - expected).max() < 0.01
        assert one == pytest.approx(expected / np.linalg.norm(expected), abs=0.005)
        assert few == pytest.approx(one[:8] / np.linalg.norm(one[:8]), abs=0.005)


def test_long_lists_and_short_ones_share_forwards(worker: Worker) -> None:
    """More texts than fit a forward come in order, and a single text does not wait for them."""
    many = Embed("many", [f"text {number}" for number in range(4 * EMBEDDED_TEXTS)])
    alone = vectors(worker, many)
    answers = embed(worker, many, *(Embed(f"one-{text}", [text]) for text in ("x", "text 7")))
    assert list(answers)[-1] == "many"
    result = answers["many"]
    assert isinstance(result, QuestionAnswer)
    for vector, before in zip(result.vectors, alone, strict=True):
        assert np.frombuffer(vector, dtype="<f4") == pytest.approx(before, abs=1e-4)
    one = answers["one-text 7"]
    assert isinstance(one, QuestionAnswer)
    assert np.frombuffer(one.vectors[0], dtype="<f4") == pytest.approx(alone[7], abs=1e-4)
    assert len(set(result.vectors)) == len(result.vectors)


def test_refused_embeddings_have_a_reason(worker: Worker) -> None:
    """Nothing, too much, too long, too wide, no such token, and requests other than embeddings."""
    wrong = {
        "none": Embed("none", []),
        "empty": Embed("empty", ["a", ""]),
        "many": Embed("many", ["a"] * (MAX_TEXTS + 1)),
        "long": Embed("long", ["a" * (PLACES + 1)]),
        "wide": Embed("wide", ["a"], width=WIDTH + 1),
        "token": Embed("token", [[10**6]]),
    }
    answers = embed(worker, *wrong.values())
    codes = {name: answer.code for name, answer in answers.items() if isinstance(answer, Failed)}
    expected = dict.fromkeys(wrong, "invalid_request") | {"long": "context_length_exceeded"}
    assert codes == expected
    cut = embed(worker, Embed("cut", ["a" * 1000], cut=True))["cut"]
    assert isinstance(cut, QuestionAnswer)
    assert cut.tokens == [PLACES]
    said = worker.one("hello", max_tokens=1).failed
    assert (said.code, "writes no text" in said.message) == ("not_supported", True)


def test_a_cancelled_request_leaves_no_work(worker: Worker) -> None:
    """Other requests do not wait for it."""
    worker.send(Embed("gone", ["a text"] * MAX_TEXTS))
    worker.send(Cancel("gone"))
    assert "next" in embed(worker, Embed("next", ["a"]))
    heartbeat = worker.idle()
    assert (heartbeat.active, heartbeat.waiting) == (0, 0)


def test_a_generative_model_names_an_embedding_model(files: Files, fresh: Worker) -> None:
    """In one sentence with a command."""
    fresh.send(load(files))
    fresh.until_ready()
    failed = embed(fresh, Embed("e", ["hello"]))["e"]
    assert isinstance(failed, Failed)
    assert (failed.code, "localspec models pull" in failed.fix) == ("not_supported", True)


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.integers(1, 8),
    st.integers(1, 20),
)
@settings(max_examples=50)
def test_vectors_are_normalized_as_requested(numbers: list[float], norm: int, width: int) -> None:
    """By every norm and any number of dimensions; only a zero vector stays zero."""
    vector = np.array(numbers, dtype=np.float32)
    found = scaled(vector, norm, width).astype(np.float64)
    assert len(found) == min(len(numbers), width)
    if np.abs(vector[:width]).max() < 1e-3:
        return
    assert (np.abs(found) ** norm).sum() ** (1 / norm) == pytest.approx(1, rel=1e-4)
    assert scaled(vector, -1, None) == pytest.approx(vector)
    assert np.abs(scaled(vector, 0, width)).max() == pytest.approx(32760, rel=1e-4)
