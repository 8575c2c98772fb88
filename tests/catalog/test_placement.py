"""Laws of plans for many machines: all blocks placed, limits kept, more memory never worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.bench import tables
from localspec.catalog import devices, entries, header, memory, placement
from localspec.catalog.devices import Device, Own
from localspec.catalog.head_memory import FedOutline
from localspec.catalog.memory import Outline
from localspec.catalog.plan import Plan, PlanRequest
from localspec.catalog.registry import Registry, Resolved
from localspec.cli.plan import from_sizes
from localspec.config import Config, Engine, Placement
from localspec.errors import ConfigError

MIB, GIB = 1 << 20, 1 << 30


def outlined(layers: int, layer_mib: int, context: int = 32768) -> Outline:
    """A model of even layers."""
    plain = (layer_mib * MIB,) * layers + (100 * MIB,)
    return Outline(
        name="model",
        input_bytes=60 * MIB,
        device_bytes=plain,
        host_bytes=plain,
        kv_values=(512,) * layers,
        heads=16,
        width=2048,
        feed_forward=6144,
        vocabulary=150_000,
        context_length=context,
    )


def machine(*gpu_mib: int, host_mib: int = 64 * 1024) -> list[Device]:
    """GPUs with so much memory free, and the host's."""
    gpus = [Device(f"CUDA{i}", "gpu", mib * MIB, mib * MIB) for i, mib in enumerate(gpu_mib)]
    return [*gpus, Device("CPU", "cpu", host_mib * MIB, host_mib * MIB)]


def request(
    large: Outline | None = None, head: FedOutline | None = None, **engine: Any
) -> PlanRequest:
    """A pair in the default configuration, with changes to `engine`."""
    target = large or outlined(28, 120)
    return PlanRequest(Config(engine=Engine(**engine)), target, outlined(24, 14), head=head)


HEAD = FedOutline(replace(outlined(1, 60), input_bytes=0), inputs=3 * 2048, beside=True)
"""A head of one layer, which shares the words of its target."""


def rank(plan: Plan) -> tuple[float, ...]:
    """The quality of a plan, by what is given up last first."""
    on_gpu = plan.draft is not None and plan.draft.gpu_layers > 0
    floor = min(plan.cells, 8192)
    return (
        plan.draft is not None,
        floor,
        plan.slots,
        on_gpu,
        plan.target.gpu_layers,
        plan.cells,
    )


machines = st.builds(
    lambda gpus, host: machine(*gpus, host_mib=host),
    st.lists(st.integers(0, 24 * 1024), max_size=3),
    st.integers(4 * 1024, 128 * 1024),
)


@settings(max_examples=30, deadline=None)
@given(
    there=machines,
    layers=st.integers(1, 64),
    layer_mib=st.integers(1, 600),
    head=st.sampled_from([None, HEAD]),
)
def test_no_plan_takes_more_than_is_free_and_none_loses_a_block(
    there: list[Device], layers: int, layer_mib: int, head: FedOutline | None
) -> None:
    """On any machine: within every device, each block placed once, no plan twice.

    A head is wholly where the last of the target's blocks is.
    """
    wanted = request(outlined(layers, layer_mib), head)
    free = {device.name: device.free_bytes for device in there}
    plans = placement.plans(wanted, there)
    for plan in plans:
        if plan.fits:
            assert all(taken <= free[name] for name, taken in plan.taken().items())
        for model, outline in (("target", wanted.target), ("draft", wanted.draft)):
            blocks = [part.blocks for part in plan.parts if part.model == model]
            assert outline is not None
            assert sum(blocks) == (0 if model == "draft" and plan.draft is None else outline.blocks)
        held = [part.device for part in plan.parts if part.model == "head" and part.blocks]
        assert held == [["CPU", *plan.target.devices][-1]] * (plan.head is not None)
        assert 0 < plan.context <= plan.cells
        assert plan.start_cells <= plan.cells
    assert len({msgspec.json.encode(plan) for plan in plans}) == len(plans)
    on_cards = [len(plan.taken()) > 1 for plan in plans]
    assert on_cards == sorted(on_cards, reverse=True)


@settings(max_examples=30, deadline=None)
@given(there=machines, more=st.lists(st.integers(0, 8 * 1024), min_size=4, max_size=4))
def test_more_memory_never_gives_a_smaller_plan(there: list[Device], more: list[int]) -> None:
    """Memory may be added to several devices at once."""
    larger = [
        msgspec.structs.replace(device, free_bytes=device.free_bytes + extra * MIB)
        for device, extra in zip(there, more, strict=False)
    ]
    wanted = request()
    assert rank(placement.plans(wanted, larger)[0]) >= rank(placement.plans(wanted, there)[0])


