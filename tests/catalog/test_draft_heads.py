"""Which file is a draft head, and whose: what does not fit is said with the first difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import architectures
import gguf
import heads
import numpy as np
import pytest
import small_heads
import tiny

from localspec.catalog import draft_heads, header
from localspec.catalog.registry import Registry
from localspec.errors import BadGGUF, BadPair


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense target of four layers."""
    return heads.qwen2(tmp_path_factory.mktemp("target") / "target.gguf")


def test_a_head_that_fits_is_found_beside_its_target(target: Path, tmp_path: Path) -> None:
    """It is no model, whatever its name, and its target's entry has it; files may change."""
    model, head = tmp_path / "some.gguf", tmp_path / "whatever.gguf"
    model.write_bytes(target.read_bytes())
    registry = Registry(tmp_path)
    assert registry.head(model) == (None, "")
    heads.eagle3(head, words=np.arange(0, 250, 2))
    found, why = registry.head(model)
    assert found is not None
    assert (found.kind, found.layers, found.shares, why) == (
        "eagle3",
        (1, 2, 3),
        ("token_embd",),
        "",
    )
    assert "EAGLE-3" in found.sentence
    assert [each.name for each in registry.models() if each.installed] == ["some"]
    assert [(each.file, "EAGLE-3" in each.reason) for each in registry.skipped()] == [
        (head.name, True)
    ]
    heads.eagle3(head, hidden=32)
    found, why = registry.head(model)
    assert found is None
    assert "states of 32 numbers, this one of 64" in why


def test_the_file_that_fits_is_taken_of_several(target: Path, tmp_path: Path) -> None:
    """And why none does is told of the first."""
    heads.eagle3(tmp_path / "a.gguf", hidden=32)
    heads.eagle3(tmp_path / "b.gguf", layers=(1, 2, 9))
    both = [tmp_path / "a.gguf", tmp_path / "b.gguf"]
    found, why = draft_heads.find(target, both)
    assert found is None
    assert why.startswith("a.gguf")
    good = heads.eagle3(tmp_path / "c.gguf")
    found, why = draft_heads.find(target, [*both, good, target])
    assert found is not None
    assert (found.path, why) == (str(good), "")


def _cut(path: Path) -> None:
    heads.eagle3(path)
    path.write_bytes(path.read_bytes()[:-4096])


def _alien(path: Path) -> None:
    writer, _ = tiny.begun(path, "eagle3", extra_tokens=7)
    _finish(writer, path)


def _finish(writer: gguf.GGUFWriter, path: Path) -> None:
    width = heads.WIDTH
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_array("eagle3.target_layers", [1, 2, 3])
    writer.add_uint32("eagle3.target_hidden_size", width)
    writer.add_tensor("fc.weight", np.zeros((width, 3 * width), np.float32))
    tiny.ended(writer, path)


