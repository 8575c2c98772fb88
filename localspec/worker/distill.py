"""Distils a draft: `python -m localspec.worker.distill TARGET DRAFT DESTINATION`.

The target writes texts, as for a head, and its likeliest token at every place is recorded. The
draft reads the texts, and its output rows learn to predict those tokens (`distilling.py`). The new
draft is kept only if it agrees with the target more often on texts held out from learning. Texts,
tokens and states are saved as they are computed, so an interrupted run resumes. Native code may
crash on a malformed file, so this process does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec import config, paths
from localspec.built import installed
from localspec.catalog import header, output_rows, pairing
from localspec.catalog.ggml_types import BY_ID
from localspec.catalog.writer import Tensor
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.llama.products import FORMATS, Format, Products, Stored
from localspec.errors import BadPair, ModelError
from localspec.types import Row
from localspec.worker import command, heads, prune, train_head
from localspec.worker.eagle3 import features, texts
from localspec.worker.eagle3.features import Brief
from localspec.worker.eagle3.progress import Progress, duration, plan
from localspec.worker.eagle3.texts import Text

if TYPE_CHECKING:
    from localspec.worker.distilling import Report, Taught

ENOUGH = 0.02
"""The least gain in agreement that replaces a draft: with less, the suite is no faster."""
_WORDS = 8192
"""Output rows with a change of their own: the tokens that are 98 % of what the texts say."""
_HELD = 0.1
"""The share of texts that decide when learning ends, and of those that judge the new draft."""
_ROWS = 64
_CHUNK = 8192
"""Output rows that are made at a time."""
_Number = TypeVar("_Number", bound=np.generic)


def main() -> int:
    """Write, read, learn, judge and save; the exit code is 0, the error's, or 130."""
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.distill")
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--tokens", type=int, default=100_000)
    said = "\nInterrupted; the same command goes on from here.\n"
    return command.run(parser, _make, said)


def _make(asked: argparse.Namespace) -> None:
    """Distil, and keep the new draft if it is better. Raises LocalSpecError, OSError."""
    command.require_torch("Distilling a draft")
    target, draft = asked.target, asked.draft
    verdict = pairing.check(header.read(target), header.read(draft))
    verdict.demand()
    if verdict.by_text:
        raise BadPair(
            f"{draft.name} has another tokenizer than {target.name}, so it cannot say its words.",
            fix="Distil a draft of the target's own family.",
        )
    command.claim(asked.destination)
    work = _place(target, draft)
    paths.make_private(work)
    with command.alone(work, "A draft is already being distilled"):
        found, likeliest = _heard(asked, work)
        placement = config.in_force(paths.config_file())[0].engine.draft
        _learned(asked, placement, found, likeliest, work)
    shutil.rmtree(work, ignore_errors=True)


def _place(target: Path, draft: Path) -> Path:
    """The working directory of a distillation, named by both files' paths, sizes and times."""
    files = [(each.resolve(), each.stat()) for each in (target, draft)]
    stamps = [(str(path), found.st_size, found.st_mtime_ns) for path, found in files]
    name = hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]
    return paths.cache_dir() / "distill" / f"{draft.stem[:64]}-{name}"


def _heard(asked: argparse.Namespace, work: Path) -> tuple[list[Text], NDArray[np.int32]]:
    """The target's texts, and its likeliest token at each place of all answers."""
    told = tomllib.loads(paths.shipped(train_head.QUESTIONS).read_text("utf-8"))
    with train_head.opened(asked.target) as context:
        rest = asked.tokens - sum(each.answer for each in texts.load(work / "texts.bin"))
        sys.stderr.write(f"\r{plan(context, asked.tokens, rest, 0.0)}\n")
        writing = Progress("writing", asked.tokens)
        found = texts.write(context, told, work / "texts.bin", asked.tokens, writing)
        writing.end()

        def said(text: Text) -> NDArray[np.int32]:
            return np.concatenate([each[0] for each in _read(context, text)])

        likeliest = _kept(work / "likeliest.bin", np.int32, 1, found, said, "reading")
    return found, likeliest[:, 0]


def _read(context: Context, text: Text) -> Iterator[tuple[NDArray[np.int32], Brief | None]]:
    """A model's likeliest tokens at the places of an answer, with its last states, in parts."""
    context.truncate(0, 0)
    step = min(_ROWS, context.max_rows)
    at, answers = 0, text.start - 1
    while at < len(text.tokens) - 1:
        wanted = at >= answers
        end = min(at + step, len(text.tokens) - 1 if wanted else answers)
        rows = [Row(int(text.tokens[each]), each, 0, wanted) for each in range(at, end)]
        logits, shown, _ = context.decode(rows)
        if wanted:  # copied here, as the next forward overwrites its output
            states = None if shown is None else features.brief(shown)
            yield logits.argmax(axis=1).astype(np.int32), states
        at = end


