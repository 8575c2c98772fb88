"""Places models on devices: plans from outlines and free memory, each smaller than the last. Pure.

The draft goes onto a GPU first. Then as many blocks of the target follow as fit, from the output
down as llama.cpp places them; the rest stays on the CPU. In a mixture of experts, the experts of
blocks on a GPU may stay on the CPU where that is faster (`reading.py`). If nothing fits, the plan
gives up slots, then context, then the draft. Remaining memory becomes KV. A head is placed with the
target's output, and is left out if a layer would have to leave the GPUs for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from localspec.catalog import reading
from localspec.catalog.devices import Device
from localspec.catalog.memory import CELL_STEP, rounded
from localspec.catalog.parts import Layout, graphs_bytes, taken
from localspec.catalog.plan import FLOOR_CELLS, Plan, PlanCandidate, PlanRequest
from localspec.config import Config, Placement
from localspec.errors import ConfigError

LEAST_CELLS = 1024
_DRIVER_BYTES = 192 << 20
"""Bytes left on a GPU for its driver's own allocations."""
_SMALLER = 0.75
"""After a plan that failed to load, the next one may take this share of that plan's memory on the
GPUs, or on the host if no GPU held anything."""
_KEPT_CELLS = 0.75
"""Share of the cells that must remain when a head and snapshots are added. Without a head there are
fewer drafts; without snapshots a rejection costs a copy."""
_MAX_PLANS = 8
_ORDERED_DEVICES = 2
"""Up to this number of GPUs, every order of them is tried."""


def plans(request: PlanRequest, devices: Sequence[Device]) -> list[Plan]:
    """Plans for these devices, each smaller than the one before; never empty.

    The last one is the smallest possible, whether it fits or not.

    Raises:
        ConfigError: the configuration names a missing device, or splits a model among more devices
            than there are.
    """
    check(request.config, devices)
    limits = {device.name: usable(device) for device in devices}
    least = _least(request, limits)
    found: list[Plan] = []
    while len(found) < _MAX_PLANS and (plan := _best(request, devices, limits)):
        found.append(plan)
        limits = _tighter(request, plan, limits)
    return found if found and found[-1].taken() == least.taken() else [*found, least]


def best(request: PlanRequest, devices: Sequence[Device]) -> Plan:
    """The first of `plans`, which is the best that fits. Raises the errors of `plans`."""
    check(request.config, devices)
    limits = {device.name: usable(device) for device in devices}
    return _best(request, devices, limits) or _least(request, limits)


