"""A compact head is completed by its target's rows and tables, or refused in a sentence."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import small_heads
import tiny

from localspec import paths
from localspec.catalog import compact_heads, draft_heads, header
from localspec.catalog.compact_heads import complete
from localspec.errors import BadGGUF, BadPair, LocalSpecError, PullError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A tiny target of four layers."""
    return tiny.build(tmp_path / "target.gguf", layers=small_heads.LAYERS)


@pytest.fixture
def head(tmp_path: Path, target: Path) -> Path:
    """A compact head for it."""
    return small_heads.write(tmp_path / "head.gguf", target)


def tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The stored bytes of all tensors."""
    return {each.name: np.array(each.data) for each in gguf.GGUFReader(path).tensors}


def test_a_compact_head_has_neither_rows_nor_tables(head: Path) -> None:
    """And says what it is, and whose."""
    parsed = header.parse(head)
    assert compact_heads.is_compact(parsed)
    assert not any(key.startswith("tokenizer.") for key in parsed.metadata)
    assert {tensor.name for tensor in parsed.tensors} == {*small_heads.SIZES.shapes(), "d2t"}


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q6_K"])
def test_rows_are_the_targets_own_in_their_own_format(tmp_path: Path, kind: str) -> None:
    """All else stays as it was, and the tables are the target's but for its template."""
    width = 256 if kind == "Q6_K" else 64
    if kind == "Q6_K":
        target = repacked(tmp_path, width)
    else:
        target = tiny.build(
            tmp_path / "t.gguf", layers=4, quantization=gguf.GGMLQuantizationType[kind]
        )
    sizes = small_heads.SIZES._replace(width=width)
    head = small_heads.write(tmp_path / "head.gguf", target, sizes=sizes)

    made = complete(head, target)

    ours, theirs, given = tensors(made), tensors(target), tensors(head)
    rows = np.array(small_heads.words(target))
    assert np.array_equal(ours.pop("output.weight"), theirs["output.weight"][rows])
    assert ours.keys() == given.keys()
    assert all(np.array_equal(ours[name], given[name]) for name in given)
    whole, model = header.parse(made).metadata, header.parse(target).metadata
    tables = {key for key in model if key.startswith("tokenizer.")} - {"tokenizer.chat_template"}
    assert {key for key in whole if key.startswith("tokenizer.")} == tables
    assert getattr(whole["tokenizer.ggml.tokens"], "raw", 1) == getattr(
        model["tokenizer.ggml.tokens"], "raw", 2
    )
    assert not compact_heads.is_compact(header.parse(made))


