"""A compact head that was completed computes what the whole one does, to the last bit.

llama.cpp's own EAGLE-3 context reads both files, on tiny models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_heads
import tiny
from laws.head_contexts import opened

from localspec.catalog.compact_heads import complete
from localspec.engine.llama.fed import FedContext
from localspec.engine.llama.library import ours
from localspec.types import Floats, Row

pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")


def computed(fed: FedContext, seed: int = 0) -> list[Floats]:
    """Everything that comes of some features and tokens: vectors, logits, and drafts behind."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((24, fed.inputs), np.float32)
    vectors = fed.fuse(features)
    tokens = random.integers(0, fed.n_vocab, 24).tolist()
    rows = [Row(token, at, 0, wants_logits=True) for at, token in enumerate(tokens)]
    found = [vectors]
    output = fed.decode(rows, vectors)
    found += [each.copy() for each in output]
    for depth in range(3):
        token = int(found[-2][-1].argmax())
        output = fed.decode([Row(token, 24 + depth, 0, wants_logits=True)], found[-1][-1:])
        found += [each.copy() for each in output]
    return found


@pytest.mark.parametrize("sentencepiece", [False, True])
def test_a_completed_head_decodes_like_the_whole_one(tmp_path: Path, sentencepiece: bool) -> None:
    """Encoder, layer, and logits over all of the target's tokens."""
    target = tiny.build(
        tmp_path / "target.gguf", layers=small_heads.LAYERS, sentencepiece=sentencepiece
    )
    whole = small_heads.whole(tmp_path / "whole.gguf", target)
    compact = small_heads.write(tmp_path / "compact.gguf", target)
    with opened(target, whole) as fed:
        wanted = computed(fed)
    with opened(target, complete(compact, target)) as fed:
        found = computed(fed)
    assert len(found) == len(wanted) > 3
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.array_equal(mine, theirs)
    known = np.isfinite(found[1][0])
    assert np.flatnonzero(known).tolist() == small_heads.words(target)
    assert found[1][:, known].std() > 0.1
