"""LoRA adapters: what is one, whose it is, and files that native code must not see."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny

from localspec.catalog import adapters, header
from localspec.catalog.registry import Registry
from localspec.errors import BadGGUF, BadPair, ConfigError, LocalSpecError
from localspec.wire.values import Adapter


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A model that adapters are for."""
    return tiny.build(tmp_path / "alpha.gguf")


def written(path: Path, change: Callable[[gguf.GGUFWriter], None], **keys: object) -> Path:
    """An adapter with other keys or tensors."""
    writer = gguf.GGUFWriter(path, str(keys.get("architecture", "llama")))
    writer.add_type(str(keys.get("type", "adapter")))
    writer.add_string("adapter.type", str(keys.get("kind", "lora")))
    change(writer)
    return tiny.ended(writer, path)


def pair(
    name: str, a: tuple[int, ...], b: tuple[int, ...], kind: type = np.float32
) -> Callable[[gguf.GGUFWriter], None]:
    """Adds two matrices, shapes with the innermost last."""

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor(f"{name}.lora_a", np.zeros(a, kind))
        writer.add_tensor(f"{name}.lora_b", np.zeros(b, kind))

    return add


@pytest.mark.parametrize(
    ("change", "keys", "said"),
    [
        (pair("blk.0.attn_q.weight", (4, 64), (64, 4)), {"architecture": "qwen2"}, "qwen2"),
        (pair("blk.0.attn_q.weight", (4, 64), (64, 4)), {"architecture": "x" * 99_000}, "xxx"),
        (pair("blk.0.attn_q.weight", (4, 64), (64, 4)), {"kind": "control"}, "no LoRA"),
        (pair("blk.0.attn_q.weight", (4, 64), (64, 4)), {"type": "model"}, "no adapter"),
        (pair("blk.9.attn_q.weight", (4, 64), (64, 4)), {}, "does not have"),
        (pair("blk.0.attn_q.weight", (4, 32), (64, 4)), {}, "matrices of"),
        (pair("blk.0.attn_q.weight", (4, 64), (32, 4)), {}, "matrices of"),
        (pair("blk.0.attn_q.weight", (4, 64), (64, 8)), {}, "matrices of"),
        (pair("blk.0.attn_q.weight", (2, 4, 64), (64, 4)), {}, "matrices of"),
        (pair("blk.0.attn_norm.weight", (4, 64), (64, 4)), {}, "matrices of"),
        (pair("token_embd.weight", (4, 64), (262, 4)), {}, "matrices of"),
        (pair("blk.0.attn_q.weight", (4, 64), (64, 4), np.int32), {}, "I32"),
        (lambda writer: writer.add_tensor("x", np.zeros(4, np.float32)), {}, "no part"),
        (lambda _: None, {}, "no matrices"),
        (
            lambda writer: writer.add_tensor(
                "blk.0.attn_q.weight.lora_a", np.zeros((4, 64), np.float32)
            ),
            {},
            "it has one",
        ),
        (
            lambda writer: (
                writer.add_string("adapter.lora.alpha", "8"),
                pair("blk.0.attn_q.weight", (4, 64), (64, 4))(writer),
            ),
            {},
            "alpha",
        ),
        (
            lambda writer: (
                writer.add_float32("adapter.lora.alpha", float("nan")),
                pair("blk.0.attn_q.weight", (4, 64), (64, 4))(writer),
            ),
            {},
            "alpha",
        ),
        (
            lambda writer: (
                writer.add_array("adapter.alora.invocation_tokens", [1, 2]),
                pair("blk.0.attn_q.weight", (4, 64), (64, 4))(writer),
            ),
            {},
            "activated",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    target: Path, tmp_path: Path, change: object, keys: dict[str, object], said: str
) -> None:
    """By the file alone, with the first difference, in a message that is bounded."""
    path = written(tmp_path / "odd.gguf", change, **keys)  # type: ignore[arg-type]
    with pytest.raises((BadGGUF, BadPair)) as found:
        adapters.check(target, path)
    assert said in str(found.value)
    assert len(str(found.value)) < 400


def test_one_that_fits_passes_also_with_embeddings(tmp_path: Path) -> None:
    """Rows that are looked up stand the other way."""
    target = tiny.build(tmp_path / "alpha.gguf")
    adapters.check(target, tiny.lora(tmp_path / "lora.gguf"))
    words = len(header.read(target).tokens())
    path = written(tmp_path / "words.gguf", pair("token_embd.weight", (words, 4), (64, 4)))
    adapters.check(target, path)


def test_a_file_that_is_cut_or_gone_is_a_sentence(target: Path, tmp_path: Path) -> None:
    """At any byte where it may end."""
    whole = tiny.lora(tmp_path / "lora.gguf").read_bytes()
    for end in (0, 3, 24, 200, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"cut{end}.gguf"
        path.write_bytes(whole[:end])
        with pytest.raises(BadGGUF):
            adapters.check(target, path)
    with pytest.raises(BadGGUF):
        adapters.check(target, tmp_path / "none.gguf")


def test_an_adapter_is_no_model_whatever_it_is_called(target: Path, tmp_path: Path) -> None:
    """It is not listed among the models; one that fits none of them is skipped with the reason."""
    tiny.lora(tmp_path / "moe_shakespeare.gguf")
    tiny.lora(tmp_path / "alpha-lora.gguf", seed=1)
    registry = Registry(tmp_path)
    assert [model.name for model in registry.models() if model.installed] == ["alpha"]
    assert registry.skipped() == []
    target.unlink()
    assert {each.file for each in registry.skipped()} == {"moe_shakespeare.gguf", "alpha-lora.gguf"}
    assert all("adapter" in each.reason for each in registry.skipped())


def test_a_model_named_after_its_adapter_is_a_model(tmp_path: Path) -> None:
    """The file itself counts, not its name."""
    tiny.build(tmp_path / "llama-lora-q4_0.gguf")
    assert [each.name for each in Registry(tmp_path).models() if each.installed] == [
        "llama-lora-q4_0"
    ]


def test_those_of_the_table_come_first_and_those_beside_have_no_scale(tmp_path: Path) -> None:
    """A name goes before a pattern; a file that is both has the scale of the table."""
    tiny.build(tmp_path / "alpha.gguf")
    beside = [tiny.lora(tmp_path / f"{name}.gguf", seed=at) for at, name in enumerate("ba")]
    other = tiny.lora(tmp_path / "narrow.gguf", width=32)
    far = tiny.lora(tmp_path / "far.bin", seed=3)
    registry, model = Registry(tmp_path), Registry(tmp_path).find("alpha")
    table = {"al*": {"far.bin": 9.0}, "Alpha": {str(far): 0.5, "b.gguf": -1.0}}
    assert registry.adapters(model, table, tmp_path) == [
        Adapter(str(far), 0.5),
        Adapter(str(beside[0]), -1.0),
        Adapter(str(beside[1]), 0.0),
    ]
    assert registry.adapters(model, {}, tmp_path)[0].scale == 0.0
    for wrong in (str(other), "none.gguf"):
        with pytest.raises(ConfigError, match=r"models\.adapters") as found:
            registry.adapters(model, {"alpha": {wrong: 1.0}}, tmp_path)
        assert Path(wrong).name in str(found.value)


def test_a_kind_far_behind_long_lists_is_still_no_reason_to_load_it(tmp_path: Path) -> None:
    """A kind that is not seen at the beginning is refused by the header's rules, as a model."""
    path = tmp_path / "late.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(20_000)])
    writer.add_type("adapter")
    pair("blk.0.attn_q.weight", (4, 64), (64, 4))(writer)
    tiny.ended(writer, path)
    assert struct.pack("<Q", 12) in path.read_bytes()
    with pytest.raises(LocalSpecError, match="LoRA"):
        header.read(path)