def _dflash(path: Path) -> None:
    writer, _ = tiny.begun(path, "dflash")
    writer.add_tensor("fc.weight", np.zeros((32, 32), np.float32))
    tiny.ended(writer, path)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "states": (lambda path: heads.eagle3(path, hidden=32), "states of 32 numbers, this one of 64"),
    "a layer too far": (lambda path: heads.eagle3(path, layers=(1, 2, 4)), "this target has 4"),
    "the first layer": (lambda path: heads.eagle3(path, layers=(0, 1, 2)), "fed by layers 0, 1, 2"),
    "four layers": (lambda path: heads.eagle3(path, layers=(1, 1, 2, 3)), "1, 1, 2, 3"),
    "a word too far": (
        lambda path: heads.eagle3(path, words=np.array([1, 2, 100_000])),
        "It drafts token 100000",
    ),
    "a word below": (lambda path: heads.eagle3(path, words=np.array([-1, 2])), "token -1"),
    "a vocabulary beyond": (_alien, "the target"),
    "cut off": (_cut, "cannot be used"),
    "DFlash": (_dflash, "DFlash draft head, which LocalSpec does not run yet"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused_with_the_first_difference(
    what: str, target: Path, tmp_path: Path
) -> None:
    """In one sentence that names the file; nothing native has seen it."""
    path = tmp_path / "head.gguf"
    make, said = WRONG[what]
    make(path)
    with pytest.raises((BadGGUF, BadPair), match=r"head\.gguf") as refused:
        draft_heads.check(header.read(target), path)
    assert said in refused.value.message
    found, why = draft_heads.find(target, [path])
    assert found is None
    assert why == refused.value.message or what == "cut off"


def test_another_models_head_is_told_by_its_words(tmp_path: Path) -> None:
    """Two models of one shape differ by their vocabularies."""
    target = architectures.build(tmp_path / "target.gguf", "gemma3")
    head = heads.eagle3(tmp_path / "head.gguf")
    with pytest.raises(BadPair, match="tokenizers differ"):
        draft_heads.check(header.read(target), head)


def test_prediction_layers_inside_are_found(tmp_path: Path) -> None:
    """Those that llama.cpp computes; a plain model has none, and nothing is said of it."""
    for build in (heads.glm4moe, heads.qwen35, heads.mimo2):
        found, why = draft_heads.find(build(tmp_path / "a.gguf"), [])
        assert found is not None
        assert (found.kind, found.path, why) == ("mtp", "", "")
        assert "first" not in found.sentence
    assert draft_heads.find(heads.qwen2(tmp_path / "b.gguf"), []) == (None, "")


def test_of_several_prediction_layers_the_first_drafts_or_why_none_does(tmp_path: Path) -> None:
    """A graph that wants a single layer would end the process."""
    found, _ = draft_heads.find(heads.mimo2(tmp_path / "a.gguf", layers=3), [])
    assert found is not None
    assert "of 3 the first" in found.sentence
    two = _with_number(heads.qwen35(tmp_path / "b.gguf"), "qwen35.nextn_predict_layers", 2)
    found, why = draft_heads.find(two, [])
    assert found is None
    assert "It has 2 prediction layers" in why


def _with_number(path: Path, key: str, value: int) -> Path:
    """The file with another value of a key, and a block more, so that it is counted right."""
    reader = gguf.GGUFReader(path, "r+")
    reader.fields[key].parts[-1][0] = value
    reader.fields[f"{key.partition('.')[0]}.block_count"].parts[-1][0] += value - 1
    del reader
    return path


def test_to_name_a_head_it_is_not_completed(tmp_path: Path) -> None:
    """A list of models makes no files; what is loaded is whole."""
    model = tiny.build(tmp_path / "model.gguf", layers=small_heads.LAYERS)
    head = small_heads.write(tmp_path / "head.gguf", model)
    registry = Registry(tmp_path)
    told, _ = registry.head(model, complete=False)
    assert told is not None
    assert told.path == str(head)
    whole, _ = registry.head(model)
    assert whole is not None
    assert whole.path != told.path
    assert whole.layers == told.layers


def test_no_file_ends_the_search(target: Path, tmp_path: Path) -> None:
    """Damaged and irregular files beside a model, and one that vanishes meanwhile."""
    for name, data in (("a", b""), ("b", b"GGUF"), ("c", b"GGUF" + bytes(60)), ("d", b"text" * 99)):
        (tmp_path / f"{name}.gguf").write_bytes(data)
    (tmp_path / "e.gguf").mkdir()
    (tmp_path / "f.gguf").symlink_to("nowhere")
    assert draft_heads.find(target, sorted(tmp_path.iterdir())) == (None, "")


def test_a_head_of_another_model_here_is_no_fault(target: Path, tmp_path: Path) -> None:
    """Each model is told of what was made for nobody, and of its own."""
    mine, other = tmp_path / "mine.gguf", heads.glm4moe(tmp_path / "other.gguf")
    mine.write_bytes(target.read_bytes())
    registry = Registry(tmp_path)
    heads.eagle3(tmp_path / "head.gguf")
    assert registry.head(mine)[0] is not None
    wide = architectures.build(tmp_path / "third.gguf", "gemma3")
    assert registry.head(wide) == (None, "")
    found, why = registry.head(other)
    assert found is not None
    assert why == ""
