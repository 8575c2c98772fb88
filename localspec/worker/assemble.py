"""Assembles a model that answers: weights, contexts, drafters, controller, engine."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from localspec.catalog.plan import Plan
from localspec.control.controller import Controller
from localspec.control.forwards import Layout
from localspec.engine import calibrate
from localspec.engine.exactness.classes import Shape, layout_of
from localspec.engine.llama.shortlist import Shortlist
from localspec.engine.llama.threads import ThreadTuner
from localspec.engine.shifting import Shifting
from localspec.engine.step import Engine, Limits
from localspec.errors import EngineError, OutOfMemory
from localspec.text.constraint import Vocabulary
from localspec.text.dialogue import known_marks
from localspec.text.healing import SortedVocabulary
from localspec.text.markers import Markers
from localspec.types import Backend, Drafter, Sharing
from localspec.wire.messages import Load, Ready
from localspec.worker import many_rows, overlap_choice, planning, remotes
from localspec.worker.context_shift import Shift
from localspec.worker.corpus import CorpusIndex
from localspec.worker.early_exit import ExitChoice
from localspec.worker.exactness_choice import ExactnessChoice, by_memory, expected, with_exactness
from localspec.worker.exactness_decision import ExactnessDecision, Reread, unchecked
from localspec.worker.exactness_probe import BackgroundProbe, NearProbe
from localspec.worker.grammars import Grammars, VocabularyPreparation
from localspec.worker.idle import IdleTask, IdleTasks
from localspec.worker.images import Images, opened
from localspec.worker.kernel_speedup import KernelSpeedup
from localspec.worker.load_files import model_files
from localspec.worker.loader import Loader
from localspec.worker.measuring import Measuring
from localspec.worker.prefix_facts import PrefixFacts, facts
from localspec.worker.prefixes import KeepTexts, WorkerPrefixes
from localspec.worker.preparation import RequestPreparer
from localspec.worker.profile import Profile
from localspec.worker.progress import OnProgress
from localspec.worker.prompts import Prompts
from localspec.worker.rebuild import ExactnessSwitch, Undecided
from localspec.worker.router import Router
from localspec.worker.sandbox import Sandbox
from localspec.worker.strict_cost import StrictCost

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.model import Model
    from localspec.engine.llama.rpc import Device as Lent

_log = logging.getLogger("localspec.worker")

_Made = TypeVar("_Made")

_TILED = "GGML_CPU_TILED_MM"
"""0 turns off llama.cpp's kernels for long forwards, whose bits differ from the other kernels'.

llama.cpp reads the variable once, before the first forward.
"""


@dataclass(slots=True)
class Loaded:
    """A model that answers, and everything that belongs to it. A context manager."""

    switch: ExactnessSwitch
    model: Model
    engine: Engine
    preparer: RequestPreparer
    router: Router
    profile: Profile
    _parts: ExitStack
    idle: IdleTasks
    probe: BackgroundProbe
    speedup: KernelSpeedup
    exits: ExitChoice
    threads: ThreadTuner
    shortlist: Shortlist | None
    decision: ExactnessDecision
    prefixes: WorkerPrefixes
    corpus: CorpusIndex | None = None
    _has_gpus: bool = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.profile.save()
        self._parts.close()

    @property
    def ready(self) -> Ready:
        """The worker's description of itself; a new object once it has changed."""
        return self.switch.ready

    def cost_ms_by_rows(self, cells: int = 0) -> dict[int, float]:
        """The target's measured staircase in milliseconds, behind `cells` attended tokens."""
        return {
            rows: round(seconds * 1000, 3)
            for rows, seconds in self.profile.costs.measured_rows(cells).items()
        }

    def draft_ms(self, cells: int = 0) -> dict[str, float]:
        """Milliseconds of a drafted token, for each source that is not free; an estimate at first.

        An early exit is listed only once it has drafted.
        """
        costs = self.profile.costs
        return {
            name: round(costs.draft(name, 1, 1, cells) * 1000, 3)
            for name, drafter in self.engine.drafters.items()
            if not drafter.free
            if not getattr(drafter, "live", False) or name in costs.measured_drafters
        }

    def kv(self) -> dict[str, int]:
        """The tokens that the target's KV memory holds, and the number it has room for now."""
        target = self.engine.target
        if not isinstance(target, Sharing):
            return {}
        return {"kv_held": sum(target.held), "kv_cells": target.kv_cells}

    def gpus(self) -> dict[str, int]:
        """Free bytes of each GPU; once the driver has reported none it is not queried again."""
        if self._has_gpus:
            found = planning.free_on_gpus()
            self._has_gpus = bool(found)
            return found
        return {}

    @property
    def kernels(self) -> str:
        """The kernels in a sentence for people; empty where there is nothing to say."""
        words = self.shortlist.sentence if self.shortlist else ""
        told = self.speedup.sentence, words, self.exits.sentence, self.threads.sentence
        return "; ".join(filter(None, told))


