"""A vocabulary of pieces can spell any text, or its file is refused before native code aborts."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from gguf_surgery import INT32, STRING, apart, array, text
from hypothesis import given
from hypothesis import strategies as st
from tiny import build

from localspec.catalog import header
from localspec.errors import BadGGUF

TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
BYTE = 6


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a SentencePiece vocabulary."""
    return build(tmp_path_factory.mktemp("sound") / "pieces.gguf", sentencepiece=True)


@given(st.integers(0, 255), st.sampled_from(["gone", "lower case", "itself"]))
def test_each_byte_has_a_token(sound: Path, byte: int, instead: str) -> None:
    """By its number, as `<0x41>`, or as the byte itself: llama.cpp looks for no other."""
    file = apart(sound)
    words = {"gone": b"of another kind", "lower case": b"<0x%02x>" % byte, "itself": bytes([byte])}
    old = text(b"<0x%02X>" % byte)
    taken = [text(words[instead]) if token == old else token for token in file.values(TOKENS)]
    kinds = [
        struct.pack("<i", 1) if token == old else kind
        for token, kind in zip(file.values(TOKENS), file.values(TYPES), strict=True)
    ]
    file.set(TOKENS, array(STRING, taken))
    file.set(TYPES, array(INT32, kinds))
    spoilt = sound.with_name("spoilt.gguf")
    spoilt.write_bytes(file.bytes())
    known = {token[8:] for token in taken}
    if {b"<0x%02X>" % byte, bytes([byte])} & known and len(set(taken)) == len(taken):
        header.read(spoilt)
    else:
        with pytest.raises(BadGGUF, match="vocabulary"):
            header.read(spoilt)


@given(st.integers(0, 400))
def test_what_is_said_to_be_a_byte_is_written_as_one(sound: Path, place: int) -> None:
    """llama.cpp reads its number from the third letter on, and aborts where there is none."""
    file = apart(sound)
    kinds, tokens = file.values(TYPES), file.values(TOKENS)
    place %= len(kinds)
    kinds[place] = struct.pack("<i", BYTE)
    file.set(TYPES, array(INT32, kinds))
    spoilt = sound.with_name("spoilt.gguf")
    spoilt.write_bytes(file.bytes())
    if tokens[place][8:].startswith(b"<0x"):
        header.read(spoilt)
    else:
        with pytest.raises(BadGGUF, match="said to be a byte"):
            header.read(spoilt)


def test_a_byte_level_vocabulary_under_another_name_is_refused(tmp_path: Path) -> None:
    """A file of BPE that claims to hold pieces ended its worker while it was loaded."""
    file = apart(build(tmp_path / "bpe.gguf"))
    header.read(tmp_path / "bpe.gguf")
    file.set("tokenizer.ggml.model", (STRING, text("llama")))
    (tmp_path / "spoilt.gguf").write_bytes(file.bytes())
    with pytest.raises(BadGGUF, match="no token for the byte"):
        header.read(tmp_path / "spoilt.gguf")
