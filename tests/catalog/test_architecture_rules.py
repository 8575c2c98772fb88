"""Tests of the rules of single architectures: what llama.cpp divides by, and what it asserts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headers import changed, numbers

from localspec.catalog import reader, rules
from localspec.errors import BadGGUF


def renamed_to(path: Path, architecture: str) -> reader.Parsed:
    """The header of a tiny Llama under the name of another architecture."""
    data = path.read_bytes()
    parsed = reader.parse(data, len(data))
    values = {
        key.replace("llama.", f"{architecture}.", 1): value
        for key, value in parsed.metadata.items()
        if key.startswith("llama.")
    }
    return changed(parsed, general__architecture=architecture, **values)


EXPERTS = {"expert_count": 2, "expert_used_count": 1}
OF_ARCHITECTURES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("olmo2", {}, {"attention.head_count": None, "attention.head_count_kv": None}),
    ("gemma3", {}, {"attention.head_count": 0, "attention.head_count_kv": 0}),
    ("mamba2", {"ssm.group_count": 2, "ssm.inner_size": 8}, {"ssm.group_count": 0}),
    ("falcon-h1", {"ssm.group_count": 2, "ssm.inner_size": 8}, {"ssm.inner_size": 9}),
    ("granitehybrid", {"ssm.group_count": 1, "ssm.inner_size": 128}, {"ssm.inner_size": 64}),
    ("plamo2", {"ssm.group_count": 0}, {"ssm.group_count": 1}),
    ("qwen3next", EXPERTS, {"full_attention_interval": 0}),
    ("qwen35", {"attention.recurrent_layers": numbers(1, 0)}, {"ssm.group_count": 0}),
    ("qwen35", {"ssm.time_step_rank": 4}, {"ssm.group_count": 3}),
    ("qwen35", {"ssm.time_step_rank": 4}, {"ssm.inner_size": 9}),
    ("qwen35moe", EXPERTS, dict.fromkeys(EXPERTS)),
    ("rwkv7", {"wkv.head_size": 64}, {"wkv.head_size": 0}),
    ("rwkv7", {"token_shift_count": 2}, {"token_shift_count": 1}),
    ("arwkv7", {"token_shift_count": 1}, {"token_shift_count": None}),
    ("bailingmoe2", EXPERTS, dict.fromkeys(EXPERTS)),
    ("grovemoe", EXPERTS, {"experts_per_group": 0}),
    ("ernie4_5-moe", {}, {"interleave_moe_layer_step": 0}),
    ("bailingmoe3", {"kda.gate_lower_bound": -5.0}, {"kda.gate_lower_bound": 0.0}),
    ("bailingmoe3", {"kda.safe_gate": True}, {"kda.safe_gate": False}),
    ("deepseek4", {}, {"attention.compress_ratios": numbers(*[4] * 513)}),
    ("deepseek4", {"attention.output_group_count": 2}, {"attention.output_group_count": 0}),
    ("deepseek2", {"rope.dimension_count": 8}, {"rope.dimension_count": 16}),
    ("glm-dsa", {"rope.dimension_count": 8}, {"attention.indexer.key_length": 4}),
    ("hy_v4", {"rope.dimension_count": 8}, {"attention.key_length_mla": 0}),
    ("glm5-next", {"rope.dimension_count": 0}, {"attention.indexer.kpool": 1}),
    ("glm5-next", {"rope.dimension_count": 0}, {"hyper_connection.count": 2}),
    ("hrm_text", {"hrm.layers_per_stack": 1}, {"hrm.h_cycles": 2}),
    ("nanbeige", {"num_loops": 256}, {"num_loops": 257}),
    ("lfm2", {"shortconv.l_cache": 2}, {"shortconv.l_cache": 1}),
    ("lfm2moe", {"leading_dense_block_count": 2}, {"leading_dense_block_count": 1}),
    (
        "nemotron_h_moe",
        {"expert_count": 2, "expert_used_count": numbers(0, 1)}
        | {"expert_feed_forward_length": numbers(8, 0)},
        {"expert_feed_forward_length": None},
    ),
    ("gemma-embedding", {"dense_2_feat_in": 64}, {"dense_2_feat_in": 32}),
    ("jina-bert-v2", {"feed_forward_length": 64}, {"feed_forward_length": 65}),
    ("qwen3", {"attention.key_length": 16}, {"attention.key_length": 8}),
    ("qwen2", {"rope.dimension_count": 16}, {"rope.dimension_count": 8}),
    ("phi3", {"rope.dimension_count": 8}, {"attention.value_length": 8}),
]


@pytest.mark.parametrize(("architecture", "sound", "broken"), OF_ARCHITECTURES)
def test_what_an_architecture_divides_by_or_asserts_is_a_rule(
    tiny_path: Path, architecture: str, sound: dict[str, Any], broken: dict[str, Any]
) -> None:
    """The same keys may be sound in another architecture, so each has rules of its own."""
    parsed, prefix = renamed_to(tiny_path, architecture), f"{architecture}."
    good = changed(parsed, **{prefix + key: value for key, value in sound.items()})
    rules.check(good)
    with pytest.raises(BadGGUF):
        rules.check(changed(good, **{prefix + key: value for key, value in broken.items()}))


def test_a_gate_has_a_row_for_each_head_or_for_each_of_its_values(tiny_path: Path) -> None:
    """Laguna's gates have either width, and llama.cpp aborts on any other."""
    parsed = renamed_to(tiny_path, "laguna")
    gate = parsed.tensors[0]._replace(name="blk.1.attn_gate.weight")
    for rows in (4, 64):
        rules.check(parsed._replace(tensors=(*parsed.tensors, gate._replace(shape=(64, rows)))))
    with pytest.raises(BadGGUF, match="gate of layer 1 has 5 rows for 4 heads"):
        rules.check(parsed._replace(tensors=(*parsed.tensors, gate._replace(shape=(64, 5)))))


def test_an_architecture_may_need_one_of_two_tensors(tiny_path: Path) -> None:
    """RWKV 6 mixes tokens by one fused tensor or by five; llama.cpp asserts that it has either."""
    parsed = renamed_to(tiny_path, "rwkv6")
    with pytest.raises(BadGGUF, match="neither"):
        rules.check(parsed)
    first = parsed.tensors[0]
    mixes = (first._replace(name=f"blk.{at}.time_mix_lerp_fused.weight") for at in range(2))
    rules.check(parsed._replace(tensors=(*parsed.tensors, *mixes)))