def load(command: Load, on_progress: OnProgress) -> Loaded:
    """Load the pair by the largest plan that fits into memory, and build the engine.

    Raises:
        OutOfMemory: not even the smallest plan could be carried out.
        ModelError: llama.cpp refused a file or its context.
        ConfigError: config names a drafter or a device that does not exist.
        RemoteUnavailable: a remote does not answer.
    """
    many_rows.use(command)
    lent = remotes.gather(command.config.engine.remote)
    if command.config.engine.exactness == "auto":
        return _load_auto(command, lent, on_progress)
    return _load_by_plans(command, lent, on_progress)


def _load_auto(command: Load, lent: Sequence[Lent], on_progress: OnProgress) -> Loaded:
    """Load with the likelier exactness; which one applies is decided while the worker is idle."""
    from localspec.engine.llama.library import build_info  # noqa: PLC0415 - llama.cpp is imported late

    files = model_files(command)
    choice = ExactnessChoice.open(command, files, build_info(), time.time())
    there = planning.present(lent)
    verdict = by_memory(command, files, there) or choice.verdict
    if command.machine:
        verdict = StrictCost(False, "a simulated machine has no kernels that could agree")
    if verdict is None:
        os.environ[_TILED] = "0"
    best = planning.plans(with_exactness(command, "strict"), files, there)[0]
    strict = expected(command, files[0], best) if verdict is None else verdict.strict
    chosen = with_exactness(command, "strict" if strict else "standard")
    return _load_by_plans(chosen, lent, on_progress, Undecided(choice, verdict))


def _load_by_plans(
    command: Load, lent: Sequence[Lent], on_progress: OnProgress, unknown: Undecided | None = None
) -> Loaded:
    if command.config.engine.exactness == "strict":
        os.environ[_TILED] = "0"
    files = model_files(command)
    there = planning.present(lent)
    plans, others = planning.plans(command, files, there), list[Plan]()
    if unknown is not None:
        strict = command.config.engine.exactness == "strict"
        others = planning.plans(
            with_exactness(command, "standard" if strict else "strict"), files, there
        )
    larger = "a larger plan" if command.smaller == 1 else f"{command.smaller} larger plans"
    why = f" ({larger} ran out of memory)" if command.smaller else ""
    for plan, smaller in zip_longest(plans, plans[1:]):
        try:
            return _load(command, plan, lent, why, on_progress, unknown, others)
        except (OutOfMemory, MemoryError) as error:
            _log.warning("plan failed %s: %s", plan.sentence(), error)
            if smaller is None:
                raise
            why = f" (a larger plan failed: {str(error).partition(';')[0]})"
    raise EngineError("There was no plan at all.")


