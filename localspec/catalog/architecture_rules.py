"""Rules for single architectures, by which llama.cpp divides or which it asserts (`src/models/`).

Keys that the loader itself finds missing, and refuses, are left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from localspec.catalog.keys import key_of, number, numbers
from localspec.catalog.reader import Array, Parsed, refuse

_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


def _by_name(*rows: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """The second texts of `rows` by the names that their first texts list."""
    names = {name for listed, _ in rows for name in listed.split()}
    return {name: tuple(key for listed, key in rows if name in listed.split()) for name in names}


_USED = _by_name(
    ("olmo2 phimoe gemma2 gemma3 deepseek2-ocr", "attention.head_count"),
    ("bailingmoe2 grovemoe smallthinker llada-moe glm4moe", "expert_count"),
    ("bailingmoe2 grovemoe smallthinker llada-moe glm4moe", "expert_used_count"),
    ("qwen35moe qwen3next qwen4exp", "expert_used_count"),
)
"""Numbers of the first layer that must not be 0, which they are when they are missing."""

_NOT_ZERO = _by_name(
    ("mamba2 granitehybrid nemotron_h nemotron_h_moe falcon-h1", "ssm.group_count"),
    ("mamba2 granitehybrid nemotron_h nemotron_h_moe falcon-h1", "ssm.time_step_rank"),
    ("qwen35 qwen35moe qwen3next qwen4exp", "ssm.group_count"),
    ("qwen35 qwen35moe qwen3next qwen4exp plamo2", "ssm.time_step_rank"),
    ("rwkv6 rwkv6qwen2 rwkv7 arwkv7", "wkv.head_size"),
    ("grovemoe", "experts_per_group"),
    ("ernie4_5-moe", "interleave_moe_layer_step"),
    ("deepseek4", "attention.output_group_count"),
    ("minimax-m3", "attention.indexer.block_size"),
    ("nanbeige", "num_loops"),
    ("hrm_text", "hrm.layers_per_stack"),
    ("hrm_text", "hrm.h_cycles"),
    ("hrm_text", "hrm.l_cycles"),
    ("deepseek32 glm-dsa dots3note hy_v4", "attention.key_length_mla"),
    ("deepseek32 glm-dsa dots3note hy_v4", "attention.value_length_mla"),
)
"""Numbers that must not be 0; without them the loader has others, or refuses."""

_ONE_SIZE = _names(
    "afmoe bailingmoe2 bert bitnet bloom chatglm cohere2 command-r eurobert glm4 glm4moe gpt2 "
    "gptneox granitehybrid jais jina-bert-v2 jina-bert-v3 laguna lfm2 lfm2moe maple minimax-01 "
    "minimax-m2 minimax-m3 modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h "
    "nemotron_h_moe neo-bert nomic-bert nomic-bert-moe openelm phi2 phi3 phimoe qwen qwen35 "
    "qwen35moe qwen3next qwen4exp refact spark2_5 stablelm starcoder t5 t5encoder"
)
"""Architectures whose keys are as long as their values."""

_ONE_SIZE_ROTATED = _names(
    "apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek "
    "dots1 dream ernie4_5 ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa "
    "granitemoe graniteswitch grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 "
    "internlm2 jais2 llada llada-moe llama llama-embed llama4 maincoder mellum minicpm "
    "mistral3 olmo olmo2 olmoe orion paddleocr pangu-embedded plamo qwen2 qwen2moe qwen2vl "
    "qwen3 qwen3moe qwen3vl qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 talkie "
    "xverse"
)
"""Those in which RoPE rotates all of a key, too."""


def check(parsed: Parsed) -> None:
    """Raise BadGGUF with the first rule of its architecture that `parsed` breaks."""
    architecture = str(parsed.metadata["general.architecture"])
    for name in _USED.get(architecture, ()):
        if not numbers(parsed, name, 0)[0]:
            refuse(f"Key {key_of(parsed, name)} is missing or 0, which no {architecture} can have.")
    for name in _NOT_ZERO.get(architecture, ()):
        if not number(parsed, name, 1):
            refuse(f"Key {key_of(parsed, name)} is 0, which no {architecture} can have.")
    if architecture in _ONE_SIZE | _ONE_SIZE_ROTATED:
        _has_heads_of_one_size(parsed, rotated=architecture in _ONE_SIZE_ROTATED)
    for rule in _OWN.get(architecture, ()):
        rule(parsed)


def _has_heads_of_one_size(parsed: Parsed, *, rotated: bool) -> None:
    heads = numbers(parsed, "attention.head_count", 0)[0]
    windowed = (
        "attention.key_length_swa",
        "attention.value_length_swa",
        "rope.dimension_count_swa",
    )
    if not heads or any(key_of(parsed, name) in parsed.metadata for name in windowed):
        return  # llama.cpp takes no sizes, or others
    own = number(parsed, "embedding_length") // heads
    key = number(parsed, "attention.key_length", own)
    value = number(parsed, "attention.value_length", own)
    if key != value:
        refuse(f"Its keys have {key} values and its values {value}; they must be equal.")
    turned = number(parsed, "rope.dimension_count", key)
    if rotated and turned != key:
        refuse(f"RoPE rotates {turned} of the {key} values of its keys; it must rotate all.")


def _is(name: str, wanted: int, default: int | None = None) -> Callable[[Parsed], None]:
    """The rule that a number is `wanted`; `default` is the loader's, if it has one."""

    def rule(parsed: Parsed) -> None:
        found = number(parsed, name, wanted if default is None else default)
        if found != wanted:
            refuse(f"Key {key_of(parsed, name)} is {found}, where it must be {wanted}.")

    return rule


