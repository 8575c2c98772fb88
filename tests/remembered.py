"""Remembered forwards: the benchmark's prompts on a simulated machine, each forward computed once.

    cd tests && python -m remembered MEMORY RESULTS.json --machine h100-7b --limit 1
    ... --sources lookup --sources lookup,model --corpus FOLDER    # these drafters alone, in turns

The engine, its drafters and the policy are the real ones; target and draft model answer from a
directory of what they said before, and compute what nothing is remembered of. So a policy is tried
on real texts in seconds, and two policies meet the same logits. Against `localspec bench --machine`
texts differ here and there: prompts are read in other chunks, and where two tokens are nearly as
likely the last bits of a logit choose.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from control import simplest as policies
from forwards import LONGEST, Computed, Remembered

from localspec import drafters, paths
from localspec.bench import tables
from localspec.bench.suite import Prompt, builtin, choose, spec_bench
from localspec.config import Speculation
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.corpus import building
from localspec.corpus.index import Index
from localspec.drafters._translated import Translation
from localspec.engine.exactness.classes import Shape
from localspec.engine.routing import SPECULATING, Lengths
from localspec.engine.session import Meter, Request
from localspec.engine.simulation import SimulatedHardware
from localspec.engine.step import Engine, Limits
from localspec.types import (
    LOOKAHEAD,
    Drafter,
    SamplingParams,
    SourceCount,
    SpeculationParams,
    Token,
)
from localspec.worker import heads, translation
from localspec.worker.measuring import Measuring


class Answered(NamedTuple):
    """One answer: its tokens, and what decoding all but the first took on a simulated machine."""

    tokens: list[Token]
    seconds: float
    meter: Meter


@dataclass
class Pair:
    """A target and its draft, as far as they are remembered in a directory.

    `corpus` is an index of files, where one is wanted; `translation` is there where the draft has
    another tokenizer.
    """

    directory: Path
    target: Remembered
    draft: Remembered
    facts: dict[str, Any]
    head: Any
    draft_name: str
    translation: Translation | None = None
    corpus: Any = None
    policy: type[Controller] = Controller

    @classmethod
    def open(cls, directory: Path, foreign: Path | None = None) -> Pair:
        """The default pair of models, which has to be there; or its target with another draft."""
        directory.mkdir(parents=True, exist_ok=True)
        models = paths.models_dir()
        target_file = next(models.glob("*1.5b*q4_k_m.gguf"))
        target = Computed(target_file, shows=True)
        draft_file = foreign or next(models.glob("*0.5b*q4_0.gguf"))
        draft = Computed(draft_file, shows=False)
        facts = _kept(directory / "facts.pickle")
        if not facts:
            model = target.context.model
            pieces = [model.piece(token) for token in range(model.n_vocab)]
            facts = {"ends": model.eog, "pieces": pieces, "tokens": {}}
        head = heads.find(target_file, paths.shipped("models/heads"))
        count, between, name = len(facts["pieces"]), None, "draft"
        if foreign:
            pair = target.context.model, draft.context.model
            between, why = translation.needed(*pair, [target_file, foreign], "coupled")
            assert not why, why
            name = foreign.stem
        return cls(
            directory,
            Remembered(target, count, _kept(directory / "target.pickle")),
            Remembered(
                draft,
                draft.context.model.n_vocab if between else count,
                _kept(directory / f"{name}.pickle"),
            ),
            facts,
            head,
            name,
            between,
        )

    def index(self, folder: Path) -> None:
        """Let a folder's files be the corpus."""
        model = cast("Computed", self.target.speaks).context.model
        file = self.directory / "corpus"
        old = Index.open(file) if file.exists() else None
        for _ in building.build([str(folder)], model.plain_tokens, file, old):
            pass
        self.corpus = SimpleNamespace(index=Index.open(file))

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
            (self.draft_name, self.draft.known),
        ):
            (self.directory / f"{name}.pickle").write_bytes(pickle.dumps(kept))

    def drafters(
        self, place: SimulatedHardware, wanted: Sequence[str], draft: Remembered
    ) -> dict[str, Drafter]:
        """Those of the wanted drafters whose parts are there, as the worker's loader has them."""
        offered: dict[str, Any] = {
            "n_vocab": self.target.n_vocab,
            "ends": self.facts["ends"],
            "piece": self.facts["pieces"].__getitem__,
            "context": place.context(draft, "draft"),
        }
        if self.head is not None and place.has_head:
            offered["head"] = place.head(self.head)
        if self.corpus is not None:
            offered["corpus"] = self.corpus
        between = self.translation
        return {
            kind: drafters.load(kind, **offered, translation=between)
            for kind in wanted
            if drafters.takes(kind) <= offered.keys()
        }

    def engine(self, place: SimulatedHardware, wanted: Sequence[str]) -> Engine:
        """An engine on that machine which has measured it, and knows nothing else."""
        costs, acceptance = Costs(), Acceptance()
        target = replace(self.target, silent=True, along=LOOKAHEAD not in wanted)
        draft = replace(self.draft, silent=True, along=self.translation is None)
        sources = self.drafters(place, wanted, draft)
        costs.expect_draft("model", 0.3)
        engine = Engine(
            place.context(target, "target"),
            sources,
            place.policy(self.policy(costs, acceptance)),
            ends=self.facts["ends"],
            shape=Shape(),
            limits=Limits(),
            clock=place.clock,
        )
        profile: Any = SimpleNamespace(costs=costs, acceptance=acceptance, save=lambda: None)
        measuring = Measuring(engine, profile, fresh=True)
        while measuring.advance():
            pass
        target.silent = draft.silent = False
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


