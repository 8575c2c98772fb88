"""Computes the memory that a model needs from its header alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.catalog.header import Header

CELL_STEP = 256
"""llama.cpp rounds a cache's cells up to a multiple of this."""

BYTES_PER_VALUE = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}

_BLOCK = re.compile(r"blk\.(\d+)\.")
_STATE = re.compile(r"blk\.(\d+)\.(?:ssm_|shortconv\.|time_mix_)")
_KEYS = re.compile(r"blk\.(\d+)\.attn_(?:k|kv_\w+)\.")
"""Names of tensors of recurrent layers, and of layers with a KV cache."""
EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.")
"""Names of tensors that hold all experts of a layer; shared experts are named otherwise."""
SNAPSHOTS = frozenset(
    {
        *("bailingmoe3", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"),
        *("qwen35", "qwen35moe", "qwen4exp"),
    }
)
"""Architectures whose forwards can leave several states (`llm_arch_supports_rs_rollback`)."""
LATENT = frozenset(
    {
        *("bailingmoe3", "deepseek2", "deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4"),
        *("kimi-k3", "kimi-linear", "mistral4"),
    }
)
"""Architectures that may cache latent keys and no values (MLA)."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts that decide how much memory a model takes, and where.

    Blocks are the units that llama.cpp places: the layers in order, then the output.
    `device_bytes` are a block's bytes on a GPU. `host_bytes` are its bytes on the CPU, where the
    file's copy of repacked weights is released (`llama/mapping.py`). `input_bytes` are always on
    the CPU. `kv_values` are the KV values of one token by layer. `state_values` are the values of
    each layer's recurrent state per session, at any length; empty without recurrent layers.
    `snaps` tells that llama.cpp can keep the states before the last rows of a forward. A model that
    `embeds` has no KV and no logits if its attention looks in both directions. `gated` tells
    whether feed-forward layers multiply two inner vectors. `expert_bytes` are each block's bytes of
    experts, empty without experts; a token uses the share `expert_share` of them. `ropes` is 2
    where the model has other RoPE factors for long contexts.
    """

    name: str
    input_bytes: int
    device_bytes: tuple[int, ...]
    host_bytes: tuple[int, ...]
    kv_values: tuple[int, ...]
    heads: int
    width: int
    feed_forward: int
    vocabulary: int
    context_length: int
    state_values: tuple[int, ...] = ()
    embeds: bool = False
    gated: bool = True
    expert_bytes: tuple[int, ...] = ()
    expert_share: float = 1.0
    ropes: int = 1
    snaps: bool = False

    @property
    def blocks(self) -> int:
        """The number of blocks: layers and the output."""
        return len(self.device_bytes)

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return any(self.expert_bytes)

    def apart(self, experts: int, first: int) -> range:
        """The blocks on GPUs whose experts are on the CPU; `first` is the first block on a GPU."""
        return range(first, min(first + experts, self.blocks))

    def experts_bytes(self, blocks: range) -> int:
        """Bytes of the experts in these blocks."""
        return sum(self.expert_bytes[blocks.start : blocks.stop])

    def kv_bytes(self, cells: int, kv_type: str, first: int = 0, end: int | None = None) -> int:
        """Bytes of the KV cache of blocks `first` to `end`, exclusive."""
        values = sum(self.kv_values[first:end])
        return int(rounded(cells) * values * BYTES_PER_VALUE[kv_type])

    def state_bytes(self, sessions: int, first: int = 0, end: int | None = None) -> int:
        """Bytes of the states of `sessions` sessions in blocks `first` to `end`, exclusive."""
        return 4 * sessions * sum(self.state_values[first:end])

    def attention_bytes(self, rows: int, cells: int, *, flash: bool, host: bool = False) -> int:
        """Scratch bytes that llama.cpp reserves for a forward of `rows` rows over `cells` cells.

        On the host, flash attention's mask does not share memory with the feed-forward vectors.
        """
        mask = cells * (2 if flash else 4 * self.heads + 4)
        inner = (12 if self.gated else 4) * self.feed_forward
        if host and flash:
            layers = mask + inner + 16 * self.width
        else:
            layers = max(mask + 22 * self.width, inner + 12 * self.width)
        return min(rows, max(cells, 1)) * layers

    def logits_bytes(self, rows: int) -> int:
        """Scratch bytes of the output for `rows` rows with logits."""
        return rows * 4 * (self.vocabulary + 2 * self.width)


def outline(header: Header, *, predicts: bool = False) -> Outline:
    """The facts about memory in a header.

    `predicts` tells that prediction layers are loaded too. Their KV never counts here, as it
    belongs to a context of their own (`head_memory.py`).
    """
    layers = header.layers
    trunk = layers - header.number("nextn_predict_layers")
    blocks, experts = [0] * (layers + 1), [0] * (layers + 1)
    input_bytes, tied = 0, True
    for tensor in header.tensors:
        place = _block(tensor.name, layers)
        if place is None:
            input_bytes += tensor.num_bytes
            continue
        if trunk <= place < layers and not predicts:
            continue
        tied = tied and tensor.name != "output.weight"
        blocks[place] += tensor.num_bytes
        experts[place] += tensor.num_bytes * bool(EXPERTS.search(tensor.name))
    shared = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    # On a GPU an output that shares the input's weights has a copy of its own.
    on_device = shared.num_bytes if tied and shared is not None else 0
    return Outline(
        name=header.file,
        input_bytes=input_bytes,
        device_bytes=(*blocks[:-1], blocks[-1] + on_device),
        host_bytes=tuple(blocks),
        kv_values=(*kv_values(header)[:trunk], *(0,) * (layers - trunk)),
        heads=max(header.per_layer("attention.head_count"), default=0),
        width=header.number("embedding_length"),
        feed_forward=max(header.per_layer("feed_forward_length"), default=0),
        vocabulary=header.vocabulary_size,
        context_length=header.context_length,
        state_values=_state_values(header),
        embeds=header.embeds,
        gated=_gated(header),
        expert_bytes=tuple(experts) if any(experts) else (),
        expert_share=_expert_share(header),
        ropes=1 + any("rope_factors_long" in tensor.name for tensor in header.tensors),
        snaps=header.architecture in SNAPSHOTS,
    )


def _block(name: str, layers: int) -> int | None:
    """The block that a tensor is part of; None for tensors of the input."""
    if found := _BLOCK.match(name):
        return min(int(found[1]), layers)
    return layers if name.startswith("output") else None


def _expert_share(header: Header) -> float:
    """The share of its experts that a token uses; 1 where the header does not say."""
    count = header.number("expert_count")
    used = max(header.per_layer("expert_used_count"), default=0)
    return used / count if 0 < used <= count else 1.0


def _gated(header: Header) -> bool:
    """Whether feed-forward layers have a gate, in a tensor of its own or as half of another."""
    inner = max(header.per_layer("feed_forward_length"), default=0)
    return any(
        "ffn_gate" in tensor.name or (".ffn_up." in tensor.name and tensor.shape[-1] > inner)
        for tensor in header.tensors
    )


def kv_values(header: Header) -> tuple[int, ...]:
    """KV values of a token by layer; an upper bound for layers with a sliding window.

    Recurrent layers without keys have none, whatever head counts the header gives. Encoders, which
    read each text in one forward, have none either.
    """
    if header.embeds and not header.number("attention.causal", 1):
        return (0,) * header.layers
    attends, states = _layers_with(header, _KEYS), _layers_with(header, _STATE)
    heads = header.per_layer("attention.head_count")
    named = f"{header.architecture}.attention.head_count_kv" in header.metadata
    groups = header.per_layer("attention.head_count_kv") if named else heads
    each, indexed = _head_values(header, heads[0]), _indexer_values(header)
    return tuple(
        (group_count * each + indexed * (group_count > 0))
        * (layer in attends or layer not in states)
        for layer, group_count in enumerate(groups)
    )


def _head_values(header: Header, heads: int) -> int:
    """Values of one head's key and value; `heads` are those of the first layer, as in llama.cpp."""
    own = header.number("embedding_length") // heads if heads else 0
    key = header.number("attention.key_length", own)
    sizes = ("attention.key_length_mla", "attention.value_length_mla")
    if header.architecture in LATENT and all(header.number(name) for name in sizes):
        return key  # the values are a part of it
    return key + header.number("attention.value_length", own)


def _indexer_values(header: Header) -> int:
    """Values of the key by which sparse attention chooses cells, with its gate and pool if any."""
    pools = 3 if header.number("attention.indexer.kpool") else 1
    return pools * header.number("attention.indexer.key_length")


def _state_values(header: Header) -> tuple[int, ...]:
    """Values of each layer's recurrent state (llama.cpp's `n_embd_r` and `n_embd_s`), in f32."""
    layers = _layers_with(header, _STATE)
    size = _state_size(header) if layers else 0
    return tuple(size * (layer in layers) for layer in range(header.layers))


def _state_size(header: Header) -> int:
    """Values of one layer's state: its convolution window and its accumulated state."""
    width, heads = header.number("embedding_length"), header.per_layer("attention.head_count")
    before = max(0, header.number("ssm.conv_kernel") - 1)
    if head_size := header.number("wkv.head_size"):
        return width * (header.number("token_shift_count", 2) + head_size)
    if window := header.number("shortconv.l_cache"):
        return width * (window - 1)
    if head_size := header.number("kda.head_dim"):
        return head_size * max(heads) * (3 * (before or 3) + head_size)
    inner, state = header.number("ssm.inner_size"), header.number("ssm.state_size")
    return before * (inner + 2 * header.number("ssm.group_count") * state) + state * inner


def _layers_with(header: Header, tensor: re.Pattern[str]) -> frozenset[int]:
    """The layers that have a tensor of this name."""
    found = (tensor.match(each.name) for each in header.tensors)
    return frozenset(int(match[1]) for match in found if match)


def rounded(cells: int) -> int:
    """The cells that llama.cpp allocates for `cells`."""
    return -(-cells // CELL_STEP) * CELL_STEP


def kv_bytes(header: Header, context: int, kv_type: str = "f16") -> int:
    """Bytes of the KV cache of `context` tokens, over all layers."""
    return int(rounded(context) * sum(outline(header).kv_values) * BYTES_PER_VALUE[kv_type])


def show_bytes(num_bytes: int) -> str:
    """A size for people: "1.12 GB", "360.7 MB", "12 kB", "5 B"."""
    for limit, unit, digits in ((10**9, "GB", 2), (10**6, "MB", 1), (10**3, "kB", 0)):
        if num_bytes >= limit:
            return f"{num_bytes / limit:.{digits}f} {unit}"
    return f"{num_bytes} B"
