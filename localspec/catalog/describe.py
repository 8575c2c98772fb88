"""Describes a model file, for people and for `--json`, from its header alone."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from localspec.catalog.header import Header
from localspec.catalog.memory import kv_bytes
from localspec.errors import bounded

MAX_NAME_CHARS = 200
"""Characters of a model's name that are shown; strings in a header may have 16 MB."""

# A tensor belongs to the first group one of whose words its name contains.
_GROUPS = (
    ("embedding", ("token_embd", "position_embd")),
    ("norms, biases", ("_norm.", ".bias")),
    ("experts", ("_exps.", "_shexp.", "ffn_gate_inp")),
    ("attention", ("attn_", "ssm_")),
    ("feed-forward", ("ffn_",)),
    ("output", ("output.",)),
)


class TensorGroup(msgspec.Struct, frozen=True):
    """Tensors with one purpose; `types` maps each element type to its bytes."""

    name: str
    num_bytes: int
    types: dict[str, int]


class Memory(msgspec.Struct, frozen=True):
    """Bytes that one model takes: weights, and the KV cache of `context` tokens."""

    context: int
    weight_bytes: int
    kv_bytes: int


class Description(msgspec.Struct, frozen=True):
    """Facts about one model file. `bits_per_weight` is an average over all tensors."""

    file: str
    file_bytes: int
    name: str
    architecture: str
    parameters: int
    bits_per_weight: float
    layers: int
    context_length: int
    tokenizer: str
    vocabulary_size: int
    groups: list[TensorGroup]
    chat_template: str | None
    chat_template_sha256: str | None
    memory: Memory


def describe(header: Header, context: int, kv_type: str = "f16") -> Description:
    """The description of a model that would be loaded with `context` tokens."""
    template = header.chat_template
    return Description(
        file=header.file,
        file_bytes=header.file_bytes,
        name=bounded(header.text("general.name"), MAX_NAME_CHARS),
        architecture=header.architecture,
        parameters=header.parameters,
        bits_per_weight=round(8 * header.weight_bytes / header.parameters, 2),
        layers=header.layers,
        context_length=header.context_length,
        tokenizer=header.tokenizer,
        vocabulary_size=header.vocabulary_size,
        groups=_groups(header),
        chat_template=template,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if template else None,
        memory=Memory(context, header.weight_bytes, kv_bytes(header, context, kv_type)),
    )


def _groups(header: Header) -> list[TensorGroup]:
    types: dict[str, Counter[str]] = {}
    for tensor in header.tensors:
        types.setdefault(_group(tensor.name), Counter())[tensor.type.name] += tensor.num_bytes
    order = [name for name, _ in _GROUPS] + ["other"]
    return [
        TensorGroup(name, types[name].total(), dict(types[name].most_common()))
        for name in order
        if name in types
    ]


def _group(tensor_name: str) -> str:
    for group, words in _GROUPS:
        if any(word in tensor_name for word in words):
            return group
    return "other"
