"""Trains a draft head in a process: `python -m localspec.worker.train_head TARGET HEAD`.

The target writes texts, many at once, on the devices where a daemon would load it; the head learns
from the states of these forwards. That takes an hour for a small target on two cores. Native code
may crash on a malformed file, so this process does nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from localspec import config, paths
from localspec.built import installed
from localspec.catalog import header, writer
from localspec.catalog.describe import MAX_NAME_CHARS
from localspec.catalog.writer import Tensor
from localspec.engine.llama.products import FORMATS, Products
from localspec.engine.speculation.head_training import TrainingText, learned
from localspec.errors import ModelError, OutOfMemory, bounded
from localspec.text.template import Conversation, rendered
from localspec.types import Floats, Row, Token
from localspec.wire.messages import Load
from localspec.worker import command, heads, planning, remotes
from localspec.worker.loader import Loader

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.model import Model

_SLOTS = 32
_CONTEXT = 1024
_LONGEST = 256
"""The most tokens of one answer."""
_TEMPERATURES = (0.0, 0.0, 0.6, 0.9)
"""Temperatures of the texts, in turn."""
_LIKELY = 40
"""The likeliest tokens that a sampled token is drawn from."""
QUESTIONS = "models/heads/questions.toml"
"""Kinds of questions that models are asked for texts."""


def main() -> int:
    """Write texts, learn from them, save the head; the exit code is 0, the error's, or 130.

    An interrupt leaves no file.
    """
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.train_head")
    parser.add_argument("target", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--words", type=int, default=4096)
    return command.run(parser, _make)


def _make(asked: argparse.Namespace) -> None:
    """Train a head as it was asked for. Raises LocalSpecError, OSError."""
    path, place = asked.target, asked.head
    header.read(path)
    target = heads.File.open(path)
    if target.tensor("token_embd.weight").width % FORMATS["q4_0"].weights:
        raise ModelError("A draft head is for models whose width is a multiple of 32.")
    paths.make_directory(
        place.parent, paths.MODELS_MODE
    )  # an error is raised before an hour's work
    made = head(target, texts(path, asked.tokens), asked.words)
    paths.write_atomically(place, made, mode=0o644)
    sys.stderr.write("\n")


def texts(target: Path, tokens: int) -> list[Text]:
    """Texts that the model writes, of `tokens` tokens in all; progress goes to stderr."""
    told = tomllib.loads(paths.shipped(QUESTIONS).read_text("utf-8"))
    found: list[Text] = []
    with opened(target) as context:
        model = context.model
        prompts = (prompt(model, question) for question in questions(told, found, model.piece))
        for text in listen(context, prompts, tokens, model.eog, longest=_LONGEST):
            found.append(text)
            written = sum(len(each.came) for each in found)
            sys.stderr.write(f"\rwriting: {min(written, tokens)} of {tokens} tokens")
    sys.stderr.write("\n")
    return found


@contextmanager
def opened(target: Path) -> Iterator[Context]:
    """The model where the daemon would load it, with many slots and no drafters.

    Raises LocalSpecError: a device or a remote is missing, or no plan fits memory.
    """
    chosen, _ = config.in_force(paths.config_file())
    engine = replace(chosen.engine, slots=_SLOTS, context=_CONTEXT, exactness="strict")
    alone = replace(chosen.speculation, drafters=(), max_draft=1)  # plan no rows for drafts
    load = Load(target.stem, str(target), None, replace(chosen, engine=engine, speculation=alone))
    lent = remotes.gather(engine.remote)
    plans = planning.plans(load, [target], planning.present(lent))
    for plan, smaller in zip_longest(plans, plans[1:]):
        with ExitStack() as parts:
            try:
                context = Loader(load, plan, lent, _loading, parts).target()
            except OutOfMemory:
                if smaller is None:
                    raise
                continue
            sys.stderr.write(f"\r{plan.sentence()}\n")
            yield context
            return


def _loading(stage: str, fraction: float, _why: str = "") -> None:
    if stage == "target":
        sys.stderr.write(f"\rloading: {fraction:.0%}")


def questions(
    told: Mapping[str, Any],
    texts: Sequence[Text],
    piece: Callable[[Token], bytes],
    seed: int = 0,
) -> Iterator[str]:
    """An endless stream of questions: random combinations of forms and subjects.

    Args:
        told: As in `questions.toml`.
        texts: The answers so far, which some questions quote; the list may grow meanwhile.
        piece: What a token writes.
        seed: Chooses the combinations.
    """
    chosen = random.Random(seed)  # noqa: S311 - the same ones each time
    weights = [kind["weight"] for kind in told["kind"]]
    while True:
        (kind,) = chosen.choices(told["kind"], weights)
        form = chosen.choice(kind["forms"])
        if "{text}" in form and not texts:
            continue
        earlier = chosen.choice(texts).came if "{text}" in form else []
        text = b"".join(map(piece, earlier)).decode("utf-8", "replace")
        subject = chosen.choice(kind.get("subjects", told["subjects"]))
        numbers = {name: chosen.randint(2, 90) for name in "abc"}
        yield form.format(subject=subject, text=text, **numbers)


def prompt(model: Model, text: str) -> list[Token]:
    """A question's tokens by the model's chat template, or as it is without one."""
    if model.chat_template:
        special = model.special_text(model.bos), model.special_text(model.eos)
        message = {"role": "user", "content": text}
        text = rendered(Conversation(model.chat_template, *special, [message])).text
    return model.tokenize(text, add_special=not model.chat_template, parse_special=True)


@dataclass(slots=True)
class Text:
    """A text of the target: its prompt, and the states, tokens and likeliest tokens of its answer.

    `came` are the tokens of the answer.
    """

    prompt: Sequence[Token]
    temperature: float
    states: list[NDArray[np.float16]] = field(default_factory=list)
    came: list[Token] = field(default_factory=list)
    likeliest: list[Token] = field(default_factory=list)

    def row(self, slot: int) -> Row:
        """The row to decode next."""
        last = self.came[-1] if self.came else self.prompt[-1]
        return Row(last, len(self.prompt) - 1 + len(self.came), slot, wants_logits=True)

    def go_on(self, state: Floats, logits: Floats, chosen: np.random.Generator) -> None:
        """Take one more token, drawn from the likeliest."""
        best = token = int(logits.argmax())
        if self.temperature:
            top = np.argpartition(logits, -_LIKELY)[-_LIKELY:]
            noisy = logits[top] / self.temperature + chosen.gumbel(size=_LIKELY)
            token = int(top[noisy.argmax()])
        self.states.append(state.astype(np.float16))
        self.came.append(token)
        self.likeliest.append(best)


def listen(  # noqa: PLR0913 - all that texts depend on
    context: Context,
    prompts: Iterator[Sequence[Token]],
    tokens: int,
    ends: frozenset[Token],
    *,
    longest: int,
    seed: int = 0,
) -> Iterator[Text]:
    """Texts of `tokens` tokens in all, of at most `longest` each, written in all slots at once.

    Prompts are taken when needed; `seed` chooses among likely tokens. From now on the context shows
    its states.

    Raises:
        ModelError: the context cannot show states.
    """
    if not context.show():
        raise ModelError("A draft head needs hidden states, and this model shows none here.")
    chosen = np.random.default_rng(seed)
    begun = (
        Text(prompt, temperature)
        for prompt, temperature in zip(prompts, itertools.cycle(_TEMPERATURES), strict=False)
    )
    writing = [_read(context, slot, next(begun)) for slot in range(context.n_slots)]
    for _ in range(0, tokens, context.n_slots):
        rows = [text.row(slot) for slot, text in enumerate(writing)]
        logits, states, _ = context.decode(rows)
        assert states is not None  # noqa: S101 - all rows want logits
        for slot, text in enumerate(writing):
            text.go_on(states[slot], logits[slot], chosen)
        for slot, text in enumerate(writing):
            if text.came[-1] in ends or len(text.came) == longest:
                yield text
                writing[slot] = _read(context, slot, next(begun))
    yield from writing


def _read(context: Context, slot: int, text: Text) -> Text:
    """Read the text's prompt, except its last token. Returns the text."""
    context.truncate(slot, 0)
    rows = [Row(token, at, slot, wants_logits=False) for at, token in enumerate(text.prompt[:-1])]
    for start in range(0, len(rows), context.max_rows):
        context.decode(rows[start : start + context.max_rows])
    return text


