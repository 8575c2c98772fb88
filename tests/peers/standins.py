"""Builds tiny models in place of those that llama.cpp's tests download.

They have what those tests need: a BOS token with id 1, about one and a half letters to a token,
an encoder, tokens for infilling. The text of a random model has no meaning.
"""

from __future__ import annotations

import string
from pathlib import Path

import encoders
import gguf
import tiny

COMMON = (
    "he", "in", "er", "an", "re", "on", "at", "or", "es", "is", "it", "ed", "en", "te", "ou",
    "st", "ar", "al", "ing", "the", "um", "us", "or", "ur", "ui", "li", "la", "ra", "do", "qu",
    "▁t", "▁a", "▁s", "▁i", "▁o", "▁w", "▁c", "▁b", "▁d", "▁m", "▁the", "▁in", "▁an", "▁is",
)  # fmt: skip
"""Tokens of several letters; earlier ones are merged first."""
ENDS = ("<unk>", "<s>", "</s>")
FILLING = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
TRAINED_CONTEXT = 8192


def writer_of(path: Path, *, specials: tuple[str, ...] = ()) -> None:
    """Writes a Llama that never generates an end token."""
    pieces = dict.fromkeys((
        *ENDS, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *COMMON, *string.printable[:94],
        *tiny.SPECIALS, *specials,
    ))  # fmt: skip
    vocabulary = [*pieces]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(TRAINED_CONTEXT)
    writer.add_token_list(vocabulary)
    writer.add_token_types([*map(_kind, vocabulary)])
    writer.add_tokenizer_model("llama")
    writer.add_token_scores([-float(token) for token in range(len(vocabulary))])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(tiny.TEMPLATE)
    halves = (f"<0x{byte:02X}>" for byte in range(256))  # whole characters alone: no broken ones
    quiet = (*ENDS, *halves, *tiny.SPECIALS, *specials)
    never = tuple(vocabulary.index(each) for each in quiet)
    tiny.weights(writer, len(vocabulary), never=never, sharpness=2.0)
    tiny.ended(writer, path)


def _kind(piece: str) -> gguf.TokenType:
    if piece == ENDS[0]:
        return gguf.TokenType.UNKNOWN
    if piece in ENDS or piece.startswith("<|"):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.BYTE if piece.startswith("<0x") else gguf.TokenType.NORMAL


def encoder(path: Path, pooling: str) -> None:
    """Writes an encoder with this pooling."""
    encoders.bert(path, gguf.PoolingType[pooling.upper()], places=512)


def build(folder: Path, kind: str, name: str, pooling: str) -> Path:
    """Writes a model of that kind to `name`.gguf in `folder` and returns the path."""
    path = folder / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind in {"encoder", "ranker"}:
        encoder(path, "rank" if kind == "ranker" else pooling or "mean")
    else:
        writer_of(path, specials=FILLING if kind == "infill" else ())
    return path
