"""A draft of some of a model's layers: what is cut, what is counted anew, and whose it is."""

from __future__ import annotations

from pathlib import Path

import architectures
import gguf
import numpy as np
import pytest
import tiny

from localspec.catalog import header, pairing, prune
from localspec.catalog.reader import Array
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.errors import ConfigError, ModelError
from localspec.types import Floats, Row

LAYERS = 5


def _pruned(tmp_path: Path, target: Path, layers: list[int]) -> Path:
    made = tmp_path / f"{target.stem}-{'-'.join(map(str, layers))}.gguf"
    prune.write(target, layers, made)
    return made


def _logits(path: Path) -> Floats:
    model = Model.load(path)
    context = Context.open(model, slots=1, context=64, rows=16)
    rows = [Row(token, token, 0, wants_logits=True) for token in range(9)]
    found = np.array(context.decode(rows).logits)  # a copy: the context's memory goes with it
    context.close()
    model.close()
    return found


@pytest.mark.parametrize("layers", [[0], [0, 1, 2], [0, 4], [1, 3, 4]])
def test_a_pruned_model_is_its_targets_tensors(tmp_path: Path, layers: list[int]) -> None:
    """Layer j is the target's layer `layers[j]`, bit for bit, and all else is there."""
    target = tiny.build(tmp_path / "some.gguf", layers=LAYERS)
    made = _pruned(tmp_path, target, layers)
    ours, theirs = (gguf.GGUFReader(path) for path in (made, target))
    known = {tensor.name: tensor.data for tensor in theirs.tensors}
    for tensor in ours.tensors:
        name = tensor.name
        if name.startswith("blk."):
            _, place, rest = name.split(".", 2)
            name = f"blk.{layers[int(place)]}.{rest}"
        assert np.array_equal(tensor.data, known[name])
    assert len(ours.tensors) == len(theirs.tensors) - 9 * (LAYERS - len(layers))
    said = header.read(made)
    assert (said.layers, said.tokens()) == (len(layers), header.read(target).tokens())
    kept = said.metadata[prune.LAYERS]
    assert isinstance(kept, Array)
    assert list(kept.numbers()) == layers


def test_layers_that_do_nothing_are_not_missed(tmp_path: Path) -> None:
    """llama.cpp computes the same numbers without a layer whose outputs are all zero."""
    target = tiny.build(tmp_path / "some.gguf", layers=3)
    reader = gguf.GGUFReader(target, "r+")
    for tensor in reader.tensors:
        if tensor.name in {"blk.1.attn_output.weight", "blk.1.ffn_down.weight"}:
            tensor.data[:] = 0
    reader.data.flush()
    assert np.array_equal(_logits(_pruned(tmp_path, target, [0, 2])), _logits(target))
    assert not np.array_equal(_logits(_pruned(tmp_path, target, [0, 1])), _logits(target))


def test_lists_by_layer_are_cut_and_the_model_loads(tmp_path: Path) -> None:
    """Of every architecture that tiny models have: it is refused in a sentence, or it computes."""
    refused = list[str]()
    for name in architectures.KINDS:
        target = architectures.build(tmp_path / f"{name}.gguf", name)
        found = header.read(target)
        if reason := prune.refusal(found):
            assert reason.endswith(".")
            refused.append(name)
            with pytest.raises(ModelError, match="cannot be pruned"):
                prune.write(target, [0], tmp_path / "none.gguf")
            continue
        count = prune.trunk(found)
        made = _pruned(tmp_path, target, [*range(count - 2), count - 1])
        said = header.read(made)
        assert said.layers == count - 1
        for key, value in found.metadata.items():
            if isinstance(value, Array) and len(value) == found.layers and value.element_type != 8:
                cut = said.metadata[key]
                assert isinstance(cut, Array)
                assert cut.numbers() == tuple(np.delete(value.numbers(), count - 2)[: count - 1])
        assert np.isfinite(_logits(made)).all()
    assert 0 < len(refused) < len(architectures.KINDS)


@pytest.mark.parametrize(("layers", "kind"), [([0, 2, 3], "attention"), ([1, 2], "a state")])
def test_a_mixed_model_keeps_a_layer_of_each_memory(
    layers: list[int], kind: str, tmp_path: Path
) -> None:
    """Without one llama.cpp would end the process that loads it."""
    target = architectures.build(tmp_path / "some.gguf", "nemotron_h_moe")
    with pytest.raises(ModelError, match=f"None of them has {kind}"):
        prune.write(target, layers, tmp_path / "none.gguf")


def test_it_drafts_for_its_own_target_alone(tmp_path: Path) -> None:
    """For any quantization of it; another model's is refused in a sentence."""
    target = tiny.build(tmp_path / "some.gguf", layers=LAYERS)
    again = tiny.build(
        tmp_path / "fine.gguf", layers=LAYERS, quantization=gguf.GGMLQuantizationType.Q8_0
    )
    other = tiny.build(tmp_path / "other.gguf", layers=LAYERS, seed=3)
    reader = gguf.GGUFReader(other, "r+")
    norm = next(tensor for tensor in reader.tensors if tensor.name == "output_norm.weight")
    norm.data[0] = 1.5
    reader.data.flush()
    draft = header.read(_pruned(tmp_path, target, [0, 1]))
    for path in (target, again):
        assert pairing.check(header.read(path), draft).can_speculate
    verdict = pairing.check(header.read(other), draft)
    assert not verdict.can_speculate
    assert "layers of another model" in verdict.difference


@pytest.mark.parametrize(
    ("text", "layers"), [("0-2", [0, 1, 2]), ("0, 2-3", [0, 2, 3]), ("4", [4]), ("", None),
                         ("0-4", None), ("3,2", None), ("1,1", None), ("0-9", None), ("a", None)]
)  # fmt: skip
def test_a_list_of_layers(text: str, layers: list[int] | None) -> None:
    """It is read as people write it, or refused."""
    if layers is None:
        with pytest.raises(ConfigError):
            prune.listed(text, LAYERS)
    else:
        assert prune.listed(text, LAYERS) == layers
        assert prune.listed(prune.spoken(layers).removeprefix("layers "), LAYERS) == layers