def head(target: heads.File, texts: Sequence[Text], words: int) -> bytes:
    """The bytes of the head's file, for at most `words` of the texts' most frequent tokens."""
    products = Products(installed())
    frequent = Counter(itertools.chain(*(text.came for text in texts))).most_common(words)
    known = np.array([token for token, _ in frequent], np.int32)
    made = learned(_lesson(target, products, texts, known), on_progress=_learning)
    width = len(made.bias)
    square = (width, width)
    matrices = [products.quantized(each, FORMATS["q4_0"]) for each in (made.state, made.token)]
    described = {
        "general.architecture": heads.KIND,
        "general.name": bounded(
            str(target.parsed.metadata.get("general.name", "")), MAX_NAME_CHARS
        ),
        heads.KEY: heads.key(target),
        heads.WORDS: known.tolist(),
    }
    tensors = [
        Tensor("state.weight", square, "Q4_0"),
        Tensor("token.weight", square, "Q4_0"),
        Tensor("bias", (width,), "F32"),
    ]
    data = [*(each.data.tobytes() for each in matrices), made.bias.tobytes()]
    return writer.header(described, tensors) + b"".join(
        part + writer.padding(len(part)) for part in data
    )


def _learning(fraction: float) -> None:
    sys.stderr.write(f"\rlearning: {fraction:.0%}")


def _lesson(
    target: heads.File, products: Products, texts: Sequence[Text], words: NDArray[np.int32]
) -> TrainingText:
    """All positions of all texts, as the training takes them."""
    came = np.array([token for text in texts for token in text.came], np.int32)
    tokens, rows = np.unique(came, return_inverse=True)
    places = {int(token): place for place, token in enumerate(words)}
    said = [places.get(token, -1) for text in texts for token in text.likeliest]
    ends = np.cumsum([len(text.came) for text in texts if text.came]) - 1
    return TrainingText(
        states=np.array([state for text in texts for state in text.states]),
        came=rows,
        said=np.array(said),
        known=np.setdiff1d(np.arange(len(came)), ends),
        embeddings=products.rows(target.tensor("token_embd.weight"), tokens),
        output=products.rows(heads.output(target), words),
    )


if __name__ == "__main__":
    sys.exit(main())