@dataclass
class Player:
    """One engine, and how many times as fast as plain decoding each conversation was, by slice."""

    pair: Pair
    engine: Engine
    most: int
    lengths: Lengths = field(default_factory=Lengths)
    ratios: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sources: dict[str, SourceCount] = field(default_factory=lambda: defaultdict(SourceCount))

    def play(self, prompt: Prompt) -> None:
        """One conversation, each turn without drafts and with them."""
        text, spent = "", {"plain": 0.0, "auto": 0.0}
        pieces, ends = self.pair.facts["pieces"], self.pair.facts["ends"]
        for question in prompt.turns:
            text += f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            tokens = self.pair.tokens(text)
            if len(tokens) > LONGEST:
                break
            answers = {
                arm: answer(self.engine, tokens, arm, self.lengths, self.most) for arm in spent
            }
            assert answers["plain"].tokens == answers["auto"].tokens, "drafts change nothing"
            spent = {arm: spent[arm] + each.seconds for arm, each in answers.items()}
            self._count(answers["auto"].meter.sources)
            said = [pieces[token] for token in answers["plain"].tokens if token not in ends]
            text += b"".join(said).decode("utf-8", "replace") + "<|im_end|>\n"
        if spent["auto"] > 0:
            self.ratios[prompt.slice].append(spent["plain"] / spent["auto"])

    def _count(self, sources: Mapping[str, SourceCount]) -> None:
        for name, each in sources.items():
            self.sources[name].drafted += each.drafted
            self.sources[name].accepted += each.accepted

    @property
    def means(self) -> dict[str, float]:
        """The geometric mean of each slice, and of all conversations."""
        groups = {**self.ratios, "all": [each for group in self.ratios.values() for each in group]}
        return {
            name: math.exp(sum(map(math.log, group)) / len(group)) for name, group in groups.items()
        }

    @property
    def sentence(self) -> str:
        """The means, and of how many tokens that each source drafted how many were accepted."""
        means = " ".join(f"{name} {mean:.3f}" for name, mean in self.means.items())
        counts = [
            f"{name} {each.accepted} of {each.drafted}" for name, each in self.sources.items()
        ]
        return f"{means} ({', '.join(counts) or 'nothing drafted'})"


def main() -> None:
    """Try the policy of this tree on simulated machines."""
    parser = argparse.ArgumentParser(prog="python -m remembered")
    parser.add_argument("memory", type=Path, help="a directory of what the models said")
    parser.add_argument("results", type=Path)
    parser.add_argument("--machine", action="append", required=True)
    parser.add_argument("--sources", action="append", help="drafters, by commas; repeatable")
    parser.add_argument("--corpus", type=Path, help="a folder that the corpus drafts from")
    parser.add_argument("--draft", type=Path, help="a draft model's file, not the default one")
    parser.add_argument("--prompts", type=Path, help="Spec-Bench's questions, not the suite's")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--policy", default="today", help=policies.HELP)
    asked = parser.parse_args()
    every = spec_bench(asked.prompts) if asked.prompts else builtin()
    pair = Pair.open(asked.memory, asked.draft)
    pair.policy = policies.named(asked.policy)
    if asked.corpus:
        pair.index(asked.corpus.resolve())
    subsets = asked.sources or [",".join(Speculation().drafters)]
    players = {}
    for machine, subset in itertools.product(asked.machine, subsets):
        place = SimulatedHardware(tables.find(machine)[1])
        name = f"{machine}, {subset}" if asked.sources else machine
        players[name] = Player(pair, pair.engine(place, subset.split(",")), asked.max_tokens)
    for prompt in choose(every, (), asked.limit):
        for player in players.values():  # one prompt after another: a model reads it once
            player.play(prompt)
        pair.save()
    results = {each: {"means": one.means, "ratios": one.ratios} for each, one in players.items()}
    asked.results.write_text(json.dumps(results, indent=1), encoding="utf-8")
    for name, player in players.items():
        print(f"{name}: {player.sentence}")  # noqa: T201 — the report
    computed = pair.target.speaks.computed + pair.draft.speaks.computed
    print(f"{computed} rows computed")  # noqa: T201 — as above


if __name__ == "__main__":
    main()
