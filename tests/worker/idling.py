"""An engine on a device that obeys a quirk, left alone between answers."""

from __future__ import annotations

import itertools
from pathlib import Path

from engine.lawful import Lawful, Quirk
from laws.policies import FixedDepth

from localspec import drafters
from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.engine.exactness import classes
from localspec.engine.routing import SPECULATING
from localspec.engine.session import Request
from localspec.engine.step import Engine, Limits
from localspec.types import SamplingParams, SpeculationParams
from localspec.worker.profile import Profile


def opened(
    quirk: Quirk, tmp_path: Path, draft: Lawful | None = None
) -> tuple[Lawful, Engine, Profile]:
    """An engine on such a device, probed near and no farther; with lookup, or a draft model."""
    target = Lawful(quirk, n_slots=3, context=2048)
    shape = classes.strict(target, patience=lambda: False)
    assert shape.cells == 512
    target.other_bits.clear()  # what the probe found
    sources = {"lookup": drafters.load("lookup", piece=lambda token: b"x%d " % token)}
    if draft is not None:
        model = drafters.load("model", context=draft, n_vocab=draft.n_vocab, ends=frozenset())
        sources = {"model": model}
    engine = Engine(
        target,
        sources,
        FixedDepth(31),
        ends=frozenset(),
        shape=shape,
        limits=Limits(),
        clock=itertools.count(0.0, 0.001).__next__,
    )
    profile = Profile(tmp_path / "profile.json", Costs(), Acceptance(), shape)
    return target, engine, profile


def answer(engine: Engine, client: str, prompt: int, route: str = SPECULATING) -> int:
    """60 tokens after such a prompt; how many of them were drafted and accepted."""
    session = engine.admit(
        Request(
            id="r",
            client=client,
            prompt=[1, 2, 3, 4] * (prompt // 4),
            sampling=SamplingParams(temperature=0.0),
            speculation=SpeculationParams(mode="always"),
            max_tokens=60,
            ignore_eos=True,
            route=route,
        )
    )
    while engine.sessions:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)
    return session.meter.accepted
