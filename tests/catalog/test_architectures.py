"""Architectures of the catalog, by tiny files of them: gate, loader, template, memory, drafts."""

from __future__ import annotations

from pathlib import Path

import architectures
import pytest
import recurrent
import tiny

from localspec.catalog import entries, header, memory, pairing
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.types import Row

WITHOUT = {"qwen4exp"}
"""Architectures without a tiny file here."""


def built(path: Path, architecture: str) -> Path:
    """A tiny file of this architecture."""
    if architecture == "lfm2":
        return recurrent.lfm2(path)
    return architectures.build(path, architecture)


def test_what_the_catalog_names_is_built_here_or_named_as_missing() -> None:
    """Every architecture in the catalog has a tiny file here or is listed as missing."""
    named = {each for family in entries.families() for each in family.architectures}
    assert named == {*architectures.KINDS, "lfm2", *WITHOUT}


@pytest.mark.parametrize("architecture", sorted({*architectures.KINDS, "lfm2"}))
def test_a_file_of_it_is_read_loaded_and_drafted_for_as_the_catalog_says(
    architecture: str, tmp_path: Path
) -> None:
    """Its file passes the header checks, computes, has its template, and rolls back as stated."""
    path = built(tmp_path / "m.gguf", architecture)
    found = header.read(path)
    assert found.architecture == architecture
    assert found.chat_template == tiny.TEMPLATE
    outline = memory.outline(found)
    assert outline.input_bytes + sum(outline.device_bytes) >= found.weight_bytes
    model = Model.load(path, Placement(gpu_layers=0, threads=1))
    context = Context.open(
        model,
        Placement(gpu_layers=0, threads=1),
        slots=1,
        context=256,
        rows=16,
        cells=256,
        snapshots=2,
    )
    logits = context.decode([Row(token, at, 0, True) for at, token in enumerate((5, 9, 2))]).logits
    assert logits.shape == (3, found.vocabulary_size)
    assert abs(logits).max() < 1e6
    state = any(family.state for family in _families(architecture))
    context.truncate(0, 0)
    context.find_rollback()
    assert context.rollback == ("restore" if state else "trim")  # required of a draft model
    assert model.has_state == state == any(outline.state_values)
    assert context.snapshots == (2 if outline.snaps else 0)
    held = [each.bytes for each in context.buffers if each.what == "KV"]
    rounding = len(held) * (1 << 20) / 100  # the log gives hundredths of a MiB
    assert sum(held) == pytest.approx(outline.kv_bytes(256, "f16"), abs=rounding)
    assert sum(held) > 0
    states = sum(each.bytes for each in context.buffers if each.what == "RS")
    assert states <= 1.1 * outline.state_bytes(1) + (1 << 20)
    context.close()
    model.close()
    twin = header.read(built(tmp_path / "twin.gguf", architecture))
    assert pairing.check(found, twin).can_speculate


def _families(architecture: str) -> list[entries.Family]:
    return [family for family in entries.families() if family.architectures[0] == architecture] or [
        family for family in entries.families() if architecture in family.architectures
    ]
