"""Rules for the keys of a GGUF: llama.cpp may refuse a file that passes, but does not abort.

Each rule stands for an assertion or an out-of-range access of the native loader that a file can
cause. Faults that the loader refuses cleanly (an unknown architecture, a missing tensor) are left
to the loader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from localspec.catalog import architecture_rules
from localspec.catalog.keys import number, numbers
from localspec.catalog.reader import FLOAT32, INT32, STRING, Array, Parsed, refuse

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
MAX_TOKEN_BYTES = 4096
"""Limit of one token's text: runs of blanks and dashes in real vocabularies have some hundred
bytes. The texts of an answer, and a template's bos_token, can be many times as long as a token."""
MAX_ARCHITECTURE_BYTES = 64
NOT_WEIGHTS = {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}  # tables and intermediates
_LAYER = re.compile(r"blk\.(\d{1,4})\.")
_VECTOR = re.compile(r"norm\.weight$|\.bias$")
_MATRIX = re.compile(
    r"(^|\.)(token_embd|output|attn_(q|k|v|qkv|output)|ffn_(gate|up|down)(_exps|_shexp)?)\.weight$"
)
_SPELLS_BY_BYTES = {"llama", "t5"}  # SentencePiece: BPE and unigram
_BYTE_TOKEN = 6  # LLAMA_TOKEN_TYPE_BYTE
_BYTE_TEXT = re.compile(rb"<0x[0-9A-F]{2}>")
NOT_MODELS = {
    "adapter": "a LoRA adapter",
    "mmproj": "a vision projector",
    "imatrix": "an importance matrix",
    "vocab": "a vocabulary without weights",
}

NOT_ARCHITECTURES = {
    "clip": "a projector for images or sound (mmproj)",
    "mmproj": "a projector for images or sound (mmproj)",
    **dict.fromkeys(
        ("gemma4-assistant", "gemma4_assistant", "gemma4_mtp"),
        "an assistant that drafts for a Gemma 4",
    ),
    "eagle3": "an EAGLE-3 draft head for another model",
    "dflash": "a DFlash draft head for another model",
    "dspark": "a DSpark draft head for another model",
    "wavtokenizer-dec": "a decoder of sound",
}
"""Architectures of files that are no language model on their own."""


def check(parsed: Parsed) -> None:
    """Raise BadGGUF with the first rule that `parsed` breaks."""
    for rule in _RULES:
        rule(parsed)


def check_head(parsed: Parsed) -> None:
    """Raise BadGGUF with the first rule that a draft head breaks, which need be no whole model."""
    for rule in _RULES:
        if rule not in {_is_one_whole_model, has_layers_of_its_own}:
            rule(parsed)


def _is_one_whole_model(parsed: Parsed) -> None:
    architecture = parsed.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        refuse("It has no general.architecture, so it is not a model.")
    if len(architecture.encode()) > MAX_ARCHITECTURE_BYTES:
        refuse(f"Its general.architecture has {len(architecture)} characters, which no name has.")
    kind = parsed.metadata.get("general.type")
    if isinstance(kind, str) and kind in NOT_MODELS:
        refuse(f"It is {NOT_MODELS[kind]}, not a model.")
    if architecture in NOT_ARCHITECTURES:
        refuse(f"It is {NOT_ARCHITECTURES[architecture]}, not a model.")
    parts = parsed.metadata.get("split.count", 0)
    if not isinstance(parts, int) or parts > 1:
        refuse(
            f"It is one part of a model that was split into {parts} files.",
            "Join them: localspec models import FILE, the first part, the others beside it.",
        )
    if not parsed.tensors:
        refuse("It holds no tensors.")


def _has_sane_sizes(parsed: Parsed) -> None:
    layers = number(parsed, "block_count")
    if not 1 <= layers <= MAX_LAYERS:
        refuse(f"It claims {layers} layers; 1 to {MAX_LAYERS} are possible.")
    if number(parsed, "nextn_predict_layers", 0) > layers:
        refuse("It claims more prediction layers than it has layers.")
    width = number(parsed, "embedding_length")
    if number(parsed, "context_length") < 1 or width < 1:
        refuse("Its context or its embedding has no length.")
    heads = numbers(parsed, "attention.head_count", 0)
    if max(heads) > width:
        refuse(f"It claims {max(heads)} attention heads for {width} values.")
    for count, groups in zip(heads, numbers(parsed, "attention.head_count_kv", 0), strict=True):
        if groups > count or (groups and count % groups):
            refuse(f"{count} attention heads cannot share {groups} key heads.")
    numbers(parsed, "feed_forward_length", 0)
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        number(parsed, name, 0)


def _has_known_rope_scaling(parsed: Parsed) -> None:
    key = f"{parsed.metadata['general.architecture']}.rope.scaling.type"
    value = parsed.metadata.get(key, "linear")
    if value not in ROPE_SCALINGS:
        refuse(f"Key {key} is none of {', '.join(ROPE_SCALINGS)}.")