def _divides(whole: str, part: str) -> Callable[[Parsed], None]:
    """The rule that one number is a multiple of another."""

    def rule(parsed: Parsed) -> None:
        found, by = numbers(parsed, whole, 0)[0], number(parsed, part, 1)
        if found % max(by, 1):
            refuse(f"Its {whole} of {found} is not a multiple of its {part} of {by}.")

    return rule


def _has_interval(parsed: Parsed) -> None:
    given = key_of(parsed, "attention.recurrent_layers") in parsed.metadata
    if not given and not number(parsed, "full_attention_interval", 1):
        refuse(f"Key {key_of(parsed, 'full_attention_interval')} is 0.")


def _has_an_inner_size_of_two_widths(parsed: Parsed) -> None:
    width = number(parsed, "embedding_length")
    if (inner := number(parsed, "ssm.inner_size", 2 * width)) != 2 * width:
        refuse(f"Its ssm.inner_size is {inner}, which must be twice its width of {width}.")


def _has_states_of_one_size(parsed: Parsed) -> None:
    names = ("ssm.inner_size", "ssm.state_size", "ssm.time_step_rank")
    inner, state, heads = (number(parsed, name, 0) for name in names)
    if inner != state * heads:
        refuse(f"Its ssm.inner_size of {inner} is not that of {heads} states of {state}.")


def _has_unrotated_values(parsed: Parsed) -> None:
    heads = numbers(parsed, "attention.head_count", 0)[0]
    own = number(parsed, "embedding_length") // heads if heads else 0
    key = number(parsed, "attention.key_length", own) if heads else 0
    rotated = number(parsed, "rope.dimension_count", key) if heads else 0
    latent = number(parsed, "attention.key_length_mla", 0)
    if not (latent and number(parsed, "attention.value_length_mla", 0)):
        latent = key
    if latent <= rotated:
        refuse(f"RoPE rotates {rotated} of the {latent} values of its keys; it must leave some.")


def _has_a_large_indexer(parsed: Parsed) -> None:
    rotated = number(parsed, "rope.dimension_count", 0)
    if rotated > (length := number(parsed, "attention.indexer.key_length", rotated)):
        refuse(f"RoPE rotates {rotated} values, and its indexer's keys have {length}.")


def _has_a_falling_gate(parsed: Parsed) -> None:
    bound = parsed.metadata.get(key_of(parsed, "kda.gate_lower_bound"), -1.0)
    if parsed.metadata.get(key_of(parsed, "kda.safe_gate"), True) is False:
        refuse("Its kda.safe_gate is false, which llama.cpp does not compute.")
    if not (isinstance(bound, float) and bound < 0):
        refuse(f"Its kda.gate_lower_bound is {bound}, which must be below 0.")


def _has_few_ratios(parsed: Parsed) -> None:
    ratios = parsed.metadata.get(key_of(parsed, "attention.compress_ratios"))
    if isinstance(ratios, Array) and len(ratios) > _MAX_LAYERS:
        refuse(f"It has {len(ratios)} compress_ratios; {_MAX_LAYERS} are the most.")


def _has_pools(parsed: Parsed) -> None:
    pool = number(parsed, "attention.indexer.kpool", 2)
    if pool <= 1 or number(parsed, "attention.indexer.top_k", 0) % pool:
        refuse(f"Its indexer cannot pool {pool} keys.")


def _has_a_window(parsed: Parsed) -> None:
    if number(parsed, "shortconv.l_cache", 2) <= 1:
        refuse("The window of its convolutions reaches back over nothing.")


def _has_layers_for_its_cycles(parsed: Parsed) -> None:
    layers = number(parsed, "block_count") - number(parsed, "nextn_predict_layers", 0)
    stack, high, low = (
        number(parsed, f"hrm.{name}", 1) for name in ("layers_per_stack", "h_cycles", "l_cycles")
    )
    if layers != stack * high * (low + 1):
        refuse(f"Its {layers} layers are not those of its cycles.")


def _has_few_loops(parsed: Parsed) -> None:
    layers = number(parsed, "block_count") - number(parsed, "nextn_predict_layers", 0)
    if (loops := number(parsed, "num_loops", 1)) * layers > _MAX_LAYERS:
        refuse(f"It runs {layers} layers {loops} times; {_MAX_LAYERS} are the most.")


