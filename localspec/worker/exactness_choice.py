"""Decides once what `exactness = "auto"` means for a pair on this machine, and keeps it on disk.

It is decided again when the files, the build of llama.cpp or the settings of the engine change.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import msgspec

from localspec import paths
from localspec.catalog.devices import Device
from localspec.catalog.plan import Plan
from localspec.engine import calibrate, scheduler
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import Shape
from localspec.engine.pieces import Pieces
from localspec.engine.step import Engine
from localspec.wire.messages import Load
from localspec.worker import planning, strict_cost
from localspec.worker.load_files import adapter_files
from localspec.worker.profile import fingerprint
from localspec.worker.strict_cost import RequestForwards, StrictCost

_log = logging.getLogger("localspec.worker")

_STEPS, _CHUNKS = 16, 3
"""Repeats of decodes and of chunks; the fastest counts. A chunk lasts up to a second."""
UNSURE_SECONDS = 86_400.0
"""A verdict found on a busy machine holds for this long."""
_QUIET = 1.25
"""On an idle machine half of the forwards take less than this many times the fastest."""


@dataclass(slots=True)
class ExactnessChoice:
    """The stored verdict on one pair, None until there is one."""

    path: Path
    verdict: StrictCost | None

    @classmethod
    def open(cls, command: Load, files: Sequence[Path], build: str, now: float) -> Self:
        """Read the verdict found before; `now` is in seconds since 1970.

        A damaged file counts as no verdict, and so does an unsure verdict after a day.
        """
        known = [*files, *adapter_files(command)]
        key = fingerprint(known, command.config.engine, build, command.safe_kernels)
        path = paths.cache_dir() / "exactness" / f"{files[0].stem}-{key}.json"
        try:
            verdict = msgspec.json.decode(paths.read_own(path), type=StrictCost)
            if verdict.sure or now - path.stat().st_mtime < UNSURE_SECONDS:
                return cls(path, verdict)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            _log.warning("choice ignored path=%s reason=%s", path, error)
        return cls(path, None)

    def keep(self, verdict: StrictCost) -> StrictCost:
        """Write the verdict, and return it. An error of the disk is only logged."""
        self.verdict = verdict
        try:
            paths.write_atomically(self.path, msgspec.json.encode(verdict))
        except OSError as error:
            _log.warning("choice not saved path=%s reason=%s", self.path, error)
        return verdict


def with_exactness(command: Load, exactness: Literal["standard", "strict"]) -> Load:
    """The command, with "auto" decided."""
    engine = msgspec.structs.replace(command.config.engine, exactness=exactness)
    config = msgspec.structs.replace(command.config, engine=engine)
    return msgspec.structs.replace(command, config=config)


def expected(command: Load, file: Path, plan: Plan) -> bool:
    """Whether strict use is likely to cost nothing, judged by the kernels of build and processor.

    Where our kernels compute all products of weights and attention, a row's bits do not depend on
    the rows beside it, unless the many rows of prompts are computed by tiles. A wrong guess makes
    the forwards of the first prompts smaller.
    """
    from localspec.engine.llama.library import ours  # noqa: PLC0415 - see `assemble.load`

    placement = command.config.engine.target
    attends = ours.attends and placement.kv_type == "f16" and placement.flash_attention != "off"
    if command.safe_kernels or plan.target.gpu_layers or not (ours.kernels and attends):
        return False
    if ours.tiled_rows:
        return False
    mine = {name.upper() for _, name in ours.formats}
    weights = (tensor for tensor in planning.header_of(file).tensors if len(tensor.shape) > 1)
    return {tensor.type.name for tensor in weights} <= mine


def by_memory(command: Load, files: Sequence[Path], there: Sequence[Device]) -> StrictCost | None:
    """The verdict if plans alone decide it, before anything is loaded; None otherwise.

    Raises as `planning.plans`.
    """
    strict, standard = (
        planning.plans(with_exactness(command, exactness), files, there)[0]
        for exactness in ("strict", "standard")
    )
    if (strict.target, strict.draft) != (standard.target, standard.draft):
        return StrictCost(False, "strictly, less of the model would be on the GPUs")
    asked = command.config.engine.context > 0
    return strict_cost.too_few_slots(strict.slots, standard.slots) or strict_cost.context_too_short(
        strict.context, standard.context, asked=asked
    )


def looked(engine: Engine) -> Pieces[StrictCost | None]:
    """The verdict after some forwards in standard use; None where strict use may be cheap.

    Pauses after each forward. The slots are empty and used by nothing else meanwhile.
    """
    rollback, target = engine.shape.rollback, engine.target
    if rollback == "none":
        return StrictCost(
            False, "strict is not to be had, as this model's memory cannot forget rows"
        )
    least = yield from classes.least_multiple(target, rollback)
    if least == 1:  # a single row needs no padding, so it costs no more
        return None
    if rollback == "restore":
        why = "single rows have other bits here, and this model's state would keep padding"
        return StrictCost(False, f"strict is not to be had, as {why}")
    spans = yield from calibrate.in_turns(target, [1, least], _STEPS, engine.clock)
    return strict_cost.too_slow_at_once(min(spans[least]), min(spans[1]), sure=_quiet(spans))


def priced(engine: Engine, shape: Shape, prefill_rows: int) -> Pieces[StrictCost]:
    """The verdict on a class by its measured costs; pauses after each forward.

    The slots are used by nothing else meanwhile.
    """
    target, clock = engine.target, engine.clock
    if not shape.bitwise:
        return StrictCost(False, "strict is not to be had, as no class of forwards agrees here")
    together = 1 if shape.alone else shape.max_rows // shape.multiple
    if too_few_slots := strict_cost.too_few_slots(together, target.n_slots):
        return too_few_slots
    step, most = shape.multiple, shape.max_rows // shape.multiple * shape.multiple
    most = min(most, target.context)
    steps = yield from calibrate.in_turns(target, [1, step], _STEPS, clock)
    (seconds,) = (yield from calibrate.in_turns(target, [most], 1, clock))[most]
    chunk = scheduler.chunk_rows(seconds / most, alone=True, most=prefill_rows)
    chunk = min(chunk, target.context)
    reads = yield from calibrate.in_turns(target, [most, chunk], _CHUNKS, clock)
    read, free = min(reads[most]) / most, min(reads[chunk]) / chunk
    forwards = RequestForwards(min(steps[step]), min(steps[1]), read, min(read, free))
    return strict_cost.strict_cost_of(forwards, sure=_quiet(steps))


def pricing(multiple: int) -> int:
    """The most forwards that measuring the cost of a class takes."""
    return _STEPS * (1 + (multiple > 1)) + 1 + 2 * _CHUNKS


def _quiet(spans: Mapping[int, Sequence[float]]) -> bool:
    return all(statistics.median(each) <= _QUIET * min(each) for each in spans.values())
