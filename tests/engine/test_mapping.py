"""Pages of a file that loading read do not stay resident."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.types import Row

SMAPS = Path("/proc/self/smaps")


def resident_bytes(file: Path) -> int:
    """Of the mapping of a file, in this process."""
    found, mine = 0, False
    for line in SMAPS.read_text().splitlines():
        if line.split(" ", 1)[0].count("-") == 1:
            mine = line.endswith(str(file))
        elif mine and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.skipif(not SMAPS.exists(), reason="Linux says how much of a mapping is resident")
def test_weights_are_not_in_memory_twice(tmp_path: Path) -> None:
    """Nothing of the file is resident after a load, and what is needed comes back."""
    file = tiny.build(tmp_path / "model.gguf", width=512, layers=4)
    model = Model.load(file)
    assert resident_bytes(file) < file.stat().st_size // 8
    context = Context.open(model, slots=1, context=64, rows=8)
    logits = context.decode([Row(5, 0, 0, wants_logits=True)]).logits
    assert logits.std() > 0
    assert resident_bytes(file) > 0
    context.close()
    model.close()
