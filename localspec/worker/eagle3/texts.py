"""Has a target write the texts that a head learns from, into a file, so that a stopped run resumes.

A record is two numbers, the index of the answer's first token and the count of all tokens, and then
the tokens; all are int32, little-endian. An incomplete record at the end is replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.engine.llama.context import Context
from localspec.types import Token
from localspec.worker import train_head

LONGEST = 448
"""The most tokens of one answer."""
_NUMBERS = 2
"""Numbers before the tokens of a record."""
Ids = NDArray[np.int32]


class Text(NamedTuple):
    """A prompt and its answer, which begins at token `start`."""

    tokens: Ids
    start: int

    @property
    def answer(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.start


def load(path: Path) -> list[Text]:
    """All complete texts of a file; none where there is no file. Cuts off an incomplete one."""
    if not path.exists():
        return []
    numbers = np.fromfile(path, "<i4")
    texts, place = [], 0
    while place + _NUMBERS <= len(numbers):
        start, length = map(int, numbers[place : place + _NUMBERS])
        end = place + _NUMBERS + length
        if not 0 < start <= length or end > len(numbers):
            break
        texts.append(Text(numbers[place + _NUMBERS : end].astype(np.int32), start))
        place = end
    with path.open("r+b") as file:
        file.truncate(place * numbers.itemsize)
    return texts


def append(path: Path, texts: Iterable[Text]) -> Iterator[Text]:
    """Append texts to a file as they come, and yield them."""
    with path.open("ab") as file:
        for text in texts:
            record = np.concatenate(([text.start, len(text.tokens)], text.tokens)).astype("<i4")
            file.write(record.tobytes())
            file.flush()
            yield text


def write(  # noqa: PLR0913 - all that texts depend on
    context: Context,
    asked: Mapping[str, Any] | Sequence[str],
    path: Path,
    tokens: int,
    on_progress: Callable[[int], None],
    *,
    longest: int = LONGEST,
) -> list[Text]:
    """Have the model write until the answers in the file have `tokens` tokens. Returns all texts.

    Args:
        context: As `train_head.listen` takes it.
        asked: Kinds of questions as in `questions.toml`, or the questions themselves.
        path: The file; its texts are kept.
        tokens: The tokens of all answers together.
        on_progress: Called with the number of tokens of answers so far.
        longest: The most tokens of one answer.

    Raises:
        ModelError: `train_head.listen` cannot use the model.
    """
    texts = load(path)
    there = sum(text.answer for text in texts)
    model, begun = context.model, len(texts)
    earlier = [train_head.Text((), 0.0, came=text.tokens[text.start :].tolist()) for text in texts]
    questions: Iterator[str]
    if isinstance(asked, Mapping):
        questions = train_head.questions(asked, earlier, model.piece, seed=begun)
    else:
        questions = itertools.islice(itertools.cycle(asked), begun % len(asked), None)
    prompts = (train_head.prompt(model, question) for question in questions)
    room = context.context - longest
    fitting = (prompt[-room:] for prompt in prompts)  # the end of a prompt asks for the answer

    def written() -> Iterator[Text]:
        nonlocal there
        more = tokens - there
        heard = train_head.listen(context, fitting, more, model.eog, longest=longest, seed=begun)
        for each in heard:
            if not each.came:
                continue
            earlier.append(train_head.Text((), 0.0, came=each.came))
            there += len(each.came)
            on_progress(there)
            yield Text(np.array([*each.prompt, *each.came], np.int32), len(each.prompt))

    if there < tokens:
        texts.extend(append(path, written()))
    on_progress(there)
    return texts


def vocabulary(texts: Sequence[Text], ends: Iterable[Token], count: int, most: int) -> Ids:
    """The `count` most frequent tokens of the answers, with the ends of generation; in order.

    If the answers have fewer, the first of the model's `most` tokens fill up: merges learned early.
    """
    seen = np.zeros(most, np.int64)
    for text in texts:
        np.add.at(seen, text.tokens[text.start :], 1)
    seen[list(ends)] += len(texts) + seen.sum()
    return np.sort(np.argsort(-seen, kind="stable")[:count]).astype(np.int32)