def _has_dense_layers_or_experts(parsed: Parsed) -> None:
    dense = number(parsed, "leading_dense_block_count", 0)
    used = numbers(parsed, "expert_used_count", 0)[0]
    if dense < number(parsed, "block_count") and not (used and number(parsed, "expert_count", 0)):
        refuse("It has layers of experts and uses no experts.")


def _has_sized_experts(parsed: Parsed) -> None:
    if not number(parsed, "expert_count", 0):
        return
    names = ("feed_forward_length", "expert_feed_forward_length", "expert_used_count")
    for inner, size, used in zip(*(numbers(parsed, name, 0) for name in names), strict=True):
        if inner and not size and not used:
            refuse("A layer of its experts uses none and gives them no size.")


def _has_dense_layers_of_its_width(parsed: Parsed) -> None:
    width = number(parsed, "embedding_length")
    for name in ("dense_2_feat_in", "dense_3_feat_out"):
        if number(parsed, name, 0) not in {0, width}:
            refuse(f"Key {key_of(parsed, name)} is not its width of {width}.")


def _rows(parsed: Parsed, tensor: str) -> Iterable[tuple[int, int]]:
    """Each layer that has this tensor, with the tensor's rows."""
    found = {each.name: each.shape for each in parsed.tensors}
    for layer in range(number(parsed, "block_count")):
        if shape := found.get(f"blk.{layer}.{tensor}"):
            yield layer, shape[1] if len(shape) > 1 else 1


def _has_gates_of_its_heads(parsed: Parsed) -> None:
    heads = numbers(parsed, "attention.head_count", 0)
    own = number(parsed, "embedding_length") // heads[0] if heads[0] else 0
    size = number(parsed, "attention.key_length", own)
    for layer, rows in _rows(parsed, "attn_gate.weight"):
        if rows not in {heads[layer], heads[layer] * size}:
            refuse(f"The gate of layer {layer} has {rows} rows for {heads[layer]} heads.")


def _has_inner_rows(parsed: Parsed) -> None:
    inner = numbers(parsed, "feed_forward_length", 0)[0]
    for layer, rows in _rows(parsed, "ffn_up.weight"):
        if rows not in {inner, 2 * inner}:
            refuse(f"Tensor blk.{layer}.ffn_up.weight has {rows} rows for {inner} values.")


def _mixes_over_time(parsed: Parsed) -> None:
    kinds = ("time_mix_lerp_w.weight", "time_mix_lerp_fused.weight")
    mixed = {layer for kind in kinds for layer, _ in _rows(parsed, kind)}
    if len(mixed) != number(parsed, "block_count"):
        refuse("A layer has neither a time_mix_lerp_w nor a time_mix_lerp_fused.")


_MAMBA = (_divides("ssm.inner_size", "ssm.time_step_rank"),)
_MAMBA2 = (*_MAMBA, _divides("ssm.inner_size", "ssm.group_count"))
_DELTA = (_has_states_of_one_size, _divides("ssm.time_step_rank", "ssm.group_count"))
_OWN: dict[str, tuple[Callable[[Parsed], None], ...]] = {
    **dict.fromkeys(("mamba2", "nemotron_h", "nemotron_h_moe", "falcon-h1"), _MAMBA2),
    "nemotron_h_moe": (*_MAMBA2, _has_sized_experts),
    "granitehybrid": (*_MAMBA2, _has_an_inner_size_of_two_widths),
    "jamba": (_has_an_inner_size_of_two_widths,),
    "plamo2": (*_MAMBA, _is("ssm.group_count", 0)),
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next"), (_has_interval, *_DELTA)),
    "qwen4exp": _DELTA,
    "minimax-01": (_has_interval,),
    "rwkv6": (_is("token_shift_count", 2), _mixes_over_time),
    "rwkv7": (_is("token_shift_count", 2),),
    **dict.fromkeys(("rwkv6qwen2", "arwkv7"), (_is("token_shift_count", 1, 2),)),
    **dict.fromkeys(("deepseek2", "mistral4", "hy_v4"), (_has_unrotated_values,)),
    **dict.fromkeys(("deepseek32", "glm-dsa", "dots3note"), (_has_a_large_indexer,)),
    "deepseek4": (
        _has_few_ratios,
        _is("hyper_connection.count", 4),
        _divides("attention.head_count", "attention.output_group_count"),
    ),
    "glm5-next": (_has_pools, _is("hyper_connection.count", 4), _is("rope.dimension_count", 0)),
    "bailingmoe3": (_has_a_falling_gate,),
    "hrm_text": (_has_layers_for_its_cycles,),
    "nanbeige": (_has_few_loops,),
    "lfm2": (_has_a_window,),
    "lfm2moe": (_has_a_window, _has_dense_layers_or_experts),
    "gemma-embedding": (_has_dense_layers_of_its_width,),
    "laguna": (_has_gates_of_its_heads,),
    "jina-bert-v2": (_has_inner_rows,),
}
