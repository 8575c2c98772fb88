"""Trains a head in torch by AdamW; saves its progress, and keeps the weights that agree best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from localspec.types import Floats
from localspec.worker.eagle3.features import Features, brief
from localspec.worker.eagle3.lesson import BATCH, WINDOW, DeviceData, TrainingData, device
from localspec.worker.eagle3.schedule import FEWEST_STEPS, RATE, Schedule
from localspec.worker.eagle3.shape import Shape
from localspec.worker.eagle3.texts import Text

_DECAY = 0.05
_BETAS = 0.9, 0.95
_NORM = 1.0
"""Gradients of a larger norm are scaled down to it."""
_SAVED_SECONDS = 300
"""Seconds between two checkpoints, which take half a gigabyte for a head of 35 million weights."""
_REHEARSED = 2


class Taught(NamedTuple):
    """A trained head: its weights by llama.cpp's names, and its agreement by depth."""

    weights: dict[str, Floats]
    agreement: list[float]


class Report(NamedTuple):
    """Progress: the passes made, the latest loss and agreement, fewest and most seconds left."""

    passes: float
    loss: float
    agreement: float | None
    seconds: tuple[float, float]


def rehearsed(shape: Shape) -> float:
    """The seconds of one training step for a head of this shape, measured on random numbers."""
    sizes, ids = shape.sizes, np.arange(shape.sizes.words, dtype=np.int32)
    random = np.random.default_rng(0)
    tokens = random.choice(ids, WINDOW)
    width = sizes.width
    seen = Features(
        brief(random.standard_normal((WINDOW, 3 * width), np.float32)),
        brief(random.standard_normal((WINDOW, width), np.float32)),
        np.zeros(WINDOW, np.int32),
    )
    rows = random.standard_normal((len(ids), width), np.float32)
    ones = np.ones(width, np.float32)
    material = TrainingData(shape, [Text(tokens, 1)], seen, rows, ids, rows, ids, ones)
    lesson = DeviceData(material, device())
    weights = lesson.begun(0)
    together = BATCH if lesson.device.type == "cuda" else 1
    windows = np.tile(np.arange(WINDOW), (together, 1))
    times = []
    for _ in range(_REHEARSED):
        began = time.monotonic()
        lesson.learn(weights, windows)
        times.append(time.monotonic() - began)
    return min(times) * BATCH / len(windows)


class Training:
    """The training of one head; begins at its checkpoint if there is one. `run` does the work."""

    def __init__(
        self, lesson: DeviceData, checkpoint: Path, seed: int = 0, fewest: int = FEWEST_STEPS
    ) -> None:
        self._lesson, self._file, self._seed = lesson, checkpoint, seed
        self._of = [len(lesson.taught), int(lesson.taught.sum()), *lesson.shape.sizes, seed, fewest]
        self.weights = lesson.begun(seed)
        matrices = [each for each in self.weights.values() if each.ndim == 2]  # noqa: PLR2004 - matrices
        vectors = [each for each in self.weights.values() if each.ndim == 1]
        self._adam = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": _DECAY},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=RATE,
            betas=_BETAS,
        )
        self._windows, self._number = lesson.windows(0, seed), 0
        self._pass = -(-len(self._windows) // BATCH)
        self.schedule = Schedule(self._pass * -(-fewest // self._pass))
        self._best = Taught({}, [])
        self._resume()

    def run(
        self, on_progress: Callable[[Report], None], saved_seconds: float = _SAVED_SECONDS
    ) -> Taught:
        """Learn until the schedule is over. Returns the weights that agreed best."""
        schedule, saved = self.schedule, time.monotonic()
        pace = 0.0
        while not schedule.over:
            began = time.monotonic()
            loss = self._step()
            took = time.monotonic() - began
            pace = took if not pace else 0.9 * pace + 0.1 * took
            if schedule.step % schedule.each == 0:
                self._measure()
            if time.monotonic() - saved >= saved_seconds:
                self._save()
                saved = time.monotonic()
            on_progress(self._report(loss, pace))
        return self._best

    def _step(self) -> float:
        """Make one step. A gradient that is not finite leaves the weights as they are."""
        schedule = self.schedule
        number, at = divmod(schedule.step, self._pass)
        if number != self._number:
            self._windows, self._number = self._lesson.windows(number, self._seed), number
        for group in self._adam.param_groups:
            group["lr"] = schedule.rate
        self._adam.zero_grad(set_to_none=True)
        loss = self._lesson.learn(self.weights, self._windows[at * BATCH : (at + 1) * BATCH])
        norm = torch.nn.utils.clip_grad_norm_(list(self.weights.values()), _NORM)
        if torch.isfinite(norm):
            self._adam.step()
        schedule.step += 1
        return loss

    def _measure(self) -> None:
        agreement = self._lesson.agreement(self.weights)
        self.schedule.heard(agreement[0])
        if not self._best.weights or agreement[0] >= self._best.agreement[0]:
            weights = {
                name: each.detach().float().cpu().numpy().copy()
                for name, each in self.weights.items()
            }
            self._best = Taught(weights, agreement)

    def _report(self, loss: float, pace: float) -> Report:
        schedule = self.schedule
        latest = schedule.agreements[-1] if schedule.agreements else None
        fewest, most = schedule.steps_left
        return Report(schedule.step / self._pass, loss, latest, (fewest * pace, most * pace))

    def _save(self) -> None:
        """Replace the checkpoint; after an interrupt either the old or the new one is there."""
        temporary = self._file.with_suffix(".tmp")
        torch.save(
            {
                "of": self._of,
                "schedule": asdict(self.schedule),
                "weights": {name: each.detach() for name, each in self.weights.items()},
                "adam": self._adam.state_dict(),
                "best": {name: torch.from_numpy(each) for name, each in self._best.weights.items()},
                "agreement": self._best.agreement,
            },
            temporary,
        )
        temporary.replace(self._file)

    def _resume(self) -> None:
        """Continue at the checkpoint, if there is one of this very training."""
        if not self._file.exists():
            return
        try:
            saved: dict[str, Any] = torch.load(
                self._file, map_location=self._lesson.device, weights_only=True
            )
        except Exception:  # noqa: BLE001 - a damaged file may raise anything
            return
        if not isinstance(saved, dict) or saved.get("of") != self._of:
            return
        self.schedule = Schedule(**saved["schedule"])
        with torch.no_grad():
            for name, each in self.weights.items():
                each.copy_(saved["weights"][name])
        self._adam.load_state_dict(saved["adam"])
        best = {name: each.cpu().numpy() for name, each in saved["best"].items()}
        self._best = Taught(best, saved["agreement"])
