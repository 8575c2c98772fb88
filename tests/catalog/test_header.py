"""Tests of the header checks: a Header or BadGGUF for any bytes, and no good model refused."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import encoders
import gguf
import pytest
import tiny
from headers import changed, numbers, strings, text
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog import header, reader, rules
from localspec.catalog.ggml_types import BY_ID
from localspec.catalog.reader import Incomplete
from localspec.engine.llama.model import Model
from localspec.errors import BadGGUF


def gate(data: bytes, file_bytes: int | None = None) -> reader.Parsed:
    """The header checks over bytes in memory."""
    parsed = reader.parse(data, len(data) if file_bytes is None else file_bytes)
    rules.check(parsed)
    return parsed


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """One tensor's entry in a header."""
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


def compose(
    keys: list[bytes],
    tensors: list[bytes],
    data_bytes: int,
    version: int = 3,
    magic: bytes = b"GGUF",
) -> bytes:
    """A GGUF file of the given entries with `data_bytes` of zeros as weights."""
    head = magic + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(keys) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32 + data_bytes)


KEY = text("a.key") + struct.pack("<II", 4, 7)
GOOD = tensor("w", (32,))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends inside its header"),
        (compose([], [], 0, magic=b"FUGG"), "not with GGUF"),
        (compose([], [], 0, version=0), "version 0"),
        (compose([], [], 0, version=1), "version 1"),
        (compose([], [], 0, version=4), "version 4"),
        (compose([], [], 0, version=3 << 24), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63), "keys"),
        (compose([text("") + struct.pack("<II", 4, 7)], [], 0), "Key 0"),
        (compose([text("a\0b") + struct.pack("<II", 4, 7)], [], 0), "Key 0"),
        (compose([struct.pack("<Q", 1 << 62)], [], 64), "claims 4611686018427387904 bytes"),
        (compose([KEY, KEY], [], 0), "twice"),
        (compose([text("a") + struct.pack("<I", 13)], [], 64), "unknown type 13"),
        (compose([text("a") + struct.pack("<IIQ", 9, 9, 1)], [], 64), "array of unknown type 9"),
        (compose([text("a") + struct.pack("<IIQ", 9, 8, 1 << 40)], [], 64), "elements"),
        (compose([text("a") + struct.pack("<IIQ", 9, 8, 9)], [], 64 - 8), "ends inside"),
        (
            compose([text("a") + struct.pack("<IIQQ", 9, 8, 1, 1 << 60)], [], 64),
            "holds a string that claims",
        ),
        (
            compose([text("general.alignment") + struct.pack("<II", 4, 13)], [GOOD], 128),
            "not a power of two",
        ),
        (
            compose([text("general.alignment") + struct.pack("<IQ", 10, 32)], [GOOD], 128),
            "not an unsigned 32-bit",
        ),
        (compose([], [tensor("n" * 64, (32,))], 128), "claims 64 bytes"),
        (compose([], [tensor("", (32,))], 128), "empty or strange name"),
        (compose([], [tensor("w", (1, 1, 1, 1, 1))], 128), "5 dimensions"),
        (compose([], [tensor("w", (32, 0))], 128), "impossible shape"),
        (compose([], [tensor("w", (1 << 62, 4))], 128), "impossible shape"),
        (compose([], [tensor("w", (1 << 33, 1 << 33))], 128), "impossible shape"),
        (compose([], [tensor("w", (1 << 40,))], 128), "behind the end of the file"),
        (compose([], [tensor("w", (32,), kind=4)], 128), "unknown type 4"),
        (compose([], [tensor("w", (32,), kind=43)], 128), "unknown type 43"),
        (compose([], [tensor("w", (31,), kind=2)], 128), "do not divide"),
        (compose([], [GOOD, tensor("w", (32,), offset=128)], 256), "same name"),
        (compose([], [GOOD, tensor("v", (32,), offset=100)], 256), "not aligned"),
        (compose([], [GOOD, tensor("v", (32,), offset=96)], 256), "overlaps"),
        (compose([], [GOOD, tensor("v", (32,), offset=160)], 320), "gap"),
        (compose([], [tensor("w", (32,), offset=1 << 63)], 128), "gap"),
        (compose([], [GOOD], 127), "1 bytes behind the end"),
        (compose([], [GOOD], 128 + 8192), "follow the last tensor"),
        (compose([KEY], [GOOD], 128), "no general.architecture"),
    ],
)
def test_every_malformed_file_is_refused_with_a_sentence(data: bytes, says: str) -> None:
    """The classes of llama.cpp's own hand-made bad files, and the ones that killed its users."""
    with pytest.raises(BadGGUF, match=says):
        gate(data)


