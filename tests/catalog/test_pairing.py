"""Tests of whether two models can speculate together, and of the first reason why not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import tiny

from localspec.catalog import header, pairing
from localspec.catalog.header import Header
from localspec.catalog.reader import Array, Value
from localspec.catalog.registry import Resolved
from localspec.errors import BadPair


@pytest.fixture(scope="module")
def target(tiny_path: Path) -> Header:
    """The tiny target's header."""
    return header.read(tiny_path)


def having(base: Header, values: dict[str, Value]) -> Header:
    """The same header with other metadata."""
    return Header(
        base.file, base.version, {**base.metadata, **values}, base.tensors, base.file_bytes
    )


def vocabulary(*texts: bytes, types: list[int] | None = None) -> dict[str, Value]:
    """Metadata of a vocabulary."""
    packed = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    kinds = types or [1] * len(texts)
    return {
        "tokenizer.ggml.tokens": Array(8, len(texts), packed),
        "tokenizer.ggml.token_type": Array(5, len(kinds), struct.pack(f"<{len(kinds)}i", *kinds)),
    }


def test_a_model_pairs_with_one_of_its_family(tmp_path: Path, target: Header) -> None:
    """Same tokens, other weights and layers: they can speculate, over the whole vocabulary."""
    draft = header.read(tiny.build(tmp_path / "draft.gguf", seed=1, layers=1))
    verdict = pairing.check(target, draft)
    assert verdict == pairing.Pairing(True, "", 262)
    verdict.demand()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"tokenizer.ggml.model": "llama"}, 'tokenizers differ: "gpt2" and "llama"'),
        ({"tokenizer.ggml.bos_token_id": 7}, r"begins with token 259 in the target .* 7 .*BOS"),
        ({"tokenizer.ggml.eos_token_id": 7}, r"ends with token 261 in the target .* 7 .*EOS"),
    ],
)
def test_the_first_difference_is_a_sentence(
    target: Header, values: dict[str, Any], says: str
) -> None:
    """Tokenizer kind, BOS and EOS are compared and named."""
    verdict = pairing.check(target, having(target, values))
    assert (verdict.can_speculate, verdict.by_text, verdict.shared_tokens) == (True, True, 0)
    verdict.demand()
    with pytest.raises(BadPair, match=says):
        verdict.demand_same_tokens()


@pytest.mark.parametrize(
    "values",
    [
        {"tokenizer.ggml.model": "none"},
        {"general.architecture": "bert", "tokenizer.ggml.model": "bert"},
        {"general.architecture": "nomic-bert", "tokenizer.ggml.model": "bert"},
        {"llama.attention.causal": False, "tokenizer.ggml.bos_token_id": 7},
    ],
)
def test_what_writes_no_text_drafts_for_no_other_tokenizer(
    target: Header, values: dict[str, Any]
) -> None:
    """A file without a tokenizer, and encoders."""
    for verdict in (
        pairing.check(target, having(target, values)),
        pairing.check(having(target, values), target),
    ):
        assert not verdict.can_speculate
        with pytest.raises(BadPair, match="cannot propose"):
            verdict.demand()


@pytest.mark.parametrize("place", [0, 2, 40, 62])
def test_the_first_token_that_differs_is_shown(target: Header, place: int) -> None:
    """One different id is found anywhere, the last included."""
    words = [b"word %d" % index for index in range(64)]
    other = [*words[:place], b"x", *words[place + 1 : -1], b"y"]
    verdict = pairing.check(having(target, vocabulary(*words)), having(target, vocabulary(*other)))
    assert verdict.difference == (
        f"Token {place} differs: 'word {place}' in the target, 'x' in the draft."
    )


def test_a_real_token_that_only_one_knows_is_another_tokenizer(
    tmp_path: Path, target: Header
) -> None:
    """A draft has no id for further tokens of the target, so the two share no ids."""
    longer = header.read(tiny.build(tmp_path / "longer.gguf", extra_tokens=2))
    for verdict, owner in (
        (pairing.check(target, longer), "draft"),
        (pairing.check(longer, target), "target"),
    ):
        assert verdict.by_text
        assert "token 262, '<|extra_0|>', is only in the " + owner in verdict.difference


@pytest.mark.parametrize(
    "padding",
    [
        vocabulary(b"a", b"b", b"[PAD2]", b"[PAD3]"),
        vocabulary(b"a", b"b", b"<unused_1>", b"<|reserved_special_token_9|>"),
        vocabulary(b"a", b"b", b"what", b"ever", types=[1, 1, 5, 5]),
    ],
)
def test_padding_is_no_difference_but_is_not_shared(
    target: Header, padding: dict[str, Value]
) -> None:
    """Families pad their vocabularies differently; ids of padding are never proposed."""
    short, long = having(target, vocabulary(b"a", b"b")), having(target, padding)
    assert pairing.check(short, long) == pairing.Pairing(True, "", 2)
    assert pairing.check(long, short) == pairing.Pairing(True, "", 2)


@pytest.mark.real
def test_the_real_pair_can_speculate(real_pair: Resolved) -> None:
    """The default target and the draft that was built for it share every token."""
    assert real_pair.draft_path is not None
    target, draft = header.read(real_pair.target_path), header.read(real_pair.draft_path)
    assert pairing.check(target, draft) == pairing.Pairing(True, "", 151_936)
    assert (target.layers, target.context_length) == (28, 32_768)
    matrices = {t.type.name for t in draft.tensors if len(t.shape) > 1}
    assert matrices == {"Q4_0"}
