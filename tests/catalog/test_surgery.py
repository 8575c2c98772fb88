"""A file that is wrong in any one thing is refused by a bounded sentence, with what mends it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_surgery import (
    ARRAY,
    STRING,
    UINT32,
    UINT64,
    Gguf,
    Info,
    apart,
    array,
    f32,
    i32,
    text,
    u32,
)
from hypothesis import given
from hypothesis import strategies as st
from tiny import build

from localspec.catalog import header
from localspec.catalog.registry import Registry
from localspec.errors import BadGGUF, UnknownModel

Change = Callable[[Gguf], object]
QUERY, DOWN = "blk.0.attn_q.weight", "blk.1.ffn_down.weight"
MOST_CHARS = 600
Q8_0, I8, REMOVED = 8, 24, 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be used."""
    return build(tmp_path_factory.mktemp("sound") / "sound.gguf")


def spoilt(sound: Path, change: Change) -> Path:
    """A copy of it, changed in one thing."""
    file = apart(sound)
    change(file)
    path = sound.with_name("spoilt.gguf")
    path.write_bytes(file.bytes())
    return path


def refusal(path: Path) -> BadGGUF | None:
    """Why a file is refused; None where it is not."""
    try:
        header.read(path)
    except BadGGUF as error:
        return error
    return None


def key(name: str, value: tuple[int, bytes] | None) -> Change:
    """Another value of a key."""
    return lambda file: file.set(name, value)


def added(name: str, kind: int, value: bytes) -> Change:
    """One key more."""
    return lambda file: file.keys.append((name, kind, value))


def tensor(name: str, **fields: object) -> Change:
    """Other fields of a tensor."""

    def change(file: Gguf) -> None:
        for field, value in fields.items():
            setattr(file.tensor(name), field, value)

    return change


def swapped(file: Gguf) -> None:
    """Two tensors lie where the other one should."""
    one, other = file.tensor(QUERY), file.tensor(DOWN)
    one.offset, other.offset = other.offset, one.offset


CHANGES: dict[str, Change] = {
    "places swapped": swapped,
    "place behind the end": tensor(DOWN, offset=1 << 40),
    "place of 2^64": tensor(QUERY, offset=(1 << 64) - 32),
    "place not aligned": tensor(QUERY, offset=1),
    "weights of another quantization": tensor(QUERY, kind=Q8_0),
    "a matrix of bytes": tensor(QUERY, kind=I8),
    "a type that was given up": tensor(QUERY, kind=REMOVED),
    "no length": tensor(QUERY, lengths=[]),
    "lengths of zero": tensor(QUERY, lengths=[0, 64]),
    "lengths that overflow": tensor(QUERY, lengths=[1 << 62, 1 << 62]),
    "a tensor twice": lambda file: file.infos.append(file.infos[0]),
    "a tensor more": lambda file: file.infos.append(Info("more.weight", [32], 0, 0)),
    "tensors without end": lambda file: setattr(file, "tensors_claimed", 1 << 63),
    "keys without end": lambda file: setattr(file, "keys_claimed", 1 << 63),
    "fewer keys than there are": lambda file: setattr(file, "keys_claimed", 3),
    "another version": lambda file: setattr(file, "version", 99),
    "an alignment of zero": key("general.alignment", u32(0)),
    "an alignment of three": key("general.alignment", u32(3)),
    "an alignment in words": key("general.alignment", (STRING, text("32"))),
    "a string of 2^63": added("x.y", STRING, text("z", 1 << 63)),
    "an array of 2^61": added("x.y", ARRAY, struct.pack("<IQ", UINT64, 1 << 61)),
    "an array of arrays": added("x.y", ARRAY, struct.pack("<IQIQ", ARRAY, 1, UINT32, 0)),
    "a value of no type": added("x.y", 77, b"1234"),
    "a key twice": lambda file: file.keys.append(file.keys[0]),
    "a key without a name": added("", *u32(1)),
    "heads below zero": key("llama.attention.head_count", i32(-4)),
    "heads that share badly": key("llama.attention.head_count_kv", u32(3)),
    "heads as a fraction": key("llama.attention.head_count", f32(4.5)),
    "layers without end": key("llama.block_count", u32(1 << 30)),
    "merges that are numbers": key("tokenizer.ggml.merges", array(UINT32, [b"abcd"])),
    "no merges but a text": key("tokenizer.ggml.merges", (STRING, text("a b"))),
    "weights gone": lambda file: setattr(file, "data", b""),
    "weights cut": lambda file: setattr(file, "data", file.data[: len(file.data) // 2]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_one_wrong_thing_is_refused(sound: Path, change: Change) -> None:
    """With the file's name, why, and a way out, in a few lines."""
    with pytest.raises(BadGGUF) as refused:
        header.read(spoilt(sound, change))
    assert refused.value.message.startswith("spoilt.gguf cannot be used. ")
    assert refused.value.fix
    assert len(str(refused.value)) < MOST_CHARS


@given(st.data())
def test_a_number_in_place_of_another_is_read_or_refused(sound: Path, data: st.DataObject) -> None:
    """Any key, any number or text: no other exception, and no sentence without an end."""
    file = apart(sound)
    place = data.draw(st.integers(0, len(file.keys) - 1))
    values = st.one_of(
        st.integers(0, (1 << 32) - 1).map(u32), st.integers(-(1 << 31), -1).map(i32),
        st.floats(width=32).map(f32), st.binary(max_size=40).map(lambda word: (STRING, text(word))),
        st.just((STRING, text("n" * 1_000_000))), st.just(array(UINT32, [])), st.none(),
    )  # fmt: skip
    name = file.keys[place][0]
    said = refusal(spoilt(sound, key(name, data.draw(values))))
    assert said is None or (said.fix and len(str(said)) < MOST_CHARS)


@given(st.floats(0, 1), st.sampled_from(["header", "borders", "weights"]))
def test_a_file_that_ends_too_early_is_refused(sound: Path, share: float, where: str) -> None:
    """Wherever: in the header, where a tensor begins, or in its middle."""
    file = apart(sound)
    whole, header_bytes = file.bytes(), len(file.header())
    begin = len(whole) - len(file.data)
    borders = [begin + info.offset for info in file.infos]
    end = {
        "header": int(share * header_bytes),
        "borders": borders[int(share * (len(borders) - 1))],
        "weights": begin + int(share * (len(file.data) - 64)),
    }[where]
    path = sound.with_name("spoilt.gguf")
    path.write_bytes(whole[:end])
    with pytest.raises(BadGGUF, match="cannot be used"):
        header.read(path)


def bound(path: Path) -> None:
    """A socket in its place."""
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)
    os.chdir(here)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (bound, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to(path.name), "leads nowhere"),
        (lambda path: path.symlink_to("gone"), "leads nowhere"),
    ],
)
def test_what_is_no_file_is_named_by_who_asks_for_it(
    tmp_path: Path, put: Callable[[Path], object], why: str
) -> None:
    """It is not as if nothing of that name were here, and another model were meant."""
    put(tmp_path / "m.gguf")
    for name in ("m", "M", "m.gguf"):
        with pytest.raises(UnknownModel) as refused:
            Registry(tmp_path).find(name)
        assert "m.gguf is here" in refused.value.message
        assert why in refused.value.message
        assert str(tmp_path) in refused.value.fix