def _load(  # noqa: PLR0913, PLR0917 - everything that a load depends on
    command: Load,
    plan: Plan,
    lent: Sequence[Lent],
    why: str,
    on_progress: OnProgress,
    unknown: Undecided | None,
    others: Sequence[Plan],
) -> Loaded:
    """Carry out one plan. Raises OutOfMemory where memory does not suffice."""
    with ExitStack() as parts:
        waits = unknown is None and command.config.engine.exactness == "strict"
        loader = Loader(command, plan, lent, on_progress, parts, claims=waits)
        known_files = facts(loader)
        sandbox = Sandbox()
        parts.callback(sandbox.close)
        sandbox.prepare()  # while the weights are read
        loaded = _target(loader, unknown, probes=waits or bool(command.machine))
        target, profile, shape = loaded.context, loaded.profile, loaded.shape
        model = target.model
        with ThreadPoolExecutor(1, "vocabulary") as beside:  # while the draft's weights are read
            words = _begun(beside, _known, model)
            sources, off = loader.drafters(target, shape)
        controller = _controller(loader, profile, shape, layout_of(target, shape), sources)
        engine = _engine(loader, loaded, sources, controller)
        measuring = Measuring(engine, profile, fresh=loaded.fresh)
        while command.machine and measuring.advance():  # results must not depend on timing
            on_progress("probe", 1.0)
        if command.projector:
            on_progress("images", 0.0)
        images = opened(command, target, parts)
        known = words.result()
        preparer = _preparer(command, engine, model, known, images, sandbox)
        probe, speedup = BackgroundProbe(engine, profile), loader.speedup(engine, profile)
        exits = ExitChoice(engine, profile, command.config.engine.target)
        parts.callback(exits.close)
        switch = ExactnessSwitch(
            loader, target, engine, controller, probe, off, why, others, preparer.facts
        )
        decision = switch.decision(profile, unknown, loaded.known)
        reread = Reread(engine, decision.forgotten)
        corpus = loader.corpus
        while command.machine and corpus and corpus.advance(time.monotonic()):
            on_progress("probe", 1.0)
        prefixes = _prefixes(command, loader, engine, target, known_files, profile)
        before: list[IdleTask] = [
            KeepTexts(engine, prefixes),
            VocabularyPreparation(known.vocabulary, engine.clock()),
            *([corpus] if corpus else []),
            decision,
            reread,
            NearProbe(probe, engine),
        ]
        drafts = KeepTexts(engine, prefixes, drafts=True)
        return Loaded(
            switch=switch,
            model=model,
            engine=engine,
            preparer=preparer,
            router=Router(sources, pair_fits=loader.pair_fits, rollback=shape.rollback),
            profile=profile,
            _parts=parts.pop_all(),
            idle=IdleTasks(
                engine, profile, measuring, drafts, probe, speedup, exits, before=before
            ),
            probe=probe,
            speedup=speedup,
            exits=exits,
            threads=loaded.threads,
            shortlist=loader.shortlist,
            decision=decision,
            corpus=corpus,
            prefixes=prefixes,
        )


class _Target(NamedTuple):
    """A loaded target and the class of its forwards, `shape`.

    `known` is the class that was probed, None where `shape` is unchecked. The profile is `fresh`
    if the target was never measured before.
    """

    context: Context
    priced: Backend
    profile: Profile
    threads: ThreadTuner
    shape: Shape
    known: Shape | None
    fresh: bool


def _target(loader: Loader, unknown: Undecided | None, *, probes: bool) -> _Target:
    """Load the target; of a new one, measure what its first answer has to wait for."""
    target = loader.target()
    priced = loader.place.context(target, "target")
    profile = loader.profile("strict" if loader.strict else "standard")
    profile.costs.snapshots = target.snapshots
    threads = loader.threads.choose(target, profile)
    fresh = profile.shape is None
    if fresh and target.rollback == "restore":
        profile.costs.measured_copy(calibrate.copying(target, loader.place.clock))
    if fresh and probes:
        profile.shape = loader.probe(target, priced, profile.costs)
        profile.save()  # probing takes long; a worker killed early must not do it again
    known = profile.shape if unknown is None or unknown.verdict else None
    shape = known or unchecked(target, target.rollback, strict=loader.strict)
    return _Target(target, priced, profile, threads, shape, known, fresh)


