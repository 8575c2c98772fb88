"""From `Load` to a model that answers: weights, contexts, drafters, controller, engine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from localspec import drafters
from localspec.config import Placement
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, Costs
from localspec.engine import calibrate, exactness
from localspec.engine.exactness import Shape
from localspec.engine.prefill import IdlePrefill
from localspec.engine.step import Engine, Limits
from localspec.errors import EngineError, ModelError
from localspec.protocol import DeviceMemory, Load, Ready
from localspec.types import Drafter, Row
from localspec.worker.intake import Intake
from localspec.worker.profile import Profile
from localspec.worker.router import Router

if TYPE_CHECKING:
    from localspec.engine.llama import Buffer, Context, Model

_log = logging.getLogger("localspec.worker")

OnProgress = Callable[[str, float], None]
"""Called with a stage ("target", "draft", "warmup", "probe") and a fraction from 0 to 1."""

_SAVE_SECONDS = 60.0
"""A worker may be killed at any time; then no more than this of learning is lost."""

_PROGRESS_STEP = 0.01


@dataclass(slots=True)
class Loaded:
    """A model that answers, and everything that belongs to it. A context manager."""

    ready: Ready
    model: Model
    engine: Engine
    intake: Intake
    router: Router
    profile: Profile
    _parts: ExitStack
    _measuring: Iterator[None]
    _prefill: IdlePrefill
    _unmeasured: bool = True
    _saved_steps: int = -1
    _saved_at: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.profile.save()
        self._parts.close()

    def cost_ms_by_rows(self, cells: int = 0) -> dict[int, float]:
        """The target's measured staircase behind so many tokens."""
        return {
            rows: round(seconds * 1000, 3)
            for rows, seconds in self.profile.costs.measured_rows(cells).items()
        }

    def draft_ms(self, cells: int = 0) -> dict[str, float]:
        """What one more drafted token costs of each source that is not free; a guess at first."""
        return {
            name: round(self.profile.costs.draft(name, 1, 1, cells) * 1000, 3)
            for name, drafter in self.engine.drafters.items()
            if not drafter.free
        }

    @property
    def measuring(self) -> bool:
        """Whether an idle engine has costs to measure.

        That empties the last slot, so it waits while a conversation is there: that is worth more.
        """
        return self._unmeasured and not self.engine.remembers(self.engine.target.n_slots - 1)

    def rest(self, now: float) -> bool:
        """One short piece of work for an idle engine; False when there is none left.

        A request that comes meanwhile waits for two forwards at most. `now` is in seconds,
        monotonic.
        """
        if self.measuring:
            self._unmeasured = next(self._measuring, self) is None
            if self._unmeasured:
                return True
        if self._prefill.advance(now):
            return True
        if self.engine.steps != self._saved_steps and now - self._saved_at >= _SAVE_SECONDS:
            self._saved_steps, self._saved_at = self.engine.steps, now
            self.profile.save()
        return False


def load(command: Load, on_progress: OnProgress) -> Loaded:
    """Load the pair and put the engine together. The files passed the supervisor's header check.

    Raises:
        ModelError: llama.cpp refused a file or its context.
        ConfigError: config names a drafter that does not exist.
    """
    if command.config.engine.exactness == "strict":
        os.environ["GGML_CPU_TILED_MM"] = "0"  # read once, when llama_cpp is imported
    with ExitStack() as parts:
        loader = _Loader(command, on_progress, parts)
        target = loader.target()
        profile = Profile.open(
            loader.files, command.config.engine, loader.build, command.safe_kernels
        )
        fresh = profile.shape is None
        if profile.shape is None:
            profile.shape = loader.probe(target, profile.costs)
            profile.save()  # probing takes long; a worker killed early must not do it again
        shape = profile.shape
        sources, off = loader.drafters(target, shape)
        for name, drafter in sources.items():
            if not drafter.free and loader.size_ratio:
                profile.costs.expect_draft(name, loader.size_ratio)
        engine = Engine(
            target,
            sources,
            Controller(profile.costs, profile.acceptance, multiple=shape.multiple),
            ends=target.model.eog,
            shape=shape,
            limits=Limits(command.config.engine.prefill_rows, command.config.speculation.max_draft),
            clock=time.monotonic,
        )
        return Loaded(
            ready=loader.ready(target, engine, shape, off),
            model=target.model,
            engine=engine,
            intake=Intake(target.model, engine.context, sources),
            router=Router(sources, pair_fits=loader.pair_fits, can_roll_back=shape.can_roll_back),
            profile=profile,
            _parts=parts.pop_all(),
            _measuring=_measuring(profile.costs, engine, fresh=fresh),
            _prefill=IdlePrefill(engine),
        )