@given(
    layers=st.integers(1, 3),
    width=st.sampled_from([64, 96, 128]),
    extra=st.integers(0, 40),
    kind=st.sampled_from([gguf.GGMLQuantizationType[name] for name in ("F16", "Q8_0", "Q5_1")]),
)
def test_no_good_model_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
    layers: int,
    width: int,
    extra: int,
    kind: gguf.GGMLQuantizationType,
) -> None:
    """Files of the official writer are read, and every size agrees with the official reader."""
    path = tmp_path_factory.mktemp("good") / "good.gguf"
    tiny.build(path, layers=layers, width=width, extra_tokens=extra, quantization=kind)
    ours, official = header.read(path), gguf.GGUFReader(path)
    assert [(t.name, t.num_bytes, t.num_elements) for t in ours.tensors] == [
        (t.name, t.n_bytes, t.n_elements) for t in official.tensors
    ]
    assert (ours.layers, ours.vocabulary_size) == (layers, 262 + extra)
    official_tokens = official.fields["tokenizer.ggml.tokens"].contents()
    assert [token.decode() for token in ours.tokens()] == official_tokens
    assert ours.chat_template == tiny.TEMPLATE
    assert ours.weight_bytes < ours.file_bytes


@given(st.data())
def test_mutated_bytes_give_a_header_or_bad_gguf(tiny_path: Path, data: st.DataObject) -> None:
    """Any changed bytes give a Header or BadGGUF, without hanging."""
    content = bytearray(tiny_path.read_bytes())
    header_bytes = content.index(b"blk.1.ffn_down.weight") + 60
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, header_bytes))
        piece = data.draw(
            st.binary(min_size=1, max_size=8)
            | st.sampled_from([b"\0" * 8, b"\xff" * 8, struct.pack("<Q", 1 << 63), b"\x09\0\0\0"])
        )
        content[where : where + len(piece)] = piece
    try:
        gate(bytes(content))
    except BadGGUF as error:
        assert error.message.endswith(".")  # noqa: PT017 - most mutations are refused, some are not


def test_every_truncation_is_refused(tiny_path: Path) -> None:
    """A file that ends early, anywhere in the header or in the weights, never passes."""
    whole = tiny_path.read_bytes()
    assert gate(whole)
    header_bytes = whole.index(b"blk.1.ffn_down.weight") + 60
    for end in [*range(0, header_bytes, 7), *range(header_bytes, len(whole), 4096), len(whole) - 1]:
        with pytest.raises(BadGGUF):
            gate(whole[:end])


@given(end=st.integers(0, 8000))
def test_a_short_window_asks_for_more(tiny_path: Path, end: int) -> None:
    """When only the window is short, not the file, the reader asks for more instead of refusing."""
    whole = tiny_path.read_bytes()
    with pytest.raises(Incomplete):
        reader.parse(whole[: min(end, 4000)], len(whole))


@given(first=st.integers(1, 8000))
def test_a_header_read_in_parts_is_that_read_at_once(tiny_path: Path, first: int) -> None:
    """The size of the first read does not matter, nor where a part ends."""
    whole = tiny_path.read_bytes()
    rest = io.BytesIO(whole[first:])
    parsed = reader.parse(whole[:first], len(whole), rest.read)
    once = reader.parse(whole, len(whole))
    assert repr(parsed) == repr(once)
    assert rest.tell() < 2 * once.data_start


