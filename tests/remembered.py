"""Remembered forwards: the benchmark's prompts on a simulated machine, each forward computed once.

    cd tests && python -m remembered MEMORY RESULTS.json --machine h100-7b --limit 1

The engine, its drafters and the policy are the real ones; target and draft model answer from a
directory of what they said before, and compute what nothing is remembered of. So a policy is tried
on real texts in seconds, and two policies meet the same logits. Against `localspec bench --machine`
texts differ here and there: prompts are read in other chunks, and where two tokens are nearly as
likely the last bits of a logit choose.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from control import simplest as policies

from localspec import drafters, paths
from localspec.bench import tables
from localspec.bench.suite import Prompt, builtin, choose, spec_bench
from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.engine.exactness.classes import Shape
from localspec.engine.routing import SPECULATING, Lengths
from localspec.engine.session import Meter, Request
from localspec.engine.simulation import SimulatedHardware
from localspec.engine.step import Engine, Limits
from localspec.machine import Machine
from localspec.types import (
    Drafter,
    Floats,
    ForwardOutput,
    Row,
    SamplingParams,
    SpeculationParams,
    Token,
)
from localspec.worker import heads
from localspec.worker.measuring import Measuring

KEPT = 96
"""Logits of a row that are remembered; all others are as unlikely as `UNLIKELY`."""
UNLIKELY = -30.0
_ROWS = 31
_LONGEST = 3000


class Said(NamedTuple):
    """A model's answer behind a text: its likeliest tokens, their logits, and the state."""

    tokens: Any
    logits: Any
    state: Any


class Speaks(Protocol):
    """Computes what is not remembered."""

    def said(self, text: Sequence[Token], first: int) -> list[Said]:
        """The answers behind `text[: first + 1]`, behind one token more, ... behind all of it."""


class Computed:
    """A model that is loaded when something is asked of it.

    Args:
        file: Its weights.
        shows: Whether its states are looked at.
    """

    def __init__(self, file: Path, *, shows: bool) -> None:
        self._file, self._shows = file, shows
        self._context: Any = None
        self._held: list[Token] = []

    @property
    def context(self) -> Any:
        """Its context of one slot."""
        if self._context is None:
            from localspec.engine.llama.context import Context  # noqa: PLC0415 — llama.cpp comes late
            from localspec.engine.llama.model import Model  # noqa: PLC0415 — as above

            model = Model.load(self._file, Placement(), safe_kernels=False)
            self._context = Context.open(model, slots=1, context=2 * _LONGEST, rows=256)
            if self._shows:
                self._context.show()
        return self._context

    def said(self, text: Sequence[Token], first: int) -> list[Said]:
        """As `Speaks` has it."""
        kept = 0
        while kept < min(len(self._held), first) and self._held[kept] == text[kept]:
            kept += 1
        self.context.truncate(0, kept)
        for start in range(kept, first, 256):
            end = min(start + 256, first)
            self.context.decode([Row(text[at], at, 0) for at in range(start, end)])
        found: list[Said] = []
        for start in range(first, len(text), _ROWS):
            end = min(start + _ROWS, len(text))
            rows = [Row(text[at], at, 0, True) for at in range(start, end)]
            logits, shown, _ = self.context.decode(rows)
            states = [None] * len(rows) if shown is None else shown
            found += [_said(row, state) for row, state in zip(logits, states, strict=True)]
        self._held = list(text)
        return found


def _said(row: Floats, state: Floats | None) -> Said:
    likeliest = np.argpartition(row, -KEPT)[-KEPT:].astype(np.int32)
    return Said(likeliest, row[likeliest].copy(), None if state is None else state.copy())


