"""Damaged weights: a model that gives no usable numbers is refused by its file's name, not read on.

Bits of a real GGUF are changed on disk, and real workers load it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import gguf
import msgspec
import pytest
from encoders import bert
from worker_peer import GREEDY, Files, Worker, load

from localspec.catalog import header
from localspec.errors import BadGGUF
from localspec.types import SamplingParams
from localspec.wire.messages import Embed, Failed, QuestionAnswer, Ready, Refused

SAMPLED = SamplingParams(temperature=0.8, seed=3)
CHAIN = SamplingParams(temperature=0.8, seed=3, typical_p=0.9)
BLOCK_BYTES = 18
"""Of Q4_0: a scale in two bytes, and 32 numbers."""
NAN = b"\x00\x7e"


def tensor(path: Path, name: str) -> tuple[int, int]:
    """Where a tensor's bytes begin, and how many there are."""
    (found,) = (each for each in gguf.GGUFReader(path).tensors if each.name == name)
    return int(found.data_offset), int(found.n_bytes)


def changed(source: Path, path: Path, name: str, change: Callable[[bytearray], None]) -> Path:
    """A copy of a model in which `change` has been at one tensor's bytes."""
    shutil.copy(source, path)
    begin, count = tensor(path, name)
    data = bytearray(path.read_bytes())
    part = data[begin : begin + count]
    change(part)
    data[begin : begin + count] = part
    path.write_bytes(data)
    return path


def no_scales(part: bytearray) -> None:
    """The scale of each block becomes NaN."""
    for place in range(0, len(part), BLOCK_BYTES):
        part[place : place + 2] = NAN


def zeroed(part: bytearray) -> None:
    """A hole, as a file has whose blocks never reached the disk."""
    part[:] = bytes(len(part))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A process before its first message."""
    worker = Worker(tmp_path / "cache")
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("blk.0.attn_q.weight", no_scales),
        ("blk.1.ffn_down.weight", no_scales),
        ("output.weight", zeroed),
        ("output_norm.weight", zeroed),
        ("output_norm.weight", lambda part: part.__setitem__(slice(0, 4), b"\0\0\x80\x7f")),
    ],
)
def test_a_damaged_model_is_refused_by_its_files_name(
    files: Files, tmp_path: Path, worker: Worker, name: str, change: Callable[[bytearray], None]
) -> None:
    """With plain kernels, which follow the fast ones; no answer of it is ever text."""
    damaged = changed(files.target, tmp_path / "spoilt.gguf", name, change)
    worker.send(msgspec.structs.replace(load(Files(damaged, damaged, damaged)), safe_kernels=True))
    refused = worker.until(lambda event: isinstance(event, Refused | Ready))[-1]
    assert isinstance(refused, Refused)
    assert refused.code == "no_numbers"
    assert "spoilt.gguf" in refused.message
    assert "models verify" in refused.fix


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, CHAIN])
def test_a_request_that_meets_damage_ends_by_it_and_others_go_on(
    files: Files, tmp_path: Path, worker: Worker, sampling: SamplingParams
) -> None:
    """One word's vector is NaN: whoever says it is told, and who does not is answered."""
    _, count = tensor(files.target, "token_embd.weight")
    word, good = 40, 50
    rows = len(gguf.GGUFReader(files.target).fields["tokenizer.ggml.tokens"].data)

    def spoil(part: bytearray) -> None:
        width = count // rows
        part[word * width : (word + 1) * width] = NAN * (width // 2)

    damaged = changed(files.target, tmp_path / "spoilt.gguf", "token_embd.weight", spoil)
    worker.send(load(Files(damaged, damaged, damaged)))
    worker.until_ready()
    met, spared = worker.answer(
        worker.request([good, word], sampling=sampling),
        worker.request([good] * 3, sampling=sampling, client="another", max_tokens=1),
    )
    assert met.failed.code == "no_numbers"
    assert "spoilt.gguf" in met.failed.message
    assert spared.finished.usage.completion_tokens == 1


def test_a_damaged_draft_is_left_out(files: Files, tmp_path: Path, worker: Worker) -> None:
    """The target answers without it, by its fast kernels, and says why."""
    damaged = changed(files.draft, tmp_path / "spoilt.gguf", "output.weight", no_scales)
    worker.send(load(Files(files.target, damaged, damaged)))
    worker.until_ready()
    assert "spoilt.gguf gives no usable numbers" in (worker.ready.speculation_off or "")
    assert worker.one("the in the").finished


def test_vectors_that_are_no_numbers_are_an_error(tmp_path: Path, worker: Worker) -> None:
    """Nobody finds texts by NaN; JSON has no such number."""
    encoder = bert(tmp_path / "bert.gguf", gguf.PoolingType.MEAN)
    spoilt = changed(
        encoder.path, tmp_path / "spoilt.gguf", "token_embd.weight",
        lambda part: part.__setitem__(slice(None), b"\xff" * len(part)),
    )  # fmt: skip
    worker.send(load(Files(spoilt, spoilt, spoilt)))
    worker.until_ready()
    worker.send(Embed("a", ["the in", "the"]))
    (answer,) = worker.until(lambda event: isinstance(event, QuestionAnswer | Failed))[-1:]
    assert isinstance(answer, Failed)
    assert answer.code == "no_numbers"
    assert "spoilt.gguf" in answer.message


def said_of_header(path: Path) -> str:
    """Why the file is refused before native code sees it; "" where it is not."""
    try:
        header.read(path)
    except BadGGUF as error:
        return error.message
    return ""


def test_any_damage_ends_in_answers_or_a_sentence(files: Files, tmp_path: Path) -> None:
    """Bits flipped anywhere, a beginning alone, holes: of forty files none ends without a word."""
    random, whole = Random(11), files.target.read_bytes()  # noqa: S311 - no secret
    infos = min(each.field.offset for each in gguf.GGUFReader(files.target).tensors)
    begin = tensor(files.target, "token_embd.weight")[0]
    ends = {"refused by its header": 0, "loaded": 0}
    for number in range(40):
        data, low, high = bytearray(whole), *random.choice(
            [(0, 24), (24, infos), (infos, begin), (begin, len(whole))]
        )  # fmt: skip
        for _ in range(random.choice([1, 30, 1000])):
            data[random.randrange(low, high)] ^= 1 << random.randrange(8)
        if number % 4 == 3:
            data = data[: random.randrange(len(data))]
        path = tmp_path / f"spoilt-{number}.gguf"
        path.write_bytes(data)
        if path.name in (why := said_of_header(path)):
            ends["refused by its header"] += 1
            continue
        assert not why
        ends["loaded"] += 1
        worker = Worker(tmp_path / "cache")
        command = load(Files(path, path, path))
        worker.send(msgspec.structs.replace(command, safe_kernels=True))
        try:
            last = worker.until(lambda event: isinstance(event, Refused | Ready))[-1]
            if isinstance(last, Refused):
                assert path.name in last.message
            else:
                heard = worker.one([40, 50, 60]).last
                assert not isinstance(heard, Failed) or path.name in heard.message
        finally:
            worker.close()
    assert all(ends.values()), ends
