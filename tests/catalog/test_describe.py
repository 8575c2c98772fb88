"""Tests of `models show`: sizes that add up, memory that agrees with llama.cpp."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import tiny

from localspec.catalog import describe, header, memory


def test_the_description_adds_up(tiny_path: Path) -> None:
    """Groups cover every byte of the weights; the template is identified by its SHA-256."""
    found = header.read(tiny_path)
    said = describe.describe(found, context=512)
    assert sum(group.num_bytes for group in said.groups) == found.weight_bytes
    assert [group.name for group in said.groups] == [
        "embedding",
        "norms, biases",
        "attention",
        "feed-forward",
        "output",
    ]
    assert said.groups[0].types == {"Q4_0": 262 * 64 // 32 * 18}
    assert said.chat_template_sha256 == hashlib.sha256(tiny.TEMPLATE.encode()).hexdigest()
    assert (said.architecture, said.layers, said.context_length) == ("llama", 2, 4096)
    assert said.memory.weight_bytes == found.weight_bytes


@pytest.mark.parametrize(
    ("kv_type", "per_value"), [("f16", 2), ("q8_0", 34 / 32), ("q4_0", 18 / 32)]
)
def test_kv_bytes_follow_heads_layers_and_element_type(
    tiny_path: Path, kv_type: str, per_value: float
) -> None:
    """Two layers of two key heads of 16 values, keys and values; cells rounded up to 256."""
    found = header.read(tiny_path)
    assert memory.kv_bytes(found, 512, kv_type) == 512 * 2 * 2 * (16 + 16) * per_value
    assert memory.kv_bytes(found, 500, kv_type) == memory.kv_bytes(found, 512, kv_type)


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(5, "5 B"), (12_000, "12 kB"), (360_662_912, "360.7 MB"), (1_117_320_768, "1.12 GB")],
)
def test_sizes_are_shown_as_people_say_them(num_bytes: int, shown: str) -> None:
    """Sizes are shown in decimal units, as disks and download pages count."""
    assert memory.show_bytes(num_bytes) == shown