def test_a_claim_costs_no_memory() -> None:
    """Absurd counts are refused before anything of their size is allocated."""
    claim = compose([text("a") + struct.pack("<IIQ", 9, 4, reader.MAX_ARRAY_ELEMENTS)], [], 64)
    tracemalloc.start()
    with pytest.raises(BadGGUF):
        gate(claim)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_file_that_is_not_regular_is_refused(tmp_path: Path) -> None:
    """A FIFO does not block the reader, a directory and a missing file are sentences too."""
    fifo = tmp_path / "pipe.gguf"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, tmp_path / "missing.gguf", Path(os.devnull)):
        with pytest.raises(BadGGUF, match="cannot be"):
            header.read(path)


def test_an_encoder_that_pools_nothing_is_refused(tmp_path: Path) -> None:
    """It writes no text, and llama.cpp would end the process that asks it for some."""
    encoders.bert(tmp_path / "pooled.gguf")
    assert header.read(tmp_path / "pooled.gguf").embeds
    encoders.bert(tmp_path / "none.gguf", gguf.PoolingType.NONE)
    with pytest.raises(BadGGUF, match="pools nothing: it writes no text"):
        header.read(tmp_path / "none.gguf")


@pytest.mark.parametrize("template", ["", "  \n"])
def test_a_blank_template_is_none(tmp_path: Path, template: str) -> None:
    """Else every prompt would be blank: what has no template is continued as plain text."""
    path = tiny.build(tmp_path / "base.gguf", template=template)
    assert header.read(path).chat_template is None
    model = Model.load(path)
    assert model.chat_template is None
    model.close()


