"""Trains an EAGLE-3 head in a process: `python -m localspec.worker.eagle3 TARGET HEAD`.

The target writes texts and reads them once, and the head learns from the features that the target
computed, in torch. Each stage is saved on the way, so an interrupted run resumes. Native code may
crash on a malformed file, so this process does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localspec import paths
from localspec.built import installed
from localspec.catalog import header
from localspec.catalog.describe import MAX_NAME_CHARS
from localspec.catalog.memory import show_bytes
from localspec.engine.llama.products import Products
from localspec.errors import (
    ConfigError,
    ModelError,
    bounded,
)
from localspec.worker import command, heads, train_head
from localspec.worker.eagle3 import features, shape, storing, texts
from localspec.worker.eagle3.progress import Progress, duration, plan
from localspec.worker.eagle3.schedule import FEWEST_STEPS
from localspec.worker.eagle3.shape import Shape

_MAX_QUESTION_BYTES = 64 * 1024 * 1024


def main() -> int:
    """Write, read, learn and save; the exit code is 0, the error's, or 130.

    An interrupt leaves no head, but saved work from which the same command resumes.
    """
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.eagle3")
    parser.add_argument("target", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=16_384)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--steps", type=int, default=FEWEST_STEPS)
    said = "\nInterrupted; the same command goes on from here.\n"
    return command.run(parser, _make, said)


def _make(asked: argparse.Namespace) -> None:
    """Train a head as it was asked for. Raises LocalSpecError, OSError."""
    command.require_torch("Training an EAGLE-3 head")
    chosen = shape.chosen(header.read(asked.target), asked.words)
    target = heads.File.open(asked.target)
    try:
        key = heads.key(target)
    except KeyError:
        raise ModelError(
            "An EAGLE-3 head is found by its model's last norm; it has none."
        ) from None
    told = _questions(asked.questions)
    command.claim(asked.head)
    work = asked.work or _place(asked.target, key, told)
    paths.make_private(work)
    with command.alone(work, "A head is already being trained"):
        material = _heard(asked, chosen, target, told, work)
        made = _learned(asked, material, key, target, work / "checkpoint.pt")
        paths.write_atomically(asked.head, made, mode=paths.MODEL_MODE)
        sys.stderr.write(f"{asked.head.name}: {show_bytes(len(made))}\n")
    shutil.rmtree(work, ignore_errors=True)


def _place(target: Path, key: str, told: Mapping[str, Any] | Sequence[str]) -> Path:
    """The working directory of a head, named by the target's key and size and the questions."""
    found = target.stat()
    name = hashlib.sha256(f"{key} {found.st_size} {told}".encode()).hexdigest()[:16]
    return paths.cache_dir() / "eagle3" / f"{target.stem[:64]}-{name}"


def _questions(path: Path | None) -> Mapping[str, Any] | Sequence[str]:
    """The questions of a file, one a line, or LocalSpec's own kinds. Raises ConfigError."""
    if path is None:
        return tomllib.loads(paths.shipped(train_head.QUESTIONS).read_text("utf-8"))
    try:
        if path.stat().st_size > _MAX_QUESTION_BYTES:
            raise ConfigError(f"{path} is too large for a file of questions.")
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}.") from error
    if not (found := [line.strip() for line in lines if line.strip()]):
        raise ConfigError(f"{path} has no questions.", fix="Write one on each line.")
    return found


def _heard(
    asked: argparse.Namespace,
    chosen: Shape,
    target: heads.File,
    told: Mapping[str, Any] | Sequence[str],
    work: Path,
) -> Any:
    """The training data of the head: texts, and the features that the target computed of them."""
    from localspec.worker.eagle3 import lesson, training  # noqa: PLC0415 - torch may be missing

    step = training.rehearsed(chosen)
    with train_head.opened(asked.target) as context:
        if any(each >= context.model.n_vocab for each in context.model.eog):
            raise ModelError("Its ends of generation are not in its vocabulary.")
        rest = asked.tokens - sum(each.answer for each in texts.load(work / "texts.bin"))
        sys.stderr.write(f"\r{plan(context, asked.tokens, rest, step)}\n")
        writing = Progress("writing", asked.tokens)
        found = texts.write(context, told, work / "texts.bin", asked.tokens, writing)
        writing.end()
        reading = Progress("reading", sum(len(each.tokens) for each in found))
        seen = features.read(context, chosen.layers, found, work, reading)
        reading.end()
        words = texts.vocabulary(
            found, context.model.eog, chosen.sizes.words, context.model.n_vocab
        )
    products = Products(installed())
    known = np.unique(np.concatenate([each.tokens for each in found])).astype(np.int32)
    norm = target.tensor("output_norm.weight").data.view(np.float32)
    return lesson.TrainingData(
        shape=chosen,
        texts=found,
        features=seen,
        embeddings=products.rows(target.tensor("token_embd.weight"), known),
        known=known,
        output=products.rows(heads.output(target), words),
        words=words,
        norm=np.array(norm),
    )


def _learned(
    asked: argparse.Namespace, material: Any, key: str, target: heads.File, checkpoint: Path
) -> bytes:
    """Train the head. Returns the bytes of its compact file."""
    from localspec.worker.eagle3 import lesson, training  # noqa: PLC0415 - torch may be missing

    where = lesson.device()
    course = lesson.DeviceData(material, where, asked.window)
    learning = training.Training(course, checkpoint, fewest=asked.steps)

    def show(report: training.Report) -> None:
        said = "" if report.agreement is None else f", agreement {report.agreement:.3f}"
        fewest, most = map(duration, report.seconds)
        left = fewest if fewest == most else f"{fewest} to {most}"
        sys.stderr.write(
            f"\r\x1b[Klearning on {where.type}: {report.passes:.1f} passes{said}, {left} left"
        )
        sys.stderr.flush()

    found = learning.run(show)
    said = ", ".join(f"{each:.3f}" for each in found.agreement)
    sys.stderr.write(f"\nagreement on texts that it has not seen, by depth: {said}\n")
    name = bounded(str(target.parsed.metadata.get("general.name", "")), MAX_NAME_CHARS)
    return storing.stored(
        Products(installed()), material.shape, found.weights, material.words, key=key, name=name
    )


if __name__ == "__main__":
    sys.exit(main())