@dataclass
class Remembered:
    """A `Backend` of one slot that computes nothing twice.

    While it is `silent` it says nothing and computes nothing, which is enough to measure times.
    """

    speaks: Speaks
    n_vocab: int
    known: dict[bytes, Said] = field(default_factory=dict)
    silent: bool = False
    computed: int = 0

    n_slots, max_rows, context = 1, 512, 2 * _LONGEST

    def __post_init__(self) -> None:
        self._text: list[Token] = []
        self._keys = [b""]

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Logits and states, from memory as far as they are there."""
        wanted = []
        for row in rows if not self.silent else ():
            assert row.position == len(self._text), "a slot is read in order"
            self._text.append(row.token)
            key = self._keys[-1] + row.token.to_bytes(4, "little")
            self._keys.append(hashlib.blake2b(key, digest_size=12).digest())
            if row.wants_logits:
                wanted.append(len(self._text))
        missing = [place for place in wanted if self._keys[place] not in self.known]
        if missing:
            first = missing[0] - 1
            said = self.speaks.said(self._text, first)
            self.known |= {self._keys[place]: said[place - 1 - first] for place in missing}
            self.computed += len(missing)
        found = [self.known[self._keys[place]] for place in wanted]
        count = sum(row.wants_logits for row in rows)
        logits = np.full((count, self.n_vocab), UNLIKELY, dtype=np.float32)
        for row_logits, each in zip(logits, found, strict=False):
            row_logits[each.tokens] = each.logits
        shown = [each.state for each in found if each.state is not None]
        every = shown and len(shown) == len(rows)
        return ForwardOutput(logits, np.stack(shown) if every else None)

    def truncate(self, slot: int, length: int) -> int:
        """Forget what lies behind."""
        del slot
        if not self.silent:
            del self._text[length:], self._keys[length + 1 :]
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Nothing to come back to."""


class Answered(NamedTuple):
    """One answer: its tokens, and what decoding all but the first took on a simulated machine."""

    tokens: list[Token]
    seconds: float
    meter: Meter


@dataclass
class Pair:
    """A target and its draft, as far as they are remembered in a directory."""

    directory: Path
    target: Remembered
    draft: Remembered
    facts: dict[str, Any]
    head: Any
    policy: type[Controller] = Controller

    @classmethod
    def open(cls, directory: Path) -> Pair:
        """The default pair of models, which has to be there."""
        directory.mkdir(parents=True, exist_ok=True)
        models = paths.models_dir()
        target_file = next(models.glob("*1.5b*q4_k_m.gguf"))
        target = Computed(target_file, shows=True)
        draft = Computed(next(models.glob("*0.5b*q4_0.gguf")), shows=False)
        facts = _kept(directory / "facts.pickle")
        if not facts:
            model = target.context.model
            pieces = [model.piece(token) for token in range(model.n_vocab)]
            facts = {"ends": model.eog, "pieces": pieces, "tokens": {}}
        head = heads.find(target_file, paths.shipped("models/heads"))
        count = len(facts["pieces"])
        return cls(
            directory,
            Remembered(target, count, _kept(directory / "target.pickle")),
            Remembered(draft, count, _kept(directory / "draft.pickle")),
            facts,
            head,
        )

    def tokens(self, text: str) -> list[Token]:
        """Those of a rendered conversation."""
        known: dict[str, list[Token]] = self.facts["tokens"]
        if text not in known:
            model = cast("Computed", self.target.speaks).context.model
            known[text] = model.tokenize(text, add_special=False, parse_special=True)
        return known[text]

    def save(self) -> None:
        """Keep what was computed."""
        for name, kept in (
            ("facts", self.facts),
            ("target", self.target.known),
            ("draft", self.draft.known),
        ):
            (self.directory / f"{name}.pickle").write_bytes(pickle.dumps(kept))

    def engine(self, place: SimulatedHardware) -> Engine:
        """An engine on that machine which has measured it, and knows nothing else."""
        costs, acceptance = Costs(), Acceptance()
        ends = self.facts["ends"]
        sources: dict[str, Drafter] = {
            "lookup": drafters.load("lookup", piece=self.facts["pieces"].__getitem__)
        }
        if self.head is not None and place.has_head:
            sources["feature_head"] = drafters.load(
                "feature_head", head=place.head(self.head), ends=ends
            )
        draft = place.context(self.draft, "draft")
        sources["model"] = drafters.load(
            "model", context=draft, n_vocab=self.draft.n_vocab, ends=ends
        )
        costs.expect_draft("model", 0.3)
        engine = Engine(
            place.context(self.target, "target"),
            sources,
            place.policy(self.policy(costs, acceptance)),
            ends=ends,
            shape=Shape(),
            limits=Limits(),
            clock=place.clock,
        )
        profile: Any = SimpleNamespace(costs=costs, acceptance=acceptance, save=lambda: None)
        measuring = Measuring(engine, profile, fresh=True)
        self.target.silent = self.draft.silent = True
        while measuring.advance():
            pass
        self.target.silent = self.draft.silent = False
        return engine