def usable(device: Device) -> int:
    """The bytes of a device to plan with: free memory less a reserve for uncounted allocations."""
    kept = 0 if device.kind == "cpu" else _DRIVER_BYTES
    return max(0, device.free_bytes - kept - device.free_bytes // 32)


def check(config: Config, devices: Sequence[Device]) -> None:
    """Refuse a placement that names missing devices. Raises ConfigError."""
    there = [device.name for device in devices if device.kind == "gpu"]
    for model in ("target", "draft"):
        placement: Placement = getattr(config.engine, model)
        key = f"engine.{model}"
        for name in placement.devices:
            if name not in (*there, "CPU"):
                raise ConfigError(
                    f'{key}.devices names "{name}", which llama.cpp does not list here.',
                    fix=f"There is: {', '.join((*there, 'CPU'))}.",
                    param=f"{key}.devices",
                )
        used = targets(placement, devices) if model == "target" else gpus(placement, devices)
        listed = ", ".join(used) or "no GPU"
        if len(placement.tensor_split) > len(used):
            raise ConfigError(
                f"{key}.tensor_split has {len(placement.tensor_split)} shares for {listed}.",
                fix="Write one share for each device that is used, or [] for what fits.",
                param=f"{key}.tensor_split",
            )
        if placement.main_gpu and placement.main_gpu >= len(used):
            raise ConfigError(
                f"{key}.main_gpu is {placement.main_gpu}, counted from 0 among {listed}.",
                fix="Choose one of these by its place.",
                param=f"{key}.main_gpu",
            )


def targets(placement: Placement, devices: Sequence[Device]) -> list[str]:
    """The devices that the target may use, those of other machines first."""
    lent = [device.name for device in devices if device.kind == "remote"]
    return [*lent, *gpus(placement, devices)] if placement.gpu_layers else []


def gpus(placement: Placement, devices: Sequence[Device]) -> list[str]:
    """The GPUs of this machine that a model may use, in order."""
    if placement.gpu_layers == 0:
        return []
    if placement.devices:
        return [name for name in placement.devices if name != "CPU"]
    return [device.name for device in devices if device.kind == "gpu"]


def _best(
    request: PlanRequest, devices: Sequence[Device], limits: Mapping[str, int]
) -> Plan | None:
    """The plan of the first candidate that fits these limits, with its head and snapshots."""
    for candidate in _candidates(request):
        if plan := _Search(request, candidate, devices, limits).plan():
            return _with_more(request, candidate, devices, limits, plan)
    return None


def _with_more(
    request: PlanRequest,
    candidate: PlanCandidate,
    devices: Sequence[Device],
    limits: Mapping[str, int],
    plan: Plan,
) -> Plan:
    """The plan with a head and the most snapshots, as far as they cost few cells.

    They never move the draft or take a layer off the GPUs.
    """
    best, most = plan, plan.cells
    where = _kept_on_gpus(plan)

    def borne(wanted: PlanCandidate) -> Plan | None:
        found = _Search(request, wanted, devices, limits).plan()
        same = found and _kept_on_gpus(found) == where and found.draft == plan.draft
        return found if found and same and found.cells >= _KEPT_CELLS * most else None

    if request.head and (found := borne(candidate._replace(head=True))):
        best, candidate = found, candidate._replace(head=True)
    snapshots = request.snapshots
    while snapshots > 0:
        if found := borne(candidate._replace(snapshots=snapshots)):
            return found
        snapshots //= 2
    return best


def _kept_on_gpus(plan: Plan) -> tuple[tuple[str, ...], int, int]:
    """The target's devices, its blocks on GPUs, and how many of these have experts on the CPU."""
    return plan.target.devices, plan.target.gpu_layers, plan.target.experts


def _candidates(request: PlanRequest) -> Iterator[PlanCandidate]:
    """Candidates in falling order: everything that is wanted, then fewer slots, cells, no draft."""
    if request.target.embeds:
        yield PlanCandidate(request.slots, request.most_cells(request.slots), draft=False)
        return
    wanted = request.context if request.config.engine.context else FLOOR_CELLS
    full = rounded(min(wanted, request.context))
    fewer = [request.slots]
    while fewer[-1] > 1:
        fewer.append(fewer[-1] // 2)
    shorter = [full]
    while shorter[-1] > LEAST_CELLS:
        shorter.append(max(LEAST_CELLS, rounded(shorter[-1] // 2)))
    for draft in (True, False) if request.draft else (False,):
        for slots in fewer:
            yield PlanCandidate(slots, full * slots if request.strict else full, draft)
        for cells in shorter[1:]:
            yield PlanCandidate(1, cells, draft)


class _Held(NamedTuple):
    """Blocks of the target on GPUs; the experts of the first `experts` of them are on the CPU."""

    blocks: int
    experts: int = 0


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the best plan of one candidate within `limits`, bytes by device."""

    request: PlanRequest
    candidate: PlanCandidate
    devices: Sequence[Device]
    limits: Mapping[str, int]

    @property
    def _lent(self) -> bool:
        """Whether devices of other machines are used."""
        return any(device.kind == "remote" for device in self.devices)

    def plan(self) -> Plan | None:
        """The best plan: the draft on a GPU if possible, then most of the target, then most KV.

        Among equals, the plan with fewer devices is chosen.
        """
        for homes in self._draft_homes():
            ways = [(home, order) for home in homes for order in self._orders()]
            found = [(way, held) for way in ways if (held := self._held(*way))]
            if found:
                worth = [self._worth(*way, held) for way, held in found]
                plans = [
                    self._enlarged(*way, held)
                    for (way, held), each in zip(found, worth, strict=True)
                    if each == max(worth)
                ]
                return max(plans, key=lambda plan: (plan.cells, -len(plan.target.devices)))
        return None

    def _draft_homes(self) -> Iterator[list[Layout | None]]:
        """Possible layouts of the draft, better ones first; None stands for no draft."""
        draft = self.request.draft
        if not self.candidate.draft or draft is None:
            yield [None]
            return
        placement = self.request.config.engine.draft
        names = gpus(placement, self.devices)
        wanted = _wanted(placement, draft.blocks)
        if names and placement.split == "none":
            yield [Layout((names[placement.main_gpu],), (wanted,))]
        elif names and placement.tensor_split:
            yield [Layout(tuple(names), divided(wanted, placement.tensor_split, len(names)))]
        elif names:
            yield [Layout((name,), (wanted,)) for name in names]
        yield [Layout()]

    def _orders(self) -> list[tuple[str, ...]]:
        """Orders of the target's devices to try, few devices before many."""
        placement = self.request.config.engine.target
        names = targets(placement, self.devices)
        if not names:
            return [()]
        if placement.split == "none":
            return [(names[placement.main_gpu],)]
        if placement.tensor_split or placement.devices or self._lent:
            return [tuple(names)]
        names.sort(key=lambda name: -self.limits[name])
        counts = range(1, len(names) + 1)
        if len(names) > _ORDERED_DEVICES:
            return [tuple(names[:count]) for count in counts]
        return [order for count in counts for order in itertools.permutations(names, count)]

    def _held(self, home: Layout | None, order: tuple[str, ...]) -> _Held | None:
        """The most of the target that fits on these GPUs, some experts left out if faster."""
        whole = self._blocks_on_gpus(home, order)
        if whole is None:
            return None
        plain, outline = _Held(whole), self.request.target
        wanted = _wanted(self.request.config.engine.target, outline.blocks)
        if not order or whole == wanted or not outline.has_experts:
            return plain
        floor = self.candidate.floor

        def fits(held: _Held) -> bool:
            return self._packed(home, order, held, floor) is not None

        def without(count: int, back: int = 0) -> _Held:
            return _Held(count, min(count, outline.blocks - 1) - back)  # the output has no experts

        bare = _most(wanted, lambda count: count <= whole or fits(without(count)))
        layers = without(bare).experts
        back = _most(layers, lambda more: fits(without(bare, more))) if bare > whole else 0
        apart = without(bare, back)
        return max(plain, apart, key=lambda held: self._worth(home, order, held))

    def _worth(self, home: Layout | None, order: tuple[str, ...], held: _Held) -> float:
        """The worth of a layout: its blocks on GPUs, or for a mixture of experts its speed."""
        if not self.request.target.has_experts:
            return held.blocks
        layout = self._packed(home, order, held, self.candidate.floor)
        assert layout is not None  # noqa: S101 - it was found to fit
        return -reading.seconds(self.request.target, layout, self.devices)

    def _blocks_on_gpus(self, home: Layout | None, order: tuple[str, ...]) -> int | None:
        """The most blocks of the target that fit on these GPUs; None if the rest has no room."""
        wanted = _wanted(self.request.config.engine.target, self.request.target.blocks)
        floor = self.candidate.floor

        def fits(count: int) -> bool:
            return self._packed(home, order, _Held(count), floor) is not None

        if order and fits(wanted):
            return wanted
        return _most(max(0, wanted - 1) if order else 0, fits) if fits(0) else None

    def _enlarged(self, home: Layout | None, order: tuple[str, ...], held: _Held) -> Plan:
        """The plan with the most KV that fits next to these blocks."""
        candidate, request = self.candidate, self.request
        cap = max(candidate.floor, request.most_cells(candidate.slots))
        step = CELL_STEP * (candidate.slots if request.strict else 1)
        more = _most(
            (cap - candidate.floor) // step,
            lambda steps: (
                self._packed(home, order, held, candidate.floor + steps * step) is not None
            ),
        )
        cells = candidate.floor + more * step
        layout = self._packed(home, order, held, cells)
        assert layout is not None  # noqa: S101 - it fits with the floor's cells
        return request.plan(candidate, layout, home, cells)

    def _packed(
        self, home: Layout | None, order: tuple[str, ...], held: _Held, cells: int
    ) -> Layout | None:
        """The layout with the target's last blocks on these devices; None if it does not fit."""
        count = held.blocks
        drafts = self.request.draft_parts(self.candidate, home, cells)
        split = self.request.config.engine.target.tensor_split
        if self._lent and not split:  # lent devices are there to be used
            split = tuple(float(self.limits[name]) for name in order)
        if any(split) and order:
            shares = divided(count, split, len(order))
        else:
            used = taken(drafts)
            room = {name: self.limits[name] - used.get(name, 0) for name in order}
            shares = self._filled(room, held, cells)
        if sum(shares) != count:
            return None
        layout = Layout(order, shares, held.experts)
        parts = self.request.parts(self.candidate, layout, home, cells)
        fits = all(size <= self.limits[name] for name, size in taken(parts).items())
        return layout if fits else None

    def _filled(self, room: Mapping[str, int], held: _Held, cells: int) -> tuple[int, ...]:
        """The number of blocks on each device, filling one device after the other."""
        request, outline = self.request, self.request.target
        rows, placement = request.rows(self.candidate.slots), request.config.engine.target
        seen = rounded(cells // self.candidate.slots) if request.strict else cells
        flash = placement.flash_attention != "off"
        scratch = outline.attention_bytes(rows, seen, flash=flash)
        output = max(0, outline.logits_bytes(request.outputs(self.candidate.slots)) - scratch)
        graphs = graphs_bytes(outline, seen, flash=flash, last=False)
        output += graphs_bytes(outline, seen, flash=flash, last=True) - graphs
        head = request.head_parts(self.candidate, Layout(tuple(room)[:1], (1,) * bool(room)))
        output += sum(part.total_bytes for part in head[:-1])  # the last part is the host's
        at, shares = outline.blocks - held.blocks, []
        apart = outline.apart(held.experts, at)
        visitors = [*outline.host_bytes[:at], *outline.expert_bytes[apart.start : apart.stop]]
        scratch += graphs + max(visitors, default=0)
        for free in room.values():
            left, first = free - scratch, at
            while at < outline.blocks:
                need = outline.device_bytes[at]
                need -= outline.expert_bytes[at] if at in apart else 0
                need += outline.kv_bytes(cells, placement.kv_type, at, at + 1)
                need += outline.state_bytes(self.candidate.states, at, at + 1)
                left -= need + (output if at == outline.blocks - 1 else 0)
                if left < 0:
                    break
                at += 1
            shares.append(at - first)
        return tuple(shares)


def _wanted(placement: Placement, blocks: int) -> int:
    """The number of blocks that may be on GPUs."""
    return blocks if placement.gpu_layers < 0 else min(placement.gpu_layers, blocks)


def _most(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to `most` for which `holds` is true, by bisection.

    `holds(0)` is true, and if `holds(n)` is true, it is true for all smaller numbers.
    """
    low, high = 0, most + 1
    if holds(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def divided(count: int, split: Sequence[float], devices: int) -> tuple[int, ...]:
    """llama.cpp's division: each block goes to the first device whose summed share exceeds it."""
    whole = sum(split)
    ends = [sum(split[: index + 1]) / whole for index in range(len(split))]
    shares = [0] * devices
    for block in range(count):
        shares[next((at for at, end in enumerate(ends) if end > block / count), len(ends) - 1)] += 1
    return tuple(shares)


# --- smaller ones ---------------------------------------------------------------------------------


def _tighter(request: PlanRequest, plan: Plan, limits: Mapping[str, int]) -> dict[str, int]:
    """Limits under which only a smaller plan fits: GPUs are reduced first, then the host."""
    held = request.at_first(plan)
    if cards := held.keys() - {"CPU"}:
        return {
            name: min(limit, int(held[name] * _SMALLER)) if name in cards else limit
            for name, limit in limits.items()
        }
    return dict.fromkeys(limits, 0) | {"CPU": min(limits["CPU"], int(held["CPU"] * _SMALLER))}


def _least(request: PlanRequest, limits: Mapping[str, int]) -> Plan:
    """The smallest plan: one slot, a short context, no draft, everything on the CPU."""
    cells = min(LEAST_CELLS, rounded(request.context))
    candidate = PlanCandidate(1, cells, draft=False)
    if request.target.embeds:
        candidate = next(_candidates(request))
    plan = request.plan(candidate, Layout(), None, candidate.floor)
    fits = all(size <= limits[name] for name, size in plan.taken().items())
    return msgspec.structs.replace(plan, fits=fits)
