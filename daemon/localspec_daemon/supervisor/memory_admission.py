"""Who may take memory, and who makes room for that. Pure: memory, last use and waiting come in.

A model fits beside others when it gives up nothing there that it would have on an empty machine:
no slot, no block on a GPU, no draft. Then no model leaves, so that models that fit
together are never unloaded for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from localspec.catalog.memory import show_bytes

Memory: TypeAlias = Mapping[str, int]
"""Bytes by device, "CPU" for the host's."""

MAX_WAIT_SECONDS = 120.0
"""So long a newcomer waits for models that are answering. Then it takes less, if that is there."""


class PlanScore(NamedTuple):
    """The score of the best plan in some room: larger is better, the first difference counts."""

    fits: bool
    draft: bool
    context: int
    gpu_blocks: int
    slots: int

    def serves(self, best: PlanScore) -> bool:
        """Whether it is worth having at once, while more would have to be waited for."""
        return self[:3] >= best[:3]


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that holds memory.

    A busy one has requests, open or waiting; `used_at` is when the last one ended, in seconds. Two
    may have one `name` while an old one finishes, and never one `key`.
    """

    key: str
    name: str
    state: Literal["idle", "busy", "loading", "leaving"]
    used_at: float
    taken: Memory


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A model that wants memory, and what room is worth to it.

    `exclusive`: it can share with no other model.
    """

    name: str
    score: Callable[[Memory], PlanScore]
    exclusive: bool = False


class Admit(NamedTuple):
    """It may, as soon as these have left. `room` is what there is for it then."""

    leave: tuple[Resident, ...]
    room: Memory


class Wait(NamedTuple):
    """Not yet. These would make room: they take no new requests, finish those they have, and go."""

    why: str
    retire: tuple[Resident, ...] = ()


class Refuse(NamedTuple):
    """There is no room, or none in time. `forever`: not even with all others gone."""

    why: str
    forever: bool


Verdict: TypeAlias = Admit | Wait | Refuse


def decide(
    newcomer: Newcomer,
    residents: Sequence[Resident],
    total: Memory,
    waited_seconds: float,
    *,
    bounded: bool = False,
) -> Verdict:
    """The decision on a newcomer.

    Args:
        newcomer: Who wants memory.
        residents: Who has some.
        total: What all of them may take together.
        waited_seconds: Since it came.
        bounded: Whether that total was configured. If not, a lone model may try what does not fit.
    """
    over = waited_seconds >= MAX_WAIT_SECONDS
    if moving := [each for each in residents if each.state in {"loading", "leaving"}]:
        # What a load takes, and what an end gives back, is known when it is done.
        why = f"{moving[0].name} is {moving[0].state}"
        return Refuse(_late(newcomer, residents, total, why), forever=False) if over else Wait(why)
    best = newcomer.score(total)
    if not best.fits and (residents or bounded):
        return Refuse(_too_large(newcomer, residents, total), forever=True)

    def score(remaining: Sequence[Resident]) -> PlanScore:
        if newcomer.exclusive and remaining:
            return best._replace(fits=False)
        return newcomer.score(room(total, remaining))

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
        return Refuse(_late(newcomer, residents, total, why), forever=False)
    return Wait(why, tuple(leaving))


def room(total: Memory, remaining: Sequence[Resident]) -> Memory:
    """The memory left for a newcomer."""
    left = dict(total)
    for resident in remaining:
        for device, held in resident.taken.items():
            left[device] = left.get(device, 0) - held
    return {device: max(0, size) for device, size in left.items()}


def idle_over_limit(residents: Sequence[Resident], total: Memory) -> Resident | None:
    """The idle model to unload where they hold more together than they may; None if they do not."""
    idle = [each for each in residents if each.state == "idle"]
    held = sum(each.taken.get("CPU", 0) for each in residents)
    if held <= total["CPU"] or not idle:
        return None
    return min(idle, key=lambda each: each.used_at)


def loaded(name: str, seconds: float, displaced: Sequence[str]) -> str:
    """How a load went, for people."""
    room = f", made room by unloading {' and '.join(displaced)}" if displaced else ""
    return f"{name} loaded in {seconds:.1f} s{room}"


def _fewest(
    candidates: Sequence[Resident],
    others: Sequence[Resident],
    enough: Callable[[Sequence[Resident]], bool],
) -> list[Resident]:
    """Who of the candidates leaves: the first ones, less those whose leaving would not help."""
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


def _too_large(newcomer: Newcomer, residents: Sequence[Resident], total: Memory) -> str:
    others = f"; {_held(residents)}" if residents else ""
    return f"{newcomer.name} does not fit into {_sizes(total)}, not even alone{others}."


def _late(newcomer: Newcomer, residents: Sequence[Resident], total: Memory, why: str) -> str:
    return (
        f"{newcomer.name} waited {MAX_WAIT_SECONDS:.0f} s for memory: {why}. "
        f"Of {_sizes(total)} {_held(residents)}."
    )


def _held(residents: Sequence[Resident]) -> str:
    return ", ".join(f"{each.name} has {_sizes(each.taken)}" for each in residents)


def _sizes(memory: Memory) -> str:
    return " and ".join(f"{show_bytes(size)} of {name}" for name, size in memory.items())