def _measuring(costs: Costs, engine: Engine, *, fresh: bool) -> Iterator[None]:
    """Measure what is not known yet, in the last slot: a short forward or draft for each `next`.

    Of a `fresh` profile nothing is known well.
    """
    target, clock = engine.target, time.perf_counter
    slot = target.n_slots - 1
    missing = sorted(set(POINTS) - (set() if fresh else set(costs.measured_rows())))
    yield from calibrate.staircase(target, missing, slot, costs.measured, clock)
    if costs.furthest < calibrate.far_tokens(target):
        for forward in calibrate.far_measurements(engine, calibrate.REPEATS, clock):
            costs.measured(*forward)
            yield
    # Drafts are kept relative to the target, so they come second.
    for drafter in engine.drafters.values():
        if not drafter.free and drafter.name not in costs.measured_drafters:
            try:
                for cost in calibrate.rehearsals(drafter, calibrate.REPEATS, slot, clock):
                    costs.measured_draft(
                        cost.name, cost.pending, cost.depth, cost.seconds, cost.cells
                    )
                    yield
            except EngineError:
                _log.exception("drafter %s failed while it was measured", drafter.name)


class _Loader:
    """The steps of one load; what it opens is closed by `parts`, the newest first."""

    def __init__(self, command: Load, on_progress: OnProgress, parts: ExitStack) -> None:
        self.files = [Path(name) for name in (command.target_path, command.draft_path) if name]
        for file in self.files:
            if not file.is_file():
                raise ModelError(f"There is no file {file}.", fix="Run `localspec models list`.")
        for kind in command.config.speculation.drafters:
            drafters.takes(kind)  # a wrong name is told before anything large is loaded
        self._command = command
        self._config = command.config
        self._on_progress = on_progress
        self._parts = parts
        self._devices: list[DeviceMemory] = []
        self.pair_fits = True
        self._began = time.monotonic()

    @property
    def size_ratio(self) -> float:
        """The draft's file by the target's, 0 without one: memory limits what a token costs."""
        target, *draft = (file.stat().st_size for file in self.files)
        return min(1.0, sum(draft) / target)

    @property
    def build(self) -> str:
        """Version and features of llama.cpp, in its own words."""
        from localspec.engine.llama import build_info  # noqa: PLC0415 - see `load`

        return build_info()

    def target(self) -> Context:
        """The target, with a context for every slot."""
        model = self._model("target", self.files[0], self._config.engine.target)
        return self._context("target", model, self._config.engine.target)

    def probe(self, target: Context, costs: Costs) -> Shape:
        """What this build's kernels allow; some seconds for a large model, kept in the profile.

        Its forwards are the first that is known of the costs.
        """
        self._on_progress("probe", 0.0)
        timed = calibrate.Timed(target, costs.measured, time.perf_counter)
        kind = exactness.strict if self._config.engine.exactness == "strict" else exactness.standard
        shape = kind(timed, can_roll_back=target.can_roll_back())
        self._on_progress("probe", 1.0)
        return shape

    def drafters(self, target: Context, shape: Shape) -> tuple[dict[str, Drafter], str | None]:
        """The sources that can draft for this target, and why others cannot, if any cannot."""
        if not shape.can_roll_back:
            return {}, "This model's memory cannot forget rejected tokens."
        if self._config.engine.exactness == "strict" and not shape.bitwise:
            return {}, "No class of batch sizes agrees bit for bit on this build."
        sources: dict[str, Drafter] = {}
        why: str | None = None
        model = target.model
        offered: dict[str, Any] = {
            "n_vocab": target.n_vocab,
            "ends": model.eog,
            "piece": model.piece,
        }
        for kind in self._config.speculation.drafters:
            if "context" in drafters.takes(kind):
                offered["context"], why = self._draft(target)
                self.pair_fits = why is None
                if offered["context"] is None:
                    continue
            sources[kind] = drafters.load(kind, **offered)
            self._parts.callback(sources[kind].close)
        return sources, why

    def _draft(self, target: Context) -> tuple[Context | None, str | None]:
        """The draft's context; None without one, with the reason if there is a draft to blame."""
        if len(self.files) < 2:  # noqa: PLR2004 - target and draft
            return None, None
        placement = self._config.engine.draft
        model = self._model("draft", self.files[1], placement)
        if difference := _difference(target.model, model):
            return None, f"The draft does not share the target's vocabulary: {difference}."
        stepping = _stepping(placement, model)
        alone = stepping.flash_attention == "off"
        context = self._context("draft", model, stepping, streams=alone)
        if not context.can_roll_back():
            return None, "The draft's memory cannot forget rejected tokens."
        return context, None

    def _model(self, stage: str, file: Path, placement: Placement) -> Model:
        from localspec.engine.llama import Model  # noqa: PLC0415 - see `load`

        said = 0.0

        def progressed(fraction: float) -> None:
            nonlocal said
            if fraction >= said + _PROGRESS_STEP or fraction >= 1.0 > said:
                said = fraction
                self._on_progress(stage, fraction)

        self._on_progress(stage, 0.0)
        model = Model.load(
            file, placement, safe_kernels=self._command.safe_kernels, on_progress=progressed
        )
        self._parts.callback(model.close)
        self._holds(stage, model.buffers)
        return model

    def _context(
        self, stage: str, model: Model, placement: Placement, *, streams: bool = False
    ) -> Context:
        from localspec.engine.llama import Context  # noqa: PLC0415 - see `load`

        engine = self._config.engine
        context = Context.open(
            model,
            placement,
            slots=engine.slots,
            context=min(engine.context, model.context_train or engine.context),
            rows=max(
                engine.prefill_rows,
                engine.slots * (1 + self._config.speculation.max_draft),
                *POINTS,
            ),
            streams=streams or engine.exactness == "strict",
        )
        self._parts.callback(context.close)
        self._holds(stage, context.buffers)
        self._on_progress("warmup", 0.0)
        context.decode([Row(0, 0, 0, wants_logits=True)])  # the first forward also maps the file
        context.truncate(0, 0)
        self._on_progress("warmup", 1.0)
        return context

    def _holds(self, stage: str, buffers: Sequence[Buffer]) -> None:
        self._devices += (
            DeviceMemory(buffer.device, f"{stage} {buffer.what}", buffer.bytes)
            for buffer in buffers
        )

    def ready(self, target: Context, engine: Engine, shape: Shape, off: str | None) -> Ready:
        """What the worker says of itself."""
        command, model = self._command, target.model
        return Ready(
            model=command.model,
            target_path=command.target_path,
            draft_path=command.draft_path,
            n_vocab=model.n_vocab,
            context=engine.context,
            context_train=model.context_train,
            parameters=model.parameters,
            size_bytes=model.size_bytes,
            drafters=list(engine.drafters),
            speculation_off=off,
            exactness="strict"
            if self._config.engine.exactness == "strict" and shape.bitwise
            else "standard",
            exactness_detail=shape.detail,
            safe_kernels=command.safe_kernels,
            llama_build=self.build,
            devices=self._devices,
            load_seconds=time.monotonic() - self._began,
            row_multiple=shape.multiple,
        )


def _stepping(placement: Placement, model: Model) -> Placement:
    """The placement of a model that decodes one row of each session at a time.

    That is where llama.cpp's flash attention is slowest on a CPU: behind 300 tokens a 0.5B draft
    takes 24 ms a token with it and 18 without, behind 6000 tokens 155 and 41. Without it a row
    attends to every cell of its stream, other sessions' too, so each slot gets a stream of its own.
    """
    if model.on_cpu and placement.flash_attention == "auto" and placement.kv_type == "f16":
        return msgspec.structs.replace(placement, flash_attention="off")
    return placement


def _difference(target: Model, draft: Model) -> str:
    """The first token found that the two models write differently; empty when there is none.

    A sample: the supervisor has compared the headers, this guards against files that changed.
    """
    for token in (*range(256), *range(256, min(target.n_vocab, draft.n_vocab), 97)):
        if token < draft.n_vocab and target.piece(token) != draft.piece(token):
            return f"token {token} is {target.piece(token)!r} there and {draft.piece(token)!r} here"
    return ""
