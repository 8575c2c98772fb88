"""Loads by one plan, step by step: weights, contexts, probe, drafters, the worker's `Ready`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from localspec import drafters, paths
from localspec.catalog import templates
from localspec.catalog.plan import DRAFT_ROWS, Plan
from localspec.config import Placement
from localspec.control.costs import POINTS, Costs
from localspec.drafters._translated import Translation
from localspec.engine import calibrate, computes
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import Shape
from localspec.engine.kv.cells import unasked
from localspec.engine.llama import cores
from localspec.engine.llama.shortlist import Shortlist
from localspec.engine.simulation import Hardware, RealHardware, SimulatedHardware
from localspec.engine.step import Engine
from localspec.errors import no_numbers
from localspec.types import Backend, Drafter, FedBackend
from localspec.wire.messages import DeviceMemory, Load, Ready
from localspec.worker import heads, overlap_choice, planning, snapshot_choice, translation
from localspec.worker.corpus import CorpusIndex
from localspec.worker.early_exit import part as early_part
from localspec.worker.exactness_choice import with_exactness
from localspec.worker.exactness_probe import BackgroundProbe
from localspec.worker.fed_heads import FedHead
from localspec.worker.kernel_speedup import KernelSpeedup
from localspec.worker.load_files import adapter_files, model_files
from localspec.worker.profile import Profile
from localspec.worker.progress import OnProgress, of_stage
from localspec.worker.thread_choice import ThreadChoice

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.library import Buffer
    from localspec.engine.llama.model import Model
    from localspec.engine.llama.rpc import Device
    from localspec.engine.speculation.states import FeatureHead


Exactness = Literal["strict", "standard"]

_TELL_SECONDS = 0.1
"""Seconds between two reports of progress."""
_PROBE_SECONDS = 5.0
"""Seconds that a load may spend on lines of the strict probe that can also be probed while idle."""


class Loader:
    """The steps of one load; `parts` closes everything that it opens, the newest first.

    `lent` are the remotes' devices, which are for the target alone. With `claims` the exactness of
    the command is final; otherwise it may change while the model is loaded.
    """

    def __init__(  # noqa: PLR0913 - all that one load depends on
        self,
        command: Load,
        plan: Plan,
        lent: Sequence[Device],
        on_progress: OnProgress,
        parts: ExitStack,
        *,
        claims: bool = True,
    ) -> None:
        self.files = model_files(command)
        if plan.draft is None:
            del self.files[1:]
        self.plan = plan
        self.command = command
        self._config = command.config
        self._claims = claims
        self._on_progress = on_progress
        self._parts = parts
        self.place: Hardware = (
            SimulatedHardware(command.machine) if command.machine else RealHardware()
        )
        self._devices: list[DeviceMemory] = []
        self._lent = lent
        self._no_draft: str | None = None
        self._leaves_snapshots = False
        self.head: FeatureHead | None = None
        self.fed = FedHead(command, plan.head, remote=bool(lent), parts=parts)
        self.corpus: CorpusIndex | None = None
        self.translation: Translation | None = None
        self.threads = ThreadChoice(
            command,
            lambda: self.strict,
            at_once=claims and self._config.engine.exactness == "strict",
        )
        self.shortlist: Shortlist | None = None
        self._began = time.monotonic()

    @property
    def strict(self) -> bool:
        """Whether the command is for strict use, claimed or not."""
        return self._config.engine.exactness == "strict"

    @property
    def pair_fits(self) -> bool:
        """Whether nothing keeps the draft model from drafting, if there is one."""
        return self._no_draft is None

    def size_ratio(self, drafter: str) -> float:
        """A drafter's bytes as a share of the target's, 0 without a file; estimates its cost."""
        if drafter == self.fed.part:
            return self.fed.share(self.files[0])
        target, *draft = (file.stat().st_size for file in self.files)
        return min(1.0, sum(draft) / target)

    @property
    def build(self) -> str:
        """Version and features of llama.cpp, in its own words."""
        from localspec.engine.llama.library import build_info  # noqa: PLC0415 - see `assemble.load`

        return build_info()

    def target(self) -> Context:
        """Load the target, with a context for every slot.

        If a head reads its states or features, forwards leave these from the first one on, so that
        probes and measurements see the same forwards as decoding.
        """
        placement = planning.placed(self._config.engine.target, self.plan.target)
        lent = {device.buffers: device.handle for device in self._lent}
        blocks = sum(part.blocks for part in self.plan.parts if part.model == "target")
        first = blocks - self.plan.target.gpu_layers
        apart = range(first, first + self.plan.target.experts)
        model = self._model("target", self.files[0], placement, lent, apart)
        for adapter in self.command.adapters:
            model.adopt(Path(adapter.path))
        if self.command.template is not None:
            model.chat_template = self.command.template
        rows = max(self.plan.rows, *POINTS)
        context = self._context("target", model, placement, rows=rows, streams=self.strict)
        if context.snapshots and not self.command.machine:
            snapshot_choice.choose(context, self.place.clock)
        self._leaves_snapshots = context.snapshots > 0
        self.head = self._find_head(context)
        if context.rollback == "restore":
            context.show()  # states show a probe what logits hardly ever do
        self.fed.tap(context)
        return context

    def probe(self, target: Context, priced: Backend, costs: Costs) -> Shape:
        """The class of forwards that this build's kernels allow, probed before any answer.

        The costs learn from its forwards.
        """
        self._on_progress("probe", 0.0)
        timed = calibrate.Timed(priced, costs.measured, self.place.clock)
        if self.strict:
            until = time.monotonic() + _PROBE_SECONDS
            shape = classes.strict(
                timed,
                rollback=target.rollback,
                patience=lambda: time.monotonic() < until,
                cells=unasked(target),
                tell=self._event_writer(),
            )
        else:
            shape = classes.standard(timed, rollback=target.rollback)
        self._on_progress("probe", 1.0)
        return shape

    def _event_writer(self) -> Callable[[classes.Step], None]:
        """A function that reports now and then how many forwards a probe has made."""
        tell_at = 0.0

        def tell(step: classes.Step) -> None:
            nonlocal tell_at
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + _TELL_SECONDS
                why = f"checking that drafts change nothing, {step.done} of {step.total}"
                self._on_progress("probe", step.done / step.total, why)

        return tell

    def arrange(self, target: Context, plan: Plan, exactness: Exactness) -> None:
        """Rearrange the target's memory for this exactness. Slots are empty. Raises as `open`."""
        strict = exactness == "strict"
        target.arrange(
            streams=strict,
            context=plan.context,
            cells=plan.start_cells,
            most_cells=plan.cells,
            snapshots=self._snapshots(plan),
        )
        self.plan, self.command = plan, with_exactness(self.command, exactness)
        self._config = self.command.config
        self.threads.update(target)

    def profile(self, exactness: Exactness) -> Profile:
        """The profile of this pair with this exactness."""
        plan = self.plan
        probed = plan.context if exactness == "strict" else 0  # a claim covers the whole context
        shows = self.head is not None  # forwards that show states may differ
        leaves = (*self.fed.taps, self._snapshots(plan))  # as may those that leave these
        where = (plan.target, plan.draft, plan.slots, probed, cores.counts(), shows, *leaves)
        command = with_exactness(self.command, exactness)
        return Profile.open(
            [*self.files, *adapter_files(self.command)],
            command.config.engine,
            self.build,
            command.safe_kernels,
            command.machine,
            where,
        )

    def drafters(self, target: Context, shape: Shape) -> tuple[dict[str, Drafter], str | None]:
        """The usable drafters, and the reason why others are not, if there are others."""
        if shape.rollback == "none":
            return {}, "This model's memory cannot forget rejected tokens."
        if self._claims and self.strict and not shape.bitwise:
            return {}, (
                'engine.exactness is "strict", and on this device no forwards agree bit for bit: '
                'nothing is drafted. "auto" drafts.'
            )
        sources: dict[str, Drafter] = {}
        offers = self._offers(target)
        for kind in self._config.speculation.drafters:
            parts = {name: offers[name]() for name in drafters.takes(kind)}
            if all(part is not None for part in parts.values()):
                sources[kind] = drafters.load(kind, **parts, translation=self.translation)
                self._parts.callback(sources[kind].close)
        return sources, self._no_draft

    def _offers(self, target: Context) -> dict[str, Callable[[], Any]]:
        """Functions that make each part that a drafter may name, or None if it is missing."""
        model, machine = target.model, self.command.machine
        return {
            "n_vocab": lambda: target.n_vocab,
            "ends": lambda: model.eog,
            "piece": lambda: model.piece,
            "context": lambda: self._draft_context(target),
            "head": lambda: self.head,
            "corpus": lambda: self._corpus(model),
            "early": lambda: early_part(target, alone=not self.fed.part and not machine),
            "eagle3": lambda: self._fed("eagle3", target),
            "mtp": lambda: self._fed("mtp", target),
        }

    def _draft_context(self, target: Context) -> Backend | None:
        context, self._no_draft = self._draft(target)
        return context

    def _fed(self, kind: str, target: Context) -> FedBackend | None:
        """The context of the head that is fed with the target's states, if it is of this kind."""
        if kind != self.fed.part:
            return None
        placement, streams = self._config.engine.target, self.strict or not self._claims
        opened = self.fed.open(
            target, placement=placement, context=self.plan.context, streams=streams
        )
        if opened is None:
            return None
        if self.threads.tuner:
            opened.join(self.threads.tuner)
        weights = () if opened.model is target.model else opened.model.buffers
        self._holds("head", (*weights, *opened.buffers))
        return self.place.fed(opened)

    def _corpus(self, model: Model) -> CorpusIndex | None:
        """The index of the user's folders, None where the configuration names none."""
        if not self._config.draft.corpus:
            return None
        watch = not self.command.machine
        made = CorpusIndex(self._config.draft.corpus, model, self.command.model, watch=watch)
        self._parts.callback(made.close)
        self.corpus = made
        return made

    def _draft(self, target: Context) -> tuple[Backend | None, str | None]:
        """The draft's context, or None with the reason; no reason where there is no draft."""
        if self.command.no_draft:
            return None, self.command.no_draft
        if len(self.files) < 2 or self.plan.draft is None:  # noqa: PLR2004 - target and draft
            left_out = self.command.draft_path and self.plan.draft is None
            return None, "There is no memory for the draft model." if left_out else None
        placement = planning.placed(self._config.engine.draft, self.plan.draft)
        model = self._model("draft", self.files[1], placement)
        wanted = self._config.speculation.verify
        self.translation, why = translation.needed(target.model, model, self.files, wanted)
        if why:
            return None, why
        stepping = planning.own().stepping(placement, on_cpu=model.on_cpu)
        alone = stepping.flash_attention == "off" or self.strict or not self._claims
        rows = min(DRAFT_ROWS, self.plan.rows)
        context = self._context("draft", model, stepping, rows=rows, streams=alone)
        if not self.command.machine and not computes.computes(context):
            return None, no_numbers(model.file).message
        if context.rollback == "none":
            return None, "The draft's memory cannot forget rejected tokens."
        words = Shortlist.of(model.n_vocab, model.special_tokens())
        beside = overlap_choice.on_host(self._config, self.plan)
        narrows = model.on_cpu and not self.command.machine and not beside
        if words and narrows and context.narrow(words):
            self.shortlist = words
        if self.threads.tuner and not placement.threads and not beside:
            context.join(self.threads.tuner)
        return self.place.context(context, "draft"), None

    def _find_head(self, target: Context) -> FeatureHead | None:
        """The target's feature head, None where there is none. The host computes it."""
        wanted = any("head" in drafters.takes(kind) for kind in self._config.speculation.drafters)
        if not wanted or self.command.safe_kernels or not self.place.has_head:
            return None
        from localspec.engine.speculation.head import threads  # noqa: PLC0415 - see `assemble.load`

        file, count = self.files[0], threads(beside_target=target.model.on_cpu)
        places = file.parent / "heads", paths.shipped("models/heads")
        found = heads.find(file, *places, threads=count)
        if found is None:
            return None
        self._parts.callback(found.close)
        return self.place.head(found) if target.show() else None

    def _model(
        self,
        stage: str,
        file: Path,
        placement: Placement,
        lent: Mapping[str, int] = MappingProxyType({}),
        apart: Sequence[int] = (),
    ) -> Model:
        from localspec.engine.llama.model import Model  # noqa: PLC0415 - see `assemble.load`

        model = Model.load(
            file,
            placement,
            safe_kernels=self.command.safe_kernels,
            lent=lent,
            apart=apart,
            predicts=stage == "target" and self.fed.predicts,
            on_progress=of_stage(stage, self._on_progress),
        )
        self._parts.callback(model.close)
        self._holds(stage, model.buffers)
        return model

    def _snapshots(self, plan: Plan) -> int:
        """The snapshots that forwards leave under a plan; 0 where they were found not to pay."""
        return plan.snapshots if self._leaves_snapshots else 0

    def _context(
        self, stage: str, model: Model, placement: Placement, *, rows: int, streams: bool
    ) -> Context:
        from localspec.engine.llama.context import Context  # noqa: PLC0415 - see `assemble.load`

        context = Context.open(
            model,
            placement,
            slots=self.plan.slots,
            context=self.plan.context,
            rows=rows,
            outputs=self.plan.outputs,
            streams=streams,
            cells=self.plan.start_cells,
            most_cells=self.plan.cells,
            lazy=planning.own().lazy(placement, on_cpu=model.on_cpu),
            snapshots=self.plan.snapshots if stage == "target" else 0,
            adapts=stage == "target",
        )
        self._parts.callback(context.close)
        self._holds(stage, context.buffers)
        self._on_progress("warmup", 0.0)
        context.find_rollback()  # the first forward also maps the file
        if stage == "target" and not self.command.machine:
            fast = model.on_cpu and not self.command.safe_kernels
            computes.require_numbers(context, model.file, fast_kernels=fast)
        self._on_progress("warmup", 1.0)
        return context

    def _holds(self, stage: str, buffers: Sequence[Buffer]) -> None:
        self._devices += (
            DeviceMemory(buffer.device, f"{stage} {buffer.what}", buffer.bytes)
            for buffer in buffers
        )

    def speedup(self, engine: Engine, profile: Profile) -> KernelSpeedup:
        """The speed-up of our kernels, where the target uses them."""
        from localspec.engine.llama.library import ours  # noqa: PLC0415 - as above

        weights = (held.device for held in self._devices if held.what == "target model")
        used = not self.command.machine and all(map(_is_host, weights))
        return KernelSpeedup(engine, profile, ours.kernels if used else "", ours.switch)

    def ready(
        self, target: Context, engine: Engine, probe: BackgroundProbe, off: str | None, why: str
    ) -> Ready:
        """The worker's description of itself."""
        command, model, shape = self.command, target.model, engine.shape
        names = {device.name: device.buffers for device in self._lent}
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
            exactness="strict" if self.strict and shape.bitwise else "standard",
            exactness_detail=probe.detail,
            safe_kernels=command.safe_kernels,
            llama_build=self.build,
            devices=self._devices,
            load_seconds=time.monotonic() - self._began,
            row_multiple=shape.multiple,
            layers={names.get(name, name): span for name, span in model.layers.items()},
            slots=self.plan.slots,
            cells=self.plan.cells,
            placement=self.plan.sentence() + why,
            takes=planning.takes(command, self.files, self.plan),
            gpus=planning.cards(),
            template=self._template(model),
            head=self.fed.beside(self.head),
            rollback=snapshot_choice.described(target.rollback, target.snapshots),
        )

    def _template(self, model: Model) -> str:
        """The origin of the chat template; "" where it is the file's own, or none is needed."""
        if self.command.template is not None:
            return "yours, by [models.templates]"
        return "" if model.chat_template else f"{templates.NONE}; {templates.REMEDY}"


def _is_host(buffer: str) -> bool:
    """Whether the CPU's kernels read a buffer of this name."""
    return buffer.startswith(("CPU", "AMX"))
