"""A tiny target, a draft that imitates it, and an engine that runs them to the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.config import Placement
from localspec.control.overlap import Overlap
from localspec.control.round import Policy
from localspec.drafters import load, takes
from localspec.engine.adapters import Scales, owner
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import Shape
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.session import Request, Session
from localspec.engine.simulation import Hardware, RealHardware
from localspec.engine.speculation.states import FeatureHead
from localspec.engine.speculation.verification import StepOutput
from localspec.engine.step import Engine, Limits
from localspec.types import Drafter, SamplingParams, SpeculationParams, Token
from localspec.worker import heads, train_head

SLOTS = 4
CONTEXT = 768
ROWS = 64
PROMPTS = (
    "hello world, hello world, hello",
    "def f(x):\n    return x",
    "a" * 90,
    "the quick brown fox jumps over the lazy dog",
)


@dataclass
class Harness:
    """The real llama.cpp with two tiny models, in the strict shape."""

    target: Model
    draft: Model
    memory: Context
    draft_memory: Context
    shape: Shape
    path: Path
    """Of the target."""

    def head(self) -> FeatureHead:
        """The feature head that comes with the target, or one trained on it once.

        From then on the context gives its features.
        """
        self.memory.show()
        directory = self.path.parent / f"heads of {self.path.stem}"
        for place in (paths.shipped("models/heads"), directory):
            if (found := heads.find(self.path, place)) is not None:
                return found
        directory.mkdir()
        (directory / "head.gguf").write_bytes(taught(self.target, self.path))
        return self.head()

    def drafters(self, *names: str, place: Hardware | None = None) -> dict[str, Drafter]:
        """Fresh drafters by name, of this machine or one on a simulated machine."""
        target = self.target
        return {
            name: load(
                name,
                context=(place or RealHardware()).context(self.draft_memory, "draft"),
                n_vocab=target.n_vocab,
                ends=target.eog,
                piece=target.piece,
                **({"head": self.head()} if "head" in takes(name) else {}),
            )
            for name in names
        }

    def engine(
        self,
        drafters: Mapping[str, Drafter],
        policy: Policy,
        *,
        prefill_rows: int = 32,
        max_draft: int = 16,
        place: Hardware | None = None,
        overlap: Overlap | None = None,
    ) -> Engine:
        """An engine with empty slots."""
        place = place or RealHardware()
        return Engine(
            place.context(self.memory, "target"),
            drafters,
            place.policy(policy),
            ends=self.target.eog,
            shape=self.shape,
            limits=Limits(prefill_rows, max_draft),
            clock=place.clock,
            overlap=overlap,
        )

    def request(
        self,
        prompt: str | list[Token],
        sampling: SamplingParams,
        *,
        tokens: int = 40,
        speculation: SpeculationParams | None = None,
        ignore_eos: bool = True,
        client: str = "someone",
        prediction: Sequence[Token] = (),
        adapters: Scales = (),
    ) -> Request:
        """A request for `tokens` tokens."""
        if isinstance(prompt, str):
            prompt = self.target.tokenize(prompt, add_special=True, parse_special=True)
        return Request(
            id="r",
            client=owner(client, adapters),
            prompt=prompt,
            sampling=sampling,
            speculation=speculation or SpeculationParams(mode="always"),
            max_tokens=tokens,
            ignore_eos=ignore_eos,
            prediction=prediction,
            adapters=adapters,
        )


def taught(target: Model, path: Path, tokens: int = 6000) -> bytes:
    """A head's file, trained on texts that a tiny target wrote behind the prompts here."""
    prompts = (
        target.tokenize(f"{text} {number}", add_special=True, parse_special=True)
        for number in itertools.count()
        for text in PROMPTS
    )
    context = Context.open(target, slots=8, context=256, rows=ROWS)
    texts = [*train_head.listen(context, prompts, tokens, target.eog, longest=64)]
    context.close()
    return train_head.head(heads.File.open(path), texts, words=256)


@contextmanager
def opened(
    target_path: Path,
    draft_path: Path,
    placement: Placement,
    *,
    slots: int,
    context: int,
    strict: bool = True,
    snapshots: int = 0,
    adapters: Sequence[Path] = (),
) -> Iterator[Harness]:
    """Two models and their contexts, probed for their exactness and closed again."""
    target, draft = Model.load(target_path), Model.load(draft_path)
    for adapter in adapters:
        target.adopt(adapter)
    memory, draft_memory = (
        Context.open(
            model,
            placement,
            slots=slots,
            context=context,
            rows=ROWS,
            streams=strict,
            snapshots=snapshots,
            adapts=model is target,
        )
        for model in (target, draft)
    )
    draft_memory.find_rollback()
    probed = classes.strict if strict else classes.standard
    shape = probed(memory, rollback=memory.find_rollback())
    yield Harness(target, draft, memory, draft_memory, shape, target_path)
    for each in (memory, draft_memory, target, draft):
        each.close()


def finish(
    engine: Engine,
    requests: Sequence[Request],
    on_output: Callable[[StepOutput], object] = lambda _advance: None,
) -> list[Session]:
    """Admit all, step until each has ended; the sessions in the order of their requests.

    `on_output` is called with the output of every step.
    """
    sessions = [engine.admit(request) for request in requests]
    while engine.sessions:
        for advance in engine.step():
            on_output(advance)
            if advance.finish is not None:
                engine.retire(advance.session)
    return sessions


def output(session: Session) -> list[Token]:
    """The tokens that were generated."""
    return session.tokens[session.n_prompt :]