def repacked(tmp_path: Path, width: int) -> Path:
    """A target whose output rows are Q6_K: blocks that are none of ours."""
    source = tiny.build(tmp_path / "s.gguf", layers=4, width=width)
    reader = gguf.GGUFReader(source)
    writer, _ = tiny.begun(tmp_path / "t.gguf", "llama")
    for key, field in reader.fields.items():
        if key.startswith("llama.") and key != "llama.context_length":
            writer.add_key_value(key, field.contents(), field.types[0])
    for each in reader.tensors:
        kind = each.tensor_type
        data = np.array(each.data)
        if each.name == "output.weight":
            kind = gguf.GGMLQuantizationType.Q6_K
            data = np.random.default_rng(0).integers(
                0, 99, (data.shape[0], width // 256 * 210), np.uint8
            )
        writer.add_tensor(each.name, data, raw_dtype=kind)
    return tiny.ended(writer, tmp_path / "t.gguf")


def test_rows_of_tied_embeddings_serve_as_well(tmp_path: Path, target: Path) -> None:
    """A target without an output matrix makes logits of its embeddings."""
    reader = gguf.GGUFReader(target)
    writer, _ = tiny.begun(tmp_path / "tied.gguf", "llama")
    for key, field in reader.fields.items():
        if key.startswith("llama.") and key != "llama.context_length":
            writer.add_key_value(key, field.contents(), field.types[0])
    for each in reader.tensors:
        if each.name != "output.weight":
            writer.add_tensor(each.name, np.array(each.data), raw_dtype=each.tensor_type)
    tied = tiny.ended(writer, tmp_path / "tied.gguf")
    made = complete(small_heads.write(tmp_path / "head.gguf", tied), tied)
    rows = np.array(small_heads.words(tied))
    assert np.array_equal(tensors(made)["output.weight"], tensors(tied)["token_embd.weight"][rows])


def test_it_is_made_once_and_again_when_a_file_changes(head: Path, target: Path) -> None:
    """It is the user's alone; the one before is taken away."""
    first = complete(head, target)
    assert first.parent.parent == paths.cache_dir() / "heads"
    assert first.name == head.name
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    before = first.stat()

    assert complete(head, target) == first
    assert first.stat().st_ino == before.st_ino

    small_heads.write(head, target, name="another")
    os.utime(head, ns=(1, 1))
    second = complete(head, target)
    assert second != first
    assert header.parse(second).metadata["general.name"] == "another"
    assert list(first.parent.parent.rglob("*.gguf")) == [second]


@pytest.mark.parametrize("damage", [0, 100, -40])
def test_a_damaged_completion_is_made_anew(head: Path, target: Path, damage: int) -> None:
    """As after a disk was full or a machine lost power."""
    made = complete(head, target)
    good = made.read_bytes()
    made.write_bytes(good[:damage])
    assert complete(head, target) == made
    assert made.read_bytes() == good


def wider(target: Path) -> Path:
    """Another model."""
    return tiny.build(target.with_name("wide.gguf"), layers=4, width=128)


OTHERS: dict[str, tuple[Callable[[Path], dict[str, Any]], Callable[[Path], Path], str]] = {
    "another width": (lambda _: {}, wider, "states of 64 numbers, this one of 128"),
    "other layers": (lambda _: {"layers": (1, 2, 4)}, lambda path: path, "layers 1, 2, 4"),
    "the first layer": (lambda _: {"layers": (0, 1, 2)}, lambda path: path, "layers 0, 1, 2"),
    "other tokens": (
        lambda _: {},
        lambda path: tiny.build(path.with_name("more.gguf"), layers=4, extra_tokens=3),
        "tokens",
    ),
    "other weights": (lambda _: {"key": "0" * 64}, lambda path: path, "last norms differ"),
    "a word beyond": (
        lambda target: {"words": [*range(95), header.read(target).vocabulary_size]},
        lambda path: path,
        "It drafts token",
    ),
    "a negative word": (lambda _: {"words": [-1, *range(95)]}, lambda path: path, "token -1"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_head_for_another_model_is_refused_with_the_first_difference(
    tmp_path: Path, target: Path, case: str
) -> None:
    """Nothing is written."""
    changed, other, says = OTHERS[case]
    head = small_heads.write(tmp_path / "head.gguf", target, **changed(target))
    with pytest.raises(BadPair, match=says) as refused:
        complete(head, other(target))
    assert "head.gguf is a draft head for another model" in refused.value.message
    assert not (paths.cache_dir() / "heads").exists()


def nothing(_bytes: bytes) -> bytes:
    """An empty file."""
    return b""


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": nothing,
    "junk": lambda _: b"<!DOCTYPE html>",
    "cut off": lambda data: data[:-3000],
    "cut in its header": lambda data: data[:300],
    "grown": lambda data: data + bytes(9000),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_head_is_refused(head: Path, target: Path, case: str) -> None:
    """In a sentence that names it."""
    head.write_bytes(BROKEN[case](head.read_bytes()))
    with pytest.raises(BadGGUF, match=r"head\.gguf cannot be used"):
        complete(head, target)


def spoiled(name: str, value: float, kind: str = "Q4_0") -> Callable[[Path], dict[str, Any]]:
    """Weights one of which is no number."""

    def changed(target: Path) -> dict[str, Any]:
        weights = dict(small_heads.trained(target, kind=kind).weights)
        stored, data = weights[name]
        if stored == "F32":
            data = data[:-4] + np.float32(value).tobytes()
        else:
            last = len(data) - {"Q4_0": 18, "Q8_0": 34}[stored]
            data = data[:last] + np.float16(value).tobytes() + data[last + 2 :]
        return {"weights": weights | {name: (stored, data)}}

    return changed


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("output_norm.weight", np.nan, "Q4_0"),
        ("blk.0.attn_norm.weight", -np.inf, "Q4_0"),
        ("fc.weight", np.nan, "Q4_0"),
        ("blk.0.ffn_down.weight", np.inf, "Q8_0"),
        ("blk.0.attn_k.weight", np.nan, "F32"),
    ],
)
def test_weights_that_are_no_numbers_are_refused(
    tmp_path: Path, target: Path, name: str, value: float, kind: str
) -> None:
    """In norms, in single weights, and in the scales of blocks."""
    changed = spoiled(name, value, kind)(target)
    head = small_heads.write(tmp_path / "head.gguf", target, **changed)
    with pytest.raises(BadGGUF, match=f"{name} holds what is no number"):
        complete(head, target)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "F32", "F16"])
