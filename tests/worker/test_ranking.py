"""Scores of documents from a real process, held to a forward in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from encoders import Encoder, bert
from worker_peer import Files, Worker, load

from localspec.catalog import header
from localspec.config import Placement
from localspec.engine.llama.model import Model
from localspec.wire.messages import Embed, Failed, QuestionAnswer


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A model that ranks."""
    return bert(tmp_path_factory.mktemp("rank") / "rank.gguf", gguf.PoolingType.RANK)


@pytest.fixture(scope="module")
def worker(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that has loaded it."""
    worker = Worker(tmp_path_factory.mktemp("cache"))
    worker.send(load(Files(encoder.path, encoder.path, encoder.path)))
    worker.until_ready()
    yield worker
    worker.close()


def answer(worker: Worker, asked: Embed) -> QuestionAnswer | Failed:
    """The last event of a request."""
    worker.send(asked)
    while True:
        event = worker.receive()
        assert event is not None, worker.last_words()
        if isinstance(event, QuestionAnswer | Failed):
            return event


def test_scores_equal_numpys(worker: Worker, encoder: Encoder) -> None:
    """Of the query and each document behind it, joined as the vocabulary prescribes."""
    documents = ["good", "a", "a word or two"]
    result = answer(worker, Embed("rank", [*documents], norm=-1, width=1, query="which"))
    assert isinstance(result, QuestionAnswer), result
    for document, vector, count in zip(documents, result.vectors, result.tokens, strict=True):
        tokens = [*b"which", *document.encode()]
        assert count == len(tokens)
        score = np.frombuffer(vector, dtype="<f4")
        assert np.allclose(score, encoder.embedding(tokens), atol=2e-3)


def test_a_query_and_a_document_are_joined_by_the_file_s_own_template(tmp_path: Path) -> None:
    """Wherever in it the two stand, and however often; documents are read one after the other."""
    template = "[{document}] answers {query}? {query}!"
    path = bert(tmp_path / "own.gguf", gguf.PoolingType.RANK, rank_template=template).path
    model = Model.load(path, Placement(gpu_layers=0, threads=1))
    documents = iter(["good", "a b"])
    pairs = model.pairs("which", documents)
    assert next(pairs) == [*b"[good] answers which? which!"]
    assert [*documents] == ["a b"], "one that is refused ends the reading"
    model.close()


def test_a_ranking_model_is_recognized_by_its_file(encoder: Encoder) -> None:
    """It loads as an embedding model, and gives no vectors."""
    found = header.read(encoder.path)
    assert (found.embeds, found.ranks) == (True, True)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (Embed("vector", ["a"]), "not_supported"),
        (Embed("tokens", [[1, 2]], query="x", width=1), "invalid_request"),
        (Embed("nothing", [""], query="x", width=1), "invalid_request"),
        (Embed("long", ["x" * 999], query="x", width=1), "context_length_exceeded"),
    ],
    ids=["vector", "tokens", "nothing", "long"],
)
def test_invalid_ranking_requests_are_refused(worker: Worker, asked: Embed, code: str) -> None:
    """By the field's name, and the worker goes on."""
    refused = answer(worker, asked)
    assert isinstance(refused, Failed)
    assert refused.code == code
    assert isinstance(
        answer(worker, Embed("after", ["a"], norm=-1, width=1, query="b")), QuestionAnswer
    )