def _has_consistent_experts(parsed: Parsed) -> None:
    count = number(parsed, "expert_count", 0)
    used = max(numbers(parsed, "expert_used_count", 0))
    groups = number(parsed, "expert_group_count", 0)
    if str(parsed.metadata["general.architecture"]).startswith("hunyuan") and count <= 1:
        return  # the loader corrects these values itself
    if count > MAX_EXPERTS or used > count or (count and not used):
        refuse(f"It claims to use {used} of {count} experts.")
    if groups and groups >= count:
        refuse(f"It claims {groups} groups of {count} experts.")
    if groups > 1:
        chosen = number(parsed, "expert_group_used_count", 0)
        if count % groups or not 0 < chosen < groups:
            refuse(f"It claims to use {chosen} of {groups} groups of {count} experts.")


def _has_usable_epsilons(parsed: Parsed) -> None:
    for key, value in parsed.metadata.items():
        if key.endswith("epsilon") and not (isinstance(value, float) and 0 <= value < math.inf):
            refuse(f"Key {key} is {value}, which no norm can use.")


def _has_computable_tensors(parsed: Parsed) -> None:
    for tensor in parsed.tensors:
        if _VECTOR.search(tensor.name) and tensor.type.name != "F32":
            refuse(f"Tensor {tensor.name} is {tensor.type.name}; norms and biases must be F32.")
        if _MATRIX.search(tensor.name) and tensor.type.name in NOT_WEIGHTS:
            refuse(f"Tensor {tensor.name} is {tensor.type.name}, which no matrix can be.")


def _array(parsed: Parsed, key: str, *types: int) -> Array | None:
    value: Any = parsed.metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, Array) or value.element_type not in types:
        refuse(f"Key {key} is not an array of the right type.")
    return value


def _has_a_vocabulary(parsed: Parsed) -> None:
    if not isinstance(parsed.metadata.get("tokenizer.ggml.model"), str):
        refuse("It names no tokenizer.")
    tokens = _array(parsed, "tokenizer.ggml.tokens", STRING)
    if tokens is None or not len(tokens):
        refuse("It has no vocabulary.")
    for key, types in (
        ("tokenizer.ggml.token_type", (INT32,)),
        ("tokenizer.ggml.scores", (FLOAT32, INT32)),
    ):
        beside = _array(parsed, key, *types)
        if beside is not None and len(beside) < len(tokens):
            refuse(f"Key {key} has {len(beside)} entries for {len(tokens)} tokens.")
    _array(parsed, "tokenizer.ggml.merges", STRING)
    # C strings end at the first NUL, and the loader asserts that no two tokens share their text.
    texts = tokens.strings()
    if (longest := max(map(len, texts))) > MAX_TOKEN_BYTES:
        refuse(f"A token of its vocabulary has {longest} bytes; {MAX_TOKEN_BYTES} are the most.")
    if b"\0" in b"".join(texts):
        texts = [text.partition(b"\0")[0] for text in texts]
    if b"" in texts:  # the loader gives them names, which others may have
        texts = [text or b"[EMPTY_%d]" % token for token, text in enumerate(texts)]
    if len({*texts}) != len(texts):
        refuse("Two tokens of its vocabulary have the same text.")


def _can_spell_any_text(parsed: Parsed) -> None:
    """Refuse a vocabulary of pieces that lacks bytes: native code could not spell unknown text."""
    if parsed.metadata["tokenizer.ggml.model"] not in _SPELLS_BY_BYTES:
        return
    tokens = _array(parsed, "tokenizer.ggml.tokens", STRING)
    kinds = _array(parsed, "tokenizer.ggml.token_type", INT32)
    texts = tokens.strings() if tokens else []
    for text, kind in zip(texts, kinds.numbers() if kinds else (), strict=False):
        if kind == _BYTE_TOKEN and not _BYTE_TEXT.fullmatch(text):
            refuse(f"A token of its vocabulary is said to be a byte, and is {text[:20]!r}.")
    known = set(texts)
    for byte in range(256):
        if parsed.metadata["tokenizer.ggml.model"] == "llama" and not (
            {b"<0x%02X>" % byte, bytes([byte])} & known
        ):
            refuse(f"Its vocabulary has no token for the byte {byte:#04x}.")


def has_layers_of_its_own(parsed: Parsed) -> None:
    """Refuse a file of prediction layers (MTP, NextN) alone: it has its target's architecture."""
    predicting = number(parsed, "nextn_predict_layers", 0)
    if predicting:
        first = number(parsed, "block_count") - predicting
        layers = (_LAYER.match(tensor.name) for tensor in parsed.tensors)
        if not any(found and int(found[1]) < first for found in layers):
            refuse("It is a draft head (MTP) for another model, not a model.")


def _writes_or_embeds(parsed: Parsed) -> None:
    architecture = parsed.metadata.get("general.architecture")
    pooled = parsed.metadata.get(f"{architecture}.pooling_type", 0)
    if parsed.metadata.get(f"{architecture}.attention.causal") is False and not pooled:
        refuse(
            "It reads in both directions and pools nothing: it writes no text, and vectors of "
            "single tokens are not served.",
            "Take a file whose pooling is cls, last, mean or rank.",
        )


_RULES: tuple[Callable[[Parsed], None], ...] = (
    _is_one_whole_model,
    _has_sane_sizes,
    has_layers_of_its_own,
    _has_known_rope_scaling,
    _has_consistent_experts,
    architecture_rules.check,
    _has_usable_epsilons,
    _has_computable_tensors,
    _has_a_vocabulary,
    _can_spell_any_text,
    _writes_or_embeds,
)