def test_a_large_card_holds_everything_and_the_longest_context() -> None:
    """80 GB: both models, four sessions of what the target was trained for, on one of two cards."""
    plan = placement.plans(request(), machine(80 * 1024, 80 * 1024))[0]
    assert plan.target.gpu_layers == 29
    assert plan.draft is not None
    assert plan.target.devices == plan.draft.devices
    assert (plan.context, plan.cells) == (32768, 4 * 32768)


def test_the_draft_comes_first_and_layers_go_to_the_host_one_by_one() -> None:
    """A card that holds less and less keeps the draft while the target's layers leave it."""
    layers = []
    for mib in range(6000, 1600, -50):
        plan = placement.plans(request(), machine(mib))[0]
        assert plan.draft is not None
        assert plan.draft.gpu_layers == 25
        layers.append(plan.target.gpu_layers)
    assert layers == sorted(layers, reverse=True)
    assert len(set(layers)) > 20


def test_a_model_too_large_for_one_card_takes_two() -> None:
    """Neither card is filled beyond its memory, and llama.cpp's own rule gives the same shares."""
    plan = placement.plans(request(outlined(60, 400)), machine(16 * 1024, 16 * 1024))[0]
    assert len(plan.target.devices) == 2
    shares = plan.target.shares
    assert placement.divided(sum(shares), shares, 2) == shares


def test_slots_go_before_the_context() -> None:
    """On a CPU with less and less memory: slots go first, then context, then the draft."""
    plans = [
        placement.plans(request(), machine(host_mib=mib))[0] for mib in range(16000, 3000, -100)
    ]
    given_up = [(plan.draft is None, -min(plan.cells, 8192), -plan.slots) for plan in plans]
    assert given_up == sorted(given_up)
    assert {plan.slots for plan in plans} == {4, 2, 1}


def test_a_head_is_on_the_last_card() -> None:
    """Of two cards it is where the output is."""
    plan = placement.plans(request(outlined(60, 350), HEAD), machine(16 * 1024, 16 * 1024))[0]
    assert len(plan.target.devices) == 2
    assert plan.head is not None
    assert plan.head.devices == plan.target.devices[-1:]
    assert f"head all on {plan.target.devices[-1]}" in plan.sentence()


@settings(max_examples=30, deadline=None)
@given(there=machines)
def test_nothing_but_a_quarter_of_the_cells_is_given_up_for_a_head(there: list[Device]) -> None:
    """No layer leaves a card, no draft and no slot goes; it is there wherever memory is plenty."""
    without, beside = (placement.plans(request(head=head), there)[0] for head in (None, HEAD))
    assert beside.target.gpu_layers == without.target.gpu_layers
    assert beside.target.devices == without.target.devices
    assert beside.draft == without.draft
    assert beside.slots == without.slots
    assert beside.cells >= 0.75 * without.cells
    if beside.head is None:
        assert beside == without
    assert placement.plans(request(head=HEAD), machine(80 * 1024))[0].head is not None


def test_what_nothing_can_hold_is_still_one_plan_that_says_so() -> None:
    """The last attempt has one session, no draft, and is on the CPU."""
    (plan,) = placement.plans(request(outlined(80, 1000)), machine(1000, host_mib=8000))
    assert not plan.fits
    assert (plan.slots, plan.draft, plan.target.gpu_layers) == (1, None, 0)