def _kept(  # noqa: PLR0913, PLR0917 - all that one file depends on
    path: Path,
    kind: type[_Number],
    width: int,
    found: Sequence[Text],
    work: Callable[[Text], NDArray[_Number]],
    what: str,
) -> NDArray[_Number]:
    """An array (places of all answers, width), computed text by text into a file that resumes."""
    path.touch(mode=0o600)
    size = np.dtype(kind).itemsize * width
    ends = np.cumsum([each.answer for each in found])
    done = int(np.searchsorted(ends, path.stat().st_size // size, side="right"))
    progress = Progress(what, int(ends[-1]))
    with path.open("r+b") as file:
        file.truncate(size * int(ends[done - 1] if done else 0))
        file.seek(0, 2)
        for number in range(done, len(found)):
            file.write(np.ascontiguousarray(work(found[number])).tobytes())
            progress(int(ends[number]))
    progress.end()
    return np.fromfile(path, kind).reshape(-1, width)


@contextmanager
def _opened(draft: Path, placement: Placement, longest: int) -> Iterator[Context]:
    """The draft with one slot that outputs its last states. Raises ModelError, OutOfMemory."""
    model = Model.load(draft, placement)
    try:
        context = Context.open(model, placement, slots=1, context=longest, rows=_ROWS)
        try:
            if not context.show():
                raise ModelError("A draft is taught by its states, and this one shows none here.")
            yield context
        finally:
            context.close()
    finally:
        model.close()


def _learned(
    asked: argparse.Namespace,
    placement: Placement,
    found: Sequence[Text],
    likeliest: NDArray[np.int32],
    work: Path,
) -> None:
    """Teach the draft, judge it, and keep it if it is better."""
    from localspec.worker import distilling  # noqa: PLC0415 - torch may be missing

    share = max(1, round(len(found) * _HELD))
    judged, taught = found[-share:], found[:-share]
    if len(taught) <= share:
        raise ModelError("There are too few texts to learn from.", fix="Give more --tokens.")
    states = _states(asked.draft, placement, found, work)
    ends = np.cumsum([each.answer for each in taught])
    held, end = int(ends[-share - 1]), int(ends[-1])
    products, output = Products(installed()), heads.output(heads.File.open(asked.draft))
    words = _words(likeliest[:held], output.outputs)
    places = np.full(max(output.outputs, int(likeliest.max()) + 1), -1)
    places[words] = np.arange(len(words))
    lesson = distilling.Examples(
        states[:end], places[likeliest[:end]], products.rows(output, words), held
    )
    made = distilling.learn(lesson, _learning())
    sys.stderr.write(f"\nagreement among words: {made.before:.3f}, taught {made.after:.3f}\n")
    name, kind = _format(output.type)
    new = work / asked.destination.name
    output_rows.replace(
        asked.draft,
        new,
        Tensor("output.weight", (output.outputs, output.width), name),
        _rows(products, output, words, made, kind),
        f"{header.read(asked.draft).text('general.name')}, distilled from {asked.target.stem}",
    )
    _judge(asked, placement, judged, likeliest[end:], new)


def _states(
    draft: Path, placement: Placement, found: Sequence[Text], work: Path
) -> NDArray[np.int16]:
    """The draft's last states at all places of answers, as bits of bfloat16."""
    longest = max(len(each.tokens) for each in found)
    with _opened(draft, placement, longest) as context:

        def seen(text: Text) -> Brief:
            parts = [each[1] for each in _read(context, text)]
            return np.concatenate([each for each in parts if each is not None])

        width = context.model.width
        return _kept(work / "states.bin", np.int16, width, found, seen, "reading by the draft")


def _words(likeliest: NDArray[np.int32], most: int) -> NDArray[np.int32]:
    """The most frequent tokens, in order."""
    often = np.argsort(-np.bincount(likeliest, minlength=most), kind="stable")
    return np.sort(often[often < most][:_WORDS]).astype(np.int32)


def _learning() -> Callable[[Report], None]:
    """A callback that shows the progress of learning, and how long it takes at most."""
    began = time.monotonic()

    def show(report: Report) -> None:
        left = duration((time.monotonic() - began) / report.done * (report.steps - report.done))
        sys.stderr.write(f"\r\x1b[Klearning: agreement {report.agreement:.3f}, at most {left} left")
        sys.stderr.flush()

    return show


def _format(stored: int) -> tuple[str, Format]:
    """The format of the new rows: the old rows' where it can be written, otherwise Q8_0."""
    name = BY_ID[stored].name
    kinds = {"Q4_0": "q4_0", "Q8_0": "q8_0"}
    return (name, FORMATS[kinds[name]]) if name in kinds else ("Q8_0", FORMATS["q8_0"])


def _rows(
    products: Products,
    output: Stored,
    words: NDArray[np.int32],
    made: Taught,
    kind: Format,
) -> Iterator[bytes]:
    """The bytes of all new output rows: W M, plus D for rows with a change of their own."""
    places = np.full(output.outputs, -1)
    places[words] = np.arange(len(words))
    for start in range(0, output.outputs, _CHUNK):
        which = np.arange(start, min(start + _CHUNK, output.outputs), dtype=np.int32)
        rows = products.rows(output, which) @ made.turn
        own = places[which]
        rows[own >= 0] += made.changes[own[own >= 0]]
        yield products.quantized(rows, kind).data.tobytes()


def _judge(
    asked: argparse.Namespace,
    placement: Placement,
    judged: Sequence[Text],
    likeliest: NDArray[np.int32],
    new: Path,
) -> None:
    """Keep the new draft if it agrees more often by `ENOUGH` on these texts; print the result."""
    starts = np.concatenate(([0], np.cumsum([each.answer for each in judged])))
    replayed = [
        prune.Read(
            each.tokens.tolist(),
            each.start,
            likeliest[starts[at] : starts[at + 1]].astype(np.int64),
        )
        for at, each in enumerate(judged)
    ]
    before, after = (prune.agreement(each, replayed, placement) for each in (asked.draft, new))
    said = f"{before:.3f} before, {after:.3f} now, over {starts[-1]} tokens"
    if after < before + ENOUGH:
        sys.stderr.write(f"acceptance by replay: {said}. The draft stays as it is.\n")
        new.unlink()
        return
    shutil.move(new, asked.destination)
    sys.stderr.write(f"acceptance by replay: {said}.\n")


if __name__ == "__main__":
    sys.exit(main())