def test_the_message_names_the_file(tmp_path: Path) -> None:
    """The error names the file and a fix."""
    path = tmp_path / "page.gguf"
    path.write_bytes(b"<!DOCTYPE html><html>")
    with pytest.raises(BadGGUF) as refused:
        header.read(path)
    assert refused.value.message.startswith("page.gguf cannot be used. It starts with b'<!DO'")
    assert refused.value.fix


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"general__architecture": ""}, "no general.architecture"),
        ({"general__architecture": 5}, "no general.architecture"),
        ({"general__architecture": "wavtokenizer-dec"}, "a decoder of sound"),
        ({"general__type": "adapter"}, "LoRA adapter"),
        ({"general__type": "mmproj"}, "vision projector"),
        ({"split__count": 3}, "split into 3 files"),
        ({"llama__block_count": None}, "block_count is missing"),
        ({"llama__block_count": 0}, "0 layers"),
        ({"llama__block_count": 513}, "513 layers"),
        ({"llama__block_count": "two"}, "not an unsigned"),
        ({"llama__block_count": 1 << 31}, "absurd"),
        ({"llama__nextn_predict_layers": 3}, "prediction layers"),
        ({"llama__context_length": 0}, "no length"),
        ({"llama__embedding_length": 0}, "no length"),
        ({"llama__attention__head_count": 65}, "65 attention heads"),
        ({"llama__attention__head_count_kv": 3}, "cannot share"),
        ({"llama__attention__head_count_kv": numbers(2)}, "1 entries for 2 layers"),
        ({"llama__attention__head_count_kv": numbers(2, -2)}, "absurd number"),
        ({"llama__attention__head_count_kv": strings(b"2", b"2")}, "not an array of 32-bit"),
        ({"llama__feed_forward_length": numbers(*[1] * 600)}, "600 entries"),
        ({"llama__attention__key_length": 16.0}, "not an unsigned"),
        ({"llama__rope__scaling__type": "spiral"}, "none, linear"),
        ({"llama__attention__layer_norm_rms_epsilon": -1e-6}, "no norm can use"),
        ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, "no norm can use"),
        ({"llama__expert_used_count": 1}, "use 1 of 0 experts"),
        ({"llama__expert_count": 2000, "llama__expert_used_count": 2}, "2 of 2000"),
        ({"llama__expert_count": 8}, "0 of 8"),
        (
            {
                "llama__expert_count": 8,
                "llama__expert_used_count": 2,
                "llama__expert_group_count": 8,
            },
            "8 groups",
        ),
        (
            {
                "llama__expert_count": 8,
                "llama__expert_used_count": 2,
                "llama__expert_group_count": 3,
            },
            "0 of 3 groups",
        ),
        ({"tokenizer__ggml__model": None}, "no tokenizer"),
        ({"tokenizer__ggml__tokens": None}, "no vocabulary"),
        ({"tokenizer__ggml__tokens": strings()}, "no vocabulary"),
        ({"tokenizer__ggml__tokens": numbers(1, 2)}, "not an array of the right type"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"b", b"a")}, "same text"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"b" * 4097)}, "4097 bytes; 4096 are"),
        ({"general__architecture": "a" * 65}, "65 characters, which no name has"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"a\0b")}, "same text"),
        ({"tokenizer__ggml__tokens": strings(b"a", b"", b"[EMPTY_1]")}, "same text"),
        ({"tokenizer__ggml__tokens": strings(b"\0b", b"[EMPTY_0]")}, "same text"),
        ({"tokenizer__ggml__token_type": numbers(1, 1)}, "2 entries for 262 tokens"),
        ({"tokenizer__ggml__scores": numbers(1)}, "1 entries for 262 tokens"),
        ({"tokenizer__ggml__merges": numbers(1)}, "not an array of the right type"),
    ],
)
def test_what_llama_cpp_would_abort_on_is_refused(
    tiny_path: Path, values: dict[str, Any], says: str
) -> None:
    """Each assertion of the native loader that metadata can reach has a rule before it."""
    data = tiny_path.read_bytes()
    parsed = reader.parse(data, len(data))
    rules.check(parsed)
    with pytest.raises(BadGGUF, match=says):
        rules.check(changed(parsed, **values))


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("blk.1.ffn_norm.weight", 26, "norms and biases must be F32"),
        ("output_norm.weight", 1, "norms and biases must be F32"),
        ("blk.0.attn_q.bias", 30, "norms and biases must be F32"),
        ("blk.0.attn_q.weight", 26, "no matrix can be"),
        ("token_embd.weight", 28, "no matrix can be"),
    ],
)
def test_element_types_that_native_code_cannot_compute_with_are_refused(
    tiny_path: Path, name: str, kind: int, says: str
) -> None:
    """A type id of the right size passes every size check, but would abort."""
    data = tiny_path.read_bytes()
    parsed = reader.parse(data, len(data))
    others = [tensor for tensor in parsed.tensors if tensor.name != name]
    strange = parsed.tensors[0]._replace(name=name, type=BY_ID[kind])
    with pytest.raises(BadGGUF, match=says):
        rules.check(parsed._replace(tensors=(*others, strange)))


@pytest.mark.parametrize(
    "values",
    [
        {"llama__attention__head_count_kv": numbers(2, 0)},
        {"llama__feed_forward_length": numbers(128, 64)},
        {"llama__rope__scaling__type": "yarn"},
        {"llama__expert_count": 8, "llama__expert_used_count": 2},
        {"tokenizer__ggml__tokens": strings(b"a", b"", b"", b"b")},
        {"tokenizer__ggml__tokens": strings(b"", b"\0", b"[EMPTY_0", b"[EMPTY_2]")},
        {"general__type": "model"},
        {"split__count": 1},
        {"tokenizer__ggml__scores": None, "tokenizer__ggml__merges": None},
    ],
)
def test_unusual_but_sound_metadata_passes(tiny_path: Path, values: dict[str, Any]) -> None:
    """Layers of different shape, experts and empty tokens exist in good models."""
    data = tiny_path.read_bytes()
    rules.check(changed(reader.parse(data, len(data)), **values))