def test_strict_slots_have_equal_parts() -> None:
    """Each slot's stream holds a whole context."""
    plan = placement.plans(request(exactness="strict"), machine(host_mib=16 * 1024))[0]
    assert plan.context == min(32768, plan.cells // plan.slots)


def test_a_context_that_was_chosen_is_kept_or_nothing_is() -> None:
    """Layers leave the GPU before a session gets less context than configured."""
    plan = placement.plans(request(context=16384), machine(2500))[0]
    assert plan.context == 16384
    assert plan.cells >= 16384


def test_named_devices_are_used_and_nothing_else() -> None:
    """The draft may be on another device than the target, and a model may be kept off GPUs."""
    apart = request(
        target=Placement(devices=("CUDA1",)),
        draft=Placement(devices=("CUDA0",)),
    )
    plan = placement.plans(apart, machine(8000, 8000))[0]
    assert plan.target.devices == ("CUDA1",)
    assert plan.draft is not None
    assert plan.draft.devices == ("CUDA0",)
    kept_off = request(draft=Placement(devices=("CPU",)), target=Placement(tensor_split=(1, 3)))
    plan = placement.plans(kept_off, machine(8000, 8000))[0]
    assert plan.draft is not None
    assert plan.draft.gpu_layers == 0
    assert plan.target.shares == (8, 21)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (Placement(devices=("CUDA7",)), "There is: CUDA0, CUDA1, CPU."),
        (Placement(tensor_split=(1, 1, 1)), "3 shares for CUDA0, CUDA1"),
        (Placement(main_gpu=2, split="none"), "among CUDA0, CUDA1"),
        (Placement(devices=("CUDA1",), tensor_split=(1, 1)), "2 shares for CUDA1"),
    ],
)
def test_a_placement_that_names_what_is_not_there_is_refused(chosen: Placement, said: str) -> None:
    """The error comes before anything is loaded, and names the devices that exist."""
    with pytest.raises(ConfigError) as refused:
        placement.plans(request(target=chosen), machine(8000, 8000))
    assert said in str(refused.value)


def test_an_outline_counts_every_byte_of_a_file(tmp_path: Path) -> None:
    """Blocks and input are the file's tensors; a locked file stays beside repacked weights."""
    found = header.read(tiny.build(tmp_path / "tiny.gguf", layers=3))
    plain = memory.outline(found)
    assert plain.input_bytes + sum(plain.device_bytes) == found.weight_bytes
    assert plain.host_bytes == plain.device_bytes
    assert (plain.blocks, plain.kv_values) == (4, (64, 64, 64))
    one, locked = (
        PlanRequest(Config(engine=Engine(target=Placement(mlock=mlock))), plain)
        for mlock in (False, True)
    )
    weights = [placement.plans(each, machine())[0].parts[0].weight_bytes for each in (one, locked)]
    assert weights == [found.weight_bytes, 2 * found.weight_bytes]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "describes no [[device]]"),
        ('[[device]]\nname = "CUDA0"', "device CUDA0 has no memory_bytes"),
        ("[[device]]\nmemory_gib = 3", "name is missing"),
        ('[[device]]\nname = "A"\nmemory_gib = "many"', "must be a number"),
        ('[[device]]\nname = "A"\nmemory_gib = -3', "no size of memory"),
        ('[[device]]\nname = "A"\nmemory_gib = nan', "no size of memory"),
        ('[[device]]\nname = "A"\nmemory_gib = 3\nmemory_bytes = 3', "or both"),
        ('[[device]]\nname = "A"\nkind = "tpu"\nmemory_gib = 3', "tpu"),
        ('[[device]]\nname = "A"\nmemory_gib = 3\nwatts = 300', "watts"),
        ('[[device]]\nname = "A"\nmemory_gib = 3\ngb_per_second = 0', "no bandwidth"),
        ('[[device]]\nname = "A"\nmemory_gib = 3\ngb_per_second = nan', "no bandwidth"),
        ('[[device]]\nname="A"\nmemory_gib=1\n[[device]]\nname="A"\nmemory_gib=1', "more than"),
        ("device = 3", "must be a list"),
        ("[[device]", "not valid TOML"),
    ],
)
def test_a_machine_with_holes_is_refused_in_a_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    """Each error names the file and the missing figure."""
    path = tmp_path / "machine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        devices.described(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_machine_is_described_by_its_devices(tmp_path: Path) -> None:
    """The devices of a table, the host last; other parts are ignored."""
    path = tmp_path / "machine.toml"
    path.write_text(
        'name = "mine"\n[host]\nround_ms = 0.3\n'
        '[[device]]\nname = "RAM"\nkind = "cpu"\nmemory_bytes = 1000\n'
        '[[device]]\nname = "CUDA0"\nmemory_gib = 24\n'
    )
    card, host = devices.described(path)
    assert (card.name, card.total_bytes, card.free_bytes) == ("CUDA0", 24 * GIB, 24 * GIB)
    assert (host.name, host.kind, host.total_bytes) == ("CPU", "cpu", 1000)
    assert devices.of_size("24GiB")[0].total_bytes == card.total_bytes
    assert devices.of_size("80 GB")[0].free_bytes == 80 * 10**9


