"""Decides whether a model may load now, and which others are unloaded for it. Pure.

A model fits beside others when its best plan there is as good as on an empty machine: as many
slots, as many blocks on GPUs, the draft. Then none of the others is unloaded, so models that fit
together stay loaded together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from localspec.catalog.memory import show_bytes

Memory: TypeAlias = Mapping[str, int]
"""Bytes by device, "CPU" for the host's."""

MAX_WAIT_SECONDS = 120.0
"""A model that loads waits this long for busy models; then comes a smaller plan or a refusal."""


class PlanScore(NamedTuple):
    """The quality of the best plan in a given memory. Compared field by field; larger is better."""

    fits: bool
    draft: bool
    context: int
    gpu_blocks: int
    slots: int

    def serves(self, best: PlanScore) -> bool:
        """Whether it is good enough to load now instead of waiting for `best`."""
        return self[:3] >= best[:3]


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that holds memory.

    A busy one has open or waiting requests; `used_at` is when its last request ended, in seconds.
    `key` is unique; two models may have the same `name` while a retired one finishes.
    """

    key: str
    name: str
    state: Literal["idle", "busy", "loading", "leaving"]
    used_at: float
    taken: Memory


@dataclass(frozen=True, slots=True)
class LoadingModel:
    """A model that wants memory; `score` rates its best plan in a given memory.

    `exclusive`: it cannot be loaded beside another model.
    """

    name: str
    score: Callable[[Memory], PlanScore]
    exclusive: bool = False


class Admit(NamedTuple):
    """The verdict that a model may load into `room`, once the models in `leave` are unloaded."""

    leave: tuple[Resident, ...]
    room: Memory


class Wait(NamedTuple):
    """The verdict that a model has to wait.

    The models in `retire` finish their requests, get no new ones, and are unloaded. `counts`:
    whether the time counts towards MAX_WAIT_SECONDS.
    """

    why: str
    retire: tuple[Resident, ...] = ()
    counts: bool = True


class Refuse(NamedTuple):
    """The verdict that a model cannot load; `forever`: not even with all others unloaded."""

    why: str
    forever: bool


Verdict: TypeAlias = Admit | Wait | Refuse


def decide(
    loading: LoadingModel,
    residents: Sequence[Resident],
    total: Memory,
    waited_seconds: float,
    *,
    bounded: bool = False,
) -> Verdict:
    """The decision on a model that wants to load.

    Args:
        loading: The model that wants memory.
        residents: The models that hold memory.
        total: The memory that all of them may hold together.
        waited_seconds: How long it has waited, as far as that counts.
        bounded: Whether `total` was configured. If not, a model that does not fit may try to load
            while no other holds memory.
    """
    over = waited_seconds >= MAX_WAIT_SECONDS
    if moving := [each for each in residents if each.state in {"loading", "leaving"}]:
        # How much memory a load takes, or an unload frees, is known only afterwards.
        why = f"{moving[0].name} is {moving[0].state}"
        # A load may take longer, and its watchdog bounds it; both models may fit once it is done.
        counts = all(each.state == "leaving" for each in moving)
        late = _late(loading, residents, total, why)
        return Refuse(late, forever=False) if over and counts else Wait(why, counts=counts)
    best = loading.score(total)
    if not best.fits and (residents or bounded):
        return Refuse(_too_large(loading, residents, total), forever=True)

    def score(remaining: Sequence[Resident]) -> PlanScore:
        if loading.exclusive and remaining:
            return best._replace(fits=False)
        return loading.score(room(total, remaining))

    if score(residents) >= best:
        return Admit((), room(total, residents))
    oldest = sorted(residents, key=lambda each: each.used_at)
    busy = [each for each in oldest if each.state == "busy"]
    reachable = score(busy)
    if reachable.serves(best) or (over and reachable.fits):
        idle = [each for each in oldest if each.state == "idle"]
        leaving = _fewest(idle, busy, lambda remaining: score(remaining) >= reachable)
        remaining = [each for each in residents if each not in leaving]
        return Admit(tuple(leaving), room(total, remaining))
    leaving = _fewest(busy, [], lambda remaining: score(remaining).serves(best))
    names = " and ".join(each.name for each in leaving)
    why = f"{names} {'are' if len(leaving) > 1 else 'is'} answering"
    if over:
        return Refuse(_late(loading, residents, total, why), forever=False)
    return Wait(why, tuple(leaving))


def room(total: Memory, remaining: Sequence[Resident]) -> Memory:
    """The memory left for another model."""
    left = dict(total)
    for resident in remaining:
        for device, held in resident.taken.items():
            left[device] = left.get(device, 0) - held
    return {device: max(0, size) for device, size in left.items()}


def idle_over_limit(residents: Sequence[Resident], total: Memory) -> Resident | None:
    """The least recently used idle model if all hold more than `total` together; else None."""
    idle = [each for each in residents if each.state == "idle"]
    held = sum(each.taken.get("CPU", 0) for each in residents)
    if held <= total["CPU"] or not idle:
        return None
    return min(idle, key=lambda each: each.used_at)


def loaded(name: str, seconds: float, displaced: Sequence[str]) -> str:
    """A sentence about a finished load: its seconds and the models unloaded for it."""
    room = f", made room by unloading {' and '.join(displaced)}" if displaced else ""
    return f"{name} loaded in {seconds:.1f} s{room}"


def _fewest(
    candidates: Sequence[Resident],
    others: Sequence[Resident],
    enough: Callable[[Sequence[Resident]], bool],
) -> list[Resident]:
    """The candidates to unload until `enough` holds: early ones first, none that is not needed."""
    leaving: list[Resident] = []

    def remaining() -> list[Resident]:
        return [*others, *(each for each in candidates if each not in leaving)]

    for candidate in candidates:
        if enough(remaining()):
            break
        leaving.append(candidate)
    for candidate in reversed(leaving.copy()):
        leaving.remove(candidate)
        if not enough(remaining()):
            leaving.append(candidate)
    return sorted(leaving, key=lambda each: each.used_at)


def _too_large(loading: LoadingModel, residents: Sequence[Resident], total: Memory) -> str:
    others = f"; {_held(residents)}" if residents else ""
    return f"{loading.name} does not fit into {_sizes(total)}, not even alone{others}."


def _late(loading: LoadingModel, residents: Sequence[Resident], total: Memory, why: str) -> str:
    return (
        f"{loading.name} waited {MAX_WAIT_SECONDS:.0f} s for memory: {why}. "
        f"Of {_sizes(total)} {_held(residents)}."
    )


def _held(residents: Sequence[Resident]) -> str:
    return ", ".join(f"{each.name} has {_sizes(each.taken)}" for each in residents)


def _sizes(memory: Memory) -> str:
    return " and ".join(f"{show_bytes(size)} of {name}" for name, size in memory.items())