def _engine(
    loader: Loader, target: _Target, sources: Mapping[str, Drafter], controller: Controller
) -> Engine:
    """The engine on a loaded target, without sessions."""
    config, costs = loader.command.config, target.profile.costs
    return Engine(
        target.priced,
        sources,
        loader.place.policy(controller),
        ends=target.context.model.eog,
        shape=target.shape,
        limits=Limits(config.engine.prefill_rows, config.speculation.max_draft),
        clock=loader.place.clock,
        overlap=overlap_choice.overlap(
            config, loader.plan, loader.command.machine, costs, target.profile.acceptance
        ),
    )


def _controller(
    loader: Loader, profile: Profile, shape: Shape, layout: Layout, sources: Mapping[str, Drafter]
) -> Controller:
    """The policy that decides the rounds; costs not yet measured are estimated from file sizes."""
    for name, drafter in sources.items():
        live = getattr(drafter, "live", False)  # it has no file to estimate its cost by
        if not drafter.free and not live and (ratio := loader.size_ratio(name)):
            profile.costs.expect_draft(name, ratio)
    return Controller(profile.costs, profile.acceptance, multiple=shape.multiple, layout=layout)


def _prefixes(  # noqa: PLR0913, PLR0917 - what a kept text depends on
    command: Load,
    loader: Loader,
    engine: Engine,
    target: Context,
    files: Mapping[str, PrefixFacts],
    profile: Profile,
) -> WorkerPrefixes:
    """The prefix store, in memory and on disk."""
    found = WorkerPrefixes(
        engine,
        command.config.cache,
        {} if target.rollback == "none" else files,
        profile.loading,
        described=lambda: (loader.strict, loader.head is not None, *loader.fed.taps),
        model=command.model,
        shares={"model": loader.size_ratio("model")},
        trims=target.rollback == "trim",
    )
    target.keep_copies(found.store.memory_bytes)
    return found


class _Known(NamedTuple):
    """The vocabulary as grammars and prompts need it; `words` only for a model with infill."""

    vocabulary: Vocabulary
    markers: Markers
    words: SortedVocabulary | None


def _known(model: Model) -> _Known:
    """The vocabulary for grammars and prompts; takes a fifth of a second for a large one."""
    pieces = model.pieces()
    vocabulary = Vocabulary(pieces, model.eog, model.plain_tokens)
    markers = Markers(*model.specials(), model.chat_template or "", *known_marks())
    fills_in = model.infill("pre") is not None
    return _Known(vocabulary, markers, SortedVocabulary(pieces) if fills_in else None)


def _begun(beside: Executor, work: Callable[[Model], _Made], model: Model) -> Future[_Made]:
    """Start `work` on a thread. Raises MemoryError where there is no memory for one."""
    try:
        return beside.submit(work, model)
    except RuntimeError as error:
        raise MemoryError(str(error)) from error


def _preparer(  # noqa: PLR0913, PLR0917 - all that a request is prepared with
    command: Load, engine: Engine, model: Model, known: _Known, images: Images, sandbox: Sandbox
) -> RequestPreparer:
    """The request preparer, which tries templates and grammars in the sandbox first."""
    longest_bytes = max(known.vocabulary.longest_bytes, known.markers.longest_bytes)
    prompts = Prompts(model, known.markers, longest_bytes, sandbox, known.words)
    grammars = Grammars(known.vocabulary, sandbox)
    context, drafters = lambda: engine.context, engine.drafters
    able = isinstance(engine.backend, Shifting) and engine.backend.shifts
    wanted = command.config.engine.context_shift
    shift = Shift(able, wanted, model.adds_bos, longest=model.context_train)
    return RequestPreparer(
        model, context, drafters, prompts, grammars, images, command.adapters, shift
    )