@pytest.mark.parametrize("name", tables.names())
def test_every_shipped_machine_can_be_planned_for(name: str) -> None:
    """One table has both the costs and the memory of each shipped machine."""
    *cards, _ = devices.described(tables.file(name))
    assert all(card.total_bytes > 20 * GIB for card in cards)
    assert cards
    assert placement.plans(request(), devices.described(tables.file(name)))[0].fits


remotes = st.lists(st.integers(2 * 1024, 24 * 1024), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("own", "copied"),
    [
        (Own(), {"target", "draft"}),
        (
            Own(cells=True),
            {"draft"},
        ),  # it decodes without flash attention, since the project's own is missing
        (Own(attention=True, cells=True), set()),
    ],
)
def test_only_caches_that_are_made_anew_are_copied(own: Own, copied: set[str]) -> None:
    """The copy made by a growing cache is planned; other caches take memory only when used."""
    asked = replace(request(exactness="standard"), own=own)
    (plan, *_) = placement.plans(asked, machine())
    sizes = {part.model: part.kv_bytes // 2 for part in plan.parts if part.model in copied}
    growing = [part.total_bytes for part in plan.parts if part.model == "growing"]
    assert growing == ([max(sizes.values())] if sizes else [])
    lazy = {part.model for part in plan.parts if part.spare_bytes >= part.kv_bytes > 0}
    assert lazy == {"target", "draft"} - copied


@settings(max_examples=20, deadline=None)
@given(lent=remotes, there=machines)
def test_what_other_machines_lend_is_for_the_target_alone(
    lent: list[int], there: list[Device]
) -> None:
    """Devices of other machines come first, in order; the draft never leaves this machine."""
    far = [
        Device(f"RPC0[{index}:1]", "remote", mib * MIB, mib * MIB) for index, mib in enumerate(lent)
    ]
    names = [device.name for device in far]
    for plan in placement.plans(request(), [*far, *there]):
        used = [name for name in plan.target.devices if name in names]
        assert list(plan.target.devices[: len(used)]) == used == sorted(used)
        assert plan.draft is None or not set(names) & set(plan.draft.devices)
    if sum(lent) > 8 * 1024:
        best = placement.plans(request(), [*far, *machine()])[0]
        assert best.target.gpu_layers == 29
        assert list(best.target.devices) == names


def test_the_catalog_repeats_what_headers_say(real_pair: Resolved) -> None:
    """Sizes in the catalog equal the headers', so plans before a pull hold after it."""
    here = {model.name: model.path for model in Registry(real_pair.target_path.parent).models()}
    known = [(entry, here[name]) for name, entry in entries.load().items() if entry.sizes]
    assert known
    pulled = [(entry, path) for entry, path in known if path is not None]
    assert pulled
    for entry, path in pulled:
        found, sizes = memory.outline(header.read(path)), entry.sizes
        assert sizes is not None
        assert sizes.layers == found.blocks - 1
        assert sizes.layers_bytes == sum(found.device_bytes[:-1])
        assert (sizes.input_bytes, sizes.output_bytes) == (
            found.input_bytes,
            found.device_bytes[-1],
        )
        assert (sizes.kv_values,) * sizes.layers == found.kv_values
        assert (sizes.heads, sizes.width, sizes.feed_forward, sizes.vocabulary, sizes.context) == (
            found.heads,
            found.width,
            found.feed_forward,
            found.vocabulary,
            found.context_length,
        )


def test_estimates_are_those_of_a_real_card() -> None:
    """The default pair's buffers at 4 x 8192 tokens, as llama.cpp gave them on an H100."""
    sizes = {name: entry.sizes for name, entry in entries.load().items() if entry.sizes}
    target, draft = (
        from_sizes(name, sizes[name])
        for name in ("qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct")
    )
    config = Config(engine=Engine(context=8192))
    (plan, *_) = placement.plans(PlanRequest(config, target, draft), devices.of_size("80GB"))
    assert plan.cells == 4 * 8192
    on_card = {part.model: part for part in plan.parts if part.device == "GPU0"}
    for model, weights, kv in (("target", 980e6, 940e6), ("draft", 278e6, 403e6)):
        assert on_card[model].weight_bytes == pytest.approx(weights, rel=0.01)
        assert on_card[model].kv_bytes == pytest.approx(kv, rel=0.01)
    # 76 MB for 128 rows with logits, and 420 for the graphs of 1 to 32 rows.
    assert on_card["target"].compute_bytes == pytest.approx(496e6, rel=0.05)