def _kept(file: Path) -> dict[Any, Any]:
    """The content of a file of ours, if it is there."""
    found: dict[Any, Any] = pickle.loads(file.read_bytes()) if file.exists() else {}  # noqa: S301
    return found


def answer(engine: Engine, prompt: list[Token], arm: str, lengths: Lengths, most: int) -> Answered:
    """One answer, greedy, with drafts or without."""
    request = Request(
        id=arm,
        client="client",
        prompt=prompt,
        sampling=SamplingParams(temperature=0.0),
        speculation=SpeculationParams(),
        max_tokens=most,
        route=SPECULATING if arm == "auto" else "off-by-request",
        expectation=lengths.expect("client", "chat"),
    )
    session = engine.admit(request)
    tokens: list[Token] = []
    while session.finish is None:
        for advance in engine.step():
            tokens += advance.tokens
    engine.retire(session)
    lengths.observe("client", "chat", len(tokens))
    meter = session.meter
    return Answered(tokens, meter.last_token_at - meter.first_token_at, meter)


def ratios(
    pair: Pair, machine: Machine, prompts: Sequence[Prompt], most: int
) -> dict[str, list[float]]:
    """By slice, how many times as fast as plain decoding each conversation was."""
    engine, lengths = pair.engine(SimulatedHardware(machine)), Lengths()
    found: dict[str, list[float]] = defaultdict(list)
    pieces, ends = pair.facts["pieces"], pair.facts["ends"]
    for prompt in prompts:
        text, spent = "", {"plain": 0.0, "auto": 0.0}
        for question in prompt.turns:
            text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            tokens = pair.tokens(text)
            if len(tokens) > _LONGEST:
                break
            answers = {arm: answer(engine, tokens, arm, lengths, most) for arm in spent}
            assert answers["plain"].tokens == answers["auto"].tokens, "drafts change nothing"
            spent = {arm: spent[arm] + each.seconds for arm, each in answers.items()}
            said = [pieces[token] for token in answers["plain"].tokens if token not in ends]
            text += b"".join(said).decode("utf-8", "replace") + "<|im_end|>\n"
        if spent["auto"] > 0:
            found[prompt.slice].append(spent["plain"] / spent["auto"])
    return dict(found)


def main() -> None:
    """Try the policy of this tree on simulated machines."""
    parser = argparse.ArgumentParser(prog="python -m remembered")
    parser.add_argument("memory", type=Path, help="a directory of what the models said")
    parser.add_argument("results", type=Path)
    parser.add_argument("--machine", action="append", required=True)
    parser.add_argument("--prompts", type=Path, help="Spec-Bench's questions, not the suite's")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--policy", default="today", help=policies.HELP)
    asked = parser.parse_args()
    every = spec_bench(asked.prompts) if asked.prompts else builtin()
    prompts = choose(every, (), asked.limit)
    pair, results = Pair.open(asked.memory), {}
    pair.policy = policies.named(asked.policy)
    for machine in asked.machine:
        found = ratios(pair, tables.find(machine)[1], prompts, asked.max_tokens)
        pair.save()
        logs = {name: [math.log(each) for each in found[name]] for name in found}
        every_log = [each for group in logs.values() for each in group]
        means = {name: math.exp(sum(group) / len(group)) for name, group in logs.items()}
        means["all"] = math.exp(sum(every_log) / len(every_log))
        results[machine] = {"means": means, "ratios": found}
        asked.results.write_text(json.dumps(results, indent=1), encoding="utf-8")
        figures = " ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        computed = pair.target.computed + pair.draft.computed
        print(f"{machine}: {figures} ({computed} rows computed)", flush=True)  # noqa: T201 — the report


if __name__ == "__main__":
    main()
