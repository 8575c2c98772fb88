"""Simulated machines: tables of what forwards cost on a machine that need not be here.

A table gives the milliseconds of a forward of target and draft by its rows, when the forwards
before had as many rows, and the extra time right after another row count. It shows what a pair
would do on a machine before buying it.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from localspec import wording
from localspec.errors import ConfigError, unreadable

Curve: TypeAlias = float | dict[int, float]
"""Milliseconds: the same for every row count, or by row count with linear interpolation."""

MAX_ROWS, MAX_MS = 1 << 16, 1e6
_GIB, _MAX_BYTES = 1 << 30, 1 << 50
_MAX_GB_PER_SECOND = 1e6

_EXAMPLE = "A table is [target] and [draft], each with steady_ms = { 1 = 1.84, 8 = 3.73 }."


_CARD = 'Add [[device]], name = "CUDA0", memory_gib = 24.'


class Forwards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cost of one model's forwards in milliseconds.

    `steady_ms` is the time of a forward by its rows, if the two forwards before it had as many; one
    row is always listed. `change_ms` is added to the first forward after another row count,
    `settle_ms` to the second. `look_ms` is added for every token before the rows. Beyond the last
    listed row count each row costs `read_row_ms`, by default the slope between the last two.
    `trip_ms`, the way there and back, is added to every forward of a model on another machine.
    """

    steady_ms: dict[int, float]
    change_ms: Curve = 0.0
    settle_ms: Curve = 0.0
    look_ms: Curve = 0.0
    read_row_ms: float | None = None
    trip_ms: float = 0.0

    def forward_ms(self, rows: int, alike: int, behind: float = 0.0) -> float:
        """Milliseconds of a forward of `rows` rows after `behind` tokens on average.

        `alike` counts the forwards right before it that had as many rows.
        """
        extra = (self.change_ms, self.settle_ms)[alike] if alike < 2 else 0.0  # noqa: PLR2004
        looks_ms = behind * _at(self.look_ms, rows)
        return self._steady_ms(rows) + _at(extra, rows) + looks_ms + self.trip_ms

    def _steady_ms(self, rows: int) -> float:
        last = max(self.steady_ms)
        if rows <= last:
            return _at(self.steady_ms, rows)
        slope = self.read_row_ms
        if slope is None:
            before = max((count for count in self.steady_ms if count < last), default=0)
            rise = self.steady_ms[last] - self.steady_ms.get(before, 0.0)
            slope = max(0.0, rise / (last - before))
        return self.steady_ms[last] + (rows - last) * slope


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The host's time in a round: `round_ms`, and `row_ms` for each verified row beyond one.

    Asking drafters before the forward takes `asked_ms`, whether they draft or not. Work that is
    done while a GPU computes takes no time.
    """

    round_ms: float = 0.0
    row_ms: float = 0.0
    asked_ms: float = 0.0

    def work_ms(self, rows: int) -> float:
        """Milliseconds of host work in a round that verifies `rows` rows."""
        return self.round_ms + (rows - 1) * self.row_ms + self.asked_ms * (rows > 1)


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft head of the target, and the milliseconds of one of its tokens.

    Kind "feature" is computed by the host from the target's last state. Kind "fed" is an EAGLE-3
    head or prediction layers, on the target's last device; rows that it reads together share what
    is read of its weights.
    """

    token_ms: float
    kind: Literal["feature", "fed"] = "feature"


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device for weights, by llama.cpp's name, and its memory in bytes or in GiB.

    Kind "cpu" is the host's own memory. `gb_per_second` is the read bandwidth for weights.
    """

    name: str
    memory_bytes: int | None = None
    memory_gib: float | None = None
    kind: Literal["gpu", "cpu"] = "gpu"
    gb_per_second: float | None = None

    @property
    def total_bytes(self) -> int:
        """Its memory in bytes."""
        return self.memory_bytes or int((self.memory_gib or 0.0) * _GIB)


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine with one pair of models.

    `source` says where the figures are from. `head` is None without a draft head. `device` lists
    its devices, for plans. If `draft_is_apart`, the draft has a device of its own, and computes
    while the target does; otherwise its time is added to a target's forward that runs meanwhile.
    """

    name: str
    source: str
    target: Forwards
    draft: Forwards
    host: Host = Host()
    head: Head | None = None
    device: tuple[Card, ...] = ()
    draft_is_apart: bool = False

    @property
    def waits(self) -> bool:
        """Whether a GPU computes the forwards, so that the host can work meanwhile."""
        return any(card.kind == "gpu" for card in self.device)


class History:
    """The forwards of one context so far, as far as they affect the cost of the next.

    A device keeps the graph of one row count; another row count needs a new graph.
    """

    def __init__(self, forwards: Forwards) -> None:
        self._forwards = forwards
        self._rows = self._alike = 0

    def charge_ms(self, rows: int, behind: float = 0.0) -> float:
        """Milliseconds of the next forward, which is then added to the history."""
        self._alike = self._alike + 1 if rows == self._rows else 0
        self._rows = rows
        return self._forwards.forward_ms(rows, self._alike, behind)


