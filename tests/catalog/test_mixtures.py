"""Plans for mixtures of experts on a GPU that is too small, by the bytes a token reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mixture
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.catalog import header, memory, placement, reading
from localspec.catalog.devices import Device, described
from localspec.catalog.memory import Outline
from localspec.catalog.parts import Layout
from localspec.catalog.plan import Plan, PlanRequest
from localspec.cli.main import cli
from localspec.config import Config, Engine, Placement

MIB = 1 << 20


def outlined(
    layers: int = 24, dense_mib: int = 20, experts_mib: int = 300, share: float = 1 / 16
) -> Outline:
    """A mixture of even layers."""
    experts = (experts_mib * MIB,) * layers + (0,)
    whole = (*(each + dense_mib * MIB for each in experts[:-1]), 150 * MIB)
    return Outline(
        name="mixture",
        input_bytes=100 * MIB,
        device_bytes=whole,
        host_bytes=whole,
        kv_values=(512,) * layers,
        heads=16,
        width=2048,
        feed_forward=768,
        vocabulary=150_000,
        context_length=32768,
        expert_bytes=experts,
        expert_share=share,
    )


def machine(*gpu_mib: int, host_mib: int = 128 * 1024, speed: float = 0.0) -> list[Device]:
    """GPUs with so much memory, and a host whose bandwidth may be given."""
    gpus = [Device(f"CUDA{i}", "gpu", mib * MIB, mib * MIB) for i, mib in enumerate(gpu_mib)]
    return [*gpus, Device("CPU", "cpu", host_mib * MIB, host_mib * MIB, bytes_per_second=speed)]


def best(outline: Outline, there: list[Device], target: Placement = Placement()) -> Plan:  # noqa: B008 - frozen value
    """The best plan without a draft."""
    return placement.best(PlanRequest(Config(engine=Engine(target=target)), outline), there)


def test_a_card_that_is_too_small_has_all_attention_and_as_many_experts_as_fit() -> None:
    """The whole model while it fits; then experts leave the GPU layer by layer, and blocks last."""
    outline, seen = outlined(), []
    for mib in range(12_000, 600, -200):
        plan = best(outline, machine(mib))
        seen.append((plan.target.gpu_layers, -plan.target.experts))
        if plan.target.experts:
            assert plan.target.gpu_layers in {25, plan.target.experts + 1}
            assert f"experts of {plan.target.experts} on the CPU" in plan.sentence()
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], {blocks for blocks, _ in seen} >= {25}) == ((25, 0), True)
    assert len({experts for _, experts in seen}) > 15


@settings(max_examples=30, deadline=None)
@given(
    gpus=st.lists(st.integers(300, 16_000), max_size=2),
    layers=st.integers(1, 40),
    dense=st.integers(1, 200),
    experts=st.integers(1, 600),
    share=st.sampled_from([1 / 128, 1 / 16, 1 / 4, 1.0]),
)
def test_every_byte_is_somewhere_once_and_no_device_has_too_much(
    gpus: list[int], layers: int, dense: int, experts: int, share: float
) -> None:
    """Each byte is placed once, within limits; a token is no slower than by whole blocks."""
    outline, there = outlined(layers, dense, experts, share), machine(*gpus)
    plain = replace(outline, expert_bytes=(), expert_share=1.0)
    plan, without = best(outline, there), best(plain, there)
    weights = sum(part.weight_bytes for part in plan.parts if part.model == "target")
    assert weights == outline.input_bytes + sum(outline.device_bytes)
    room = {device.name: placement.usable(device) for device in there}
    assert not plan.fits or all(held <= room[name] for name, held in plan.taken().items())
    if plan.slots == without.slots and plan.fits and without.fits:
        ours, theirs = (reading.seconds(outline, p.target, there) for p in (plan, without))
        assert ours <= theirs * (1 + 1e-9)
    reads = reading.bytes_by_device(outline, plan.target)
    woken = sum(int(each * share) for each in outline.expert_bytes)
    assert sum(reads.values()) == sum(outline.device_bytes) - sum(outline.expert_bytes) + woken


def test_bandwidths_decide_where_both_would_fit(tmp_path: Path) -> None:
    """Bandwidths come from a table; if the host is as fast as the GPU, nothing is split."""
    text = '[[device]]\nname = "CUDA0"\nmemory_gib = 4\ngb_per_second = {}\n'
    text += '[[device]]\nname = "CPU"\nkind = "cpu"\nmemory_gib = 128\ngb_per_second = {}\n'
    found = {}
    for card, host in ((1000, 50), (50, 500)):
        path = tmp_path / f"{card}.toml"
        path.write_text(text.format(card, host))
        there = described(path)
        assert [device.bytes_per_second for device in there] == [card * 1e9, host * 1e9]
        found[card] = best(outlined(), there).target.experts
    assert found[1000] > 0
    assert found[50] == 0


def test_a_wish_for_layers_is_kept_and_a_host_alone_has_no_experts_apart() -> None:
    """`gpu_layers` is never exceeded, and a host alone splits no experts off."""
    plan = best(outlined(), machine(3000), Placement(gpu_layers=10))
    assert plan.target.gpu_layers == 10
    assert best(outlined(), machine(3000), Placement(gpu_layers=0)).target == Layout()


def test_an_outline_tells_experts_from_what_every_token_reads(tmp_path: Path) -> None:
    """Experts are recognised by the file's tensors."""
    found = header.read(mixture.build(tmp_path / "m.gguf", layers=2, experts=8, used=2))
    outline = memory.outline(found)
    experts = [t.num_bytes for t in found.tensors if "_exps." in t.name]
    assert len(experts) == 6
    assert outline.expert_bytes == (sum(experts[:3]), sum(experts[3:]), 0)
    assert outline.expert_share == pytest.approx(0.25)
    assert not memory.outline(found).experts_bytes(range(2, 3))


def test_a_plan_shows_what_a_token_reads_and_where(tmp_path: Path) -> None:
    """The plan is shown as text and as JSON, before anything is loaded."""
    path = mixture.build(tmp_path / "m.gguf", layers=6, width=256, experts=64, used=4, inner=512)
    plain = CliRunner().invoke(cli, ["models", "plan", str(path), "--memory", "300MB"])
    assert plain.exit_code == 0, plain.output
    assert "experts of " in plain.stdout
    assert "a token wakes 6.2% of the experts" in " ".join(plain.stdout.split())
    told = CliRunner().invoke(cli, ["models", "plan", str(path), "--memory", "300MB", "--json"])
    report = json.loads(told.stdout)
    assert report["plan"]["target"]["experts"] > 0
    assert set(report["reads"]) == {"GPU0", "CPU"}
    assert msgspec.convert(report["plan"]["target"], Layout).experts <= 6