def test_numbers_of_every_size_are_numbers(tmp_path: Path, target: Path, kind: str) -> None:
    """The largest, the smallest, and zeros of both signs."""
    weights = dict(small_heads.trained(target, kind=kind).weights)
    edges = np.array([3.4e38, -3.4e38, 1e-45, -0.0], np.float32)
    norm = np.concatenate([edges, np.ones(60, np.float32)])
    weights["output_norm.weight"] = ("F32", norm.tobytes())
    head = small_heads.write(tmp_path / "head.gguf", target, weights=weights)
    assert complete(head, target).exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sizes": small_heads.SIZES._replace(heads=5)}, "cannot share"),
        ({"sizes": small_heads.SIZES._replace(groups=3)}, "cannot share"),
        ({"sizes": small_heads.SIZES._replace(inner=192)}, "shape"),
    ],
)
def test_a_head_that_contradicts_itself_is_refused(
    tmp_path: Path, target: Path, change: dict[str, Any], says: str
) -> None:
    """Where its keys say other sizes than its tensors have."""
    good = small_heads.trained(target)
    data = compact_heads.compact(good)
    sizes = change["sizes"]
    for key, value in (
        ("eagle3.attention.head_count", sizes.heads),
        ("eagle3.attention.head_count_kv", sizes.groups),
        ("eagle3.feed_forward_length", sizes.inner),
    ):
        at = data.index(key.encode() + b"\x04\0\0\0") + len(key) + 4
        data = data[:at] + int(value).to_bytes(4, "little") + data[at + 4 :]
    head = tmp_path / "head.gguf"
    head.write_bytes(data)
    with pytest.raises(BadGGUF, match=says):
        complete(head, target)


def test_a_whole_head_or_a_model_is_no_compact_one(tmp_path: Path, target: Path) -> None:
    """Each is refused, and says why."""
    whole = small_heads.whole(tmp_path / "whole.gguf", target)
    for path in (whole, target):
        assert not compact_heads.is_compact(header.parse(path))
        with pytest.raises(BadGGUF, match="no EAGLE-3 head"):
            complete(path, target)


def test_a_compact_head_is_found_among_files(tmp_path: Path, head: Path, target: Path) -> None:
    """As a whole one: what is loaded is the completed file. Others say why they are none."""
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"junk")
    found, why = draft_heads.find(target, [junk, target, head])
    assert found is not None
    made = Path(found.path)
    assert made == complete(head, target)
    assert (found.kind, found.layers, why) == ("eagle3", small_heads.TAPS, "")
    made.unlink()
    found, _ = draft_heads.find(target, [head])
    assert found is not None
    assert made.exists()
    other = tiny.build(tmp_path / "other.gguf", layers=4, extra_tokens=3)
    found, why = draft_heads.find(other, [head])
    assert found is None
    assert "head.gguf is a draft head for another model than other.gguf" in why


def test_a_missing_file_is_one_sentence(tmp_path: Path, head: Path, target: Path) -> None:
    """Of the head or of the target."""
    for pair in ((tmp_path / "none", target), (head, tmp_path / "none")):
        with pytest.raises(BadGGUF, match="cannot be read"):
            complete(*pair)


def test_a_cache_that_cannot_be_written_is_one_sentence(head: Path, target: Path) -> None:
    """The model then speculates without the head."""
    paths.make_private(paths.cache_dir())
    (paths.cache_dir() / "heads").touch()
    with pytest.raises(PullError, match="cannot be written"):
        complete(head, target)


def test_any_cut_of_a_head_is_refused(tmp_path: Path, head: Path, target: Path) -> None:
    """At whatever byte."""
    data, cut = head.read_bytes(), tmp_path / "cut.gguf"
    for size in np.random.default_rng(0).integers(0, len(data) - 1, 60):
        cut.write_bytes(data[:size])
        with pytest.raises(LocalSpecError):
            complete(cut, target)


def test_a_copy_of_a_target_is_served_as_well(tmp_path: Path, head: Path, target: Path) -> None:
    """Two targets with one head do not take each other's file away."""
    other = tmp_path / "other.gguf"
    shutil.copy(target, other)
    made = complete(head, target), complete(head, other)
    assert len(set(made)) == 2
    assert all(path.exists() for path in made)


def test_a_head_of_another_model_here_is_not_completed_for_it(
    tmp_path: Path, target: Path, head: Path
) -> None:
    """To say nothing of it, its key is enough; a head of no model here is told."""
    other = tiny.build(tmp_path / "other.gguf", extra_tokens=1, layers=small_heads.LAYERS)
    cached = paths.cache_dir() / "heads"
    before = sorted(cached.rglob("*"))

    assert draft_heads.find(other, [head], [target]) == (None, "")
    assert "head.gguf" in draft_heads.find(other, [head])[1]

    assert sorted(cached.rglob("*")) == before


def test_no_file_beside_the_target_ends_the_search(
    tmp_path: Path, target: Path, head: Path
) -> None:
    """Empty, cut and irregular files among the models are passed over."""
    other = tiny.build(tmp_path / "other.gguf", extra_tokens=1, layers=small_heads.LAYERS)
    strange = [tmp_path / f"{name}.gguf" for name in ("empty", "cut", "folder", "link", "fifo")]
    strange[0].write_bytes(b"")
    strange[1].write_bytes(target.read_bytes()[:4000])
    strange[2].mkdir()
    strange[3].symlink_to("nowhere")
    os.mkfifo(strange[4])
    assert "head.gguf" in draft_heads.find(other, [head], strange)[1]
    assert draft_heads.find(other, [head], [*strange, target]) == (None, "")