def read(path: Path) -> Machine:
    """The machine in a file. Raises ConfigError, as `parse` does, and for a missing file."""
    return parse(_text(path), str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The machine table {path} cannot be read: {unreadable(error)}."
        ) from error


class _Cards(msgspec.Struct):
    device: tuple[Card, ...] = ()


def _fault(error: msgspec.ValidationError, kind: type, origin: object) -> str:
    where, sentence = wording.fault(error, kind)
    return f"{origin}: {where or 'the table'}: {sentence}"


def cards(path: Path) -> tuple[Card, ...]:
    """The devices of a table, whose other parts may be missing. Raises ConfigError."""
    try:
        table = tomllib.loads(_text(path))
        found = msgspec.convert(table, _Cards).device
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error
    except msgspec.ValidationError as error:
        raise ConfigError(_fault(error, _Cards, path), fix=_CARD) from error
    if not found:
        raise ConfigError(f"{path} describes no [[device]].", fix=_CARD)
    for hole in _card_holes(found):
        raise ConfigError(f"{path} has a hole: {hole}.", fix=_CARD)
    return found


def parse(text: str, origin: str) -> Machine:
    """The machine of a TOML text; `origin` names it in errors.

    Raises:
        ConfigError: the text is no table of a machine, or figures are missing.
    """
    try:
        machine = msgspec.convert(tomllib.loads(text), Machine, str_keys=True)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{origin} is not valid TOML: {error}.") from error
    except msgspec.ValidationError as error:
        raise ConfigError(_fault(error, Machine, origin), fix=_EXAMPLE) from error
    for hole in _holes(machine):
        raise ConfigError(f"{origin} has a hole: {hole}.", fix=_EXAMPLE)
    return machine


def _holes(machine: Machine) -> Iterator[str]:
    """Each fault of a table, in words."""
    for role in ("target", "draft"):
        forwards: Forwards = getattr(machine, role)
        if 1 not in forwards.steady_ms:
            yield f"{role}.steady_ms does not say what one row costs"
        for field in ("steady_ms", "change_ms", "settle_ms", "look_ms", "read_row_ms"):
            yield from _wrong(f"{role}.{field}", getattr(forwards, field))
        yield from _wrong(f"{role}.trip_ms", forwards.trip_ms)
        if min(forwards.steady_ms.values()) == 0.0:
            yield f"{role}.steady_ms says that a forward takes no time"
    for field in ("round_ms", "row_ms", "asked_ms"):
        yield from _wrong(f"host.{field}", getattr(machine.host, field))
    if machine.head is not None:
        yield from _wrong("head.token_ms", machine.head.token_ms)
    yield from _card_holes(machine.device)


def _card_holes(found: Sequence[Card]) -> Iterator[str]:
    for place, card in enumerate(found):
        sizes = [size for size in (card.memory_bytes, card.memory_gib) if size is not None]
        if len(sizes) != 1:
            yield f"device {card.name} has no memory_bytes and no memory_gib, or both"
        elif not 0 < sizes[0] * (1 if card.memory_gib is None else _GIB) <= _MAX_BYTES:
            yield f"device {card.name} has {sizes[0]}, which is no size of memory"
        if card.gb_per_second is not None and not 0 < card.gb_per_second <= _MAX_GB_PER_SECOND:
            yield f"device {card.name} has {card.gb_per_second} GB/s, which is no bandwidth"
        if card.name in {other.name for other in found[:place]}:
            yield f"device {card.name} is described more than once"
    if sum(card.kind == "cpu" for card in found) > 1:
        yield "there is more than one device of kind cpu"


def _wrong(name: str, curve: Any) -> Iterator[str]:
    values = curve if isinstance(curve, dict) else {1: curve or 0.0}
    if not values:
        yield f"{name} is empty"
    if list(values) != sorted(values):
        yield f"the row counts of {name} do not ascend"
    for rows, ms in values.items():
        if not 1 <= rows <= MAX_ROWS:
            yield f"{name} has {rows} rows, which is not from 1 to {MAX_ROWS}"
        if not 0.0 <= ms <= MAX_MS or math.isnan(ms):
            yield f"{name} says {ms} ms, which is not from 0 to {MAX_MS:g}"


def _at(curve: Curve, rows: int) -> float:
    """A curve's value at `rows`, interpolated between neighbours and constant beyond the ends."""
    if not isinstance(curve, dict):
        return curve
    counts = list(curve)
    place = bisect_left(counts, rows)
    if place == len(counts):
        return curve[counts[-1]]
    above = counts[place]
    if above == rows or place == 0:
        return curve[above]
    below = counts[place - 1]
    share = (rows - below) / (above - below)
    return curve[below] + share * (curve[above] - curve[below])
