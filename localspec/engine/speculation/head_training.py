"""Trains a feature head, which predicts the next state from a state and the token that came of it.

First least squares fit the next state. Then Adam (Kingma and Ba, 2015) lowers the cross-entropy of
the tokens that the target said, by the logits that its own output rows make of the predicted state.
Numbers only, in numpy; some minutes for a target with states of 1536 numbers and a hundred thousand
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.types import Floats

_CHUNK = 4096
_BATCH = 256
_PENALTY = 1e-3
"""The ridge penalty of least squares, relative to the number of tokens."""
_RATE = 2e-4
_WARMING = 0.1
"""The part of all steps over which the rate rises."""
_DROPPED = 0.1
"""The part of inputs that is dropped at random: without dropout the head overfits its texts."""
_DECAY = 0.05
_NORM = 1.0
"""Longer gradients are shortened to this."""
_BETAS = 0.9, 0.999
_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class TrainingText:
    """Texts that a target wrote: its state at every place, the token that came, the likeliest one.

    states: (places, width), from which the logits of a place were computed.
    came: (places,) the row of `embeddings` of the token that came.
    said: (places,) the row of `output` of the target's likeliest token; -1 where there is none.
    known: (n,) places that are not the last of their text.
    embeddings: (tokens, width) of the tokens that came.
    output: (words, width) rows of the target's output matrix.
    """

    states: NDArray[np.float16]
    came: NDArray[np.int64]
    said: NDArray[np.int64]
    known: NDArray[np.int64]
    embeddings: Floats
    output: Floats

    def features(self, places: NDArray[np.int64], scales: tuple[float, float]) -> Floats:
        """Inputs (places, 2 width + 1): state and embedding, scaled to about 1, and a one."""
        states = self.states[places].astype(np.float32) * np.float32(scales[0])
        tokens = self.embeddings[self.came[places]] * np.float32(scales[1])
        return np.concatenate([states, tokens, np.ones((len(states), 1), np.float32)], axis=1)


@dataclass(frozen=True, slots=True)
class LearnedMaps:
    """`state` and `token` (width, width), outputs by inputs, and `bias` (width,), float32."""

    state: Floats
    token: Floats
    bias: Floats


def learned(
    lesson: TrainingText,
    *,
    epochs: int = 3,
    seed: int = 0,
    on_progress: Callable[[float], None] = lambda _fraction: None,
) -> LearnedMaps:
    """The maps learned from a lesson: by least squares, then by `epochs` passes of Adam."""
    scales = _scale(lesson.states[:_CHUNK]), _scale(lesson.embeddings)
    weights = _squares(lesson, scales)
    random = np.random.default_rng(seed)
    told = lesson.known[lesson.said[lesson.known + 1] >= 0]
    adam = _Adam(weights, steps=epochs * (len(told) // _BATCH))
    for places in _batches(told, epochs, random):
        features = lesson.features(places, scales)
        features *= (random.random(features.shape, np.float32) >= _DROPPED) / (1 - _DROPPED)
        on_progress(adam.done)
        said = lesson.said[places + 1]
        adam.step(_gradient(features, adam.weights, lesson.output, said))
    width = lesson.states.shape[1]
    found = adam.weights
    return LearnedMaps(found[:width].T * scales[0], found[width:-1].T * scales[1], found[-1])


def _scale(rows: NDArray[np.floating]) -> float:
    return float(1 / np.sqrt((rows.astype(np.float32) ** 2).mean()))


def _squares(lesson: TrainingText, scales: tuple[float, float]) -> Floats:
    """(2 width + 1, width) by the normal equations, with a penalty."""
    width, count = lesson.states.shape[1], len(lesson.known)
    normal = np.zeros((2 * width + 1, 2 * width + 1), np.float64)
    right = np.zeros((2 * width + 1, width), np.float64)
    for start in range(0, count, _CHUNK):
        places = lesson.known[start : start + _CHUNK]
        features = lesson.features(places, scales)
        normal += features.T @ features
        right += features.T @ lesson.states[places + 1].astype(np.float32)
    normal.flat[:: len(normal) + 1] += _PENALTY * count
    return np.linalg.solve(normal, right).astype(np.float32)


def _batches(
    places: NDArray[np.int64], epochs: int, random: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    for _ in range(epochs):
        shuffled = random.permutation(places)
        for start in range(0, len(places) - _BATCH + 1, _BATCH):
            yield shuffled[start : start + _BATCH]


def _gradient(features: Floats, weights: Floats, output: Floats, said: NDArray[np.int64]) -> Floats:
    """The gradient of the mean cross-entropy with respect to the weights."""
    logits = features @ weights @ output.T
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(said)), said] -= 1
    return np.asarray(features.T @ (logits @ output) / len(said), np.float32)


@dataclass(slots=True)
class _Adam:
    """Adam over so many `steps`; its rate first rises and then falls."""

    weights: Floats
    steps: int
    _count: int = 0
    _first: Floats = field(init=False)
    _second: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._first, self._second = np.zeros_like(self.weights), np.zeros_like(self.weights)

    @property
    def done(self) -> float:
        """The part of all steps that has been made."""
        return self._count / self.steps

    def step(self, gradient: Floats) -> None:
        """Make one step along this gradient."""
        gradient *= min(1.0, _NORM / (float(np.linalg.norm(gradient)) + _EPSILON))
        done = self.done
        rising, falling = done / _WARMING, (1 + np.cos(np.pi * (done - _WARMING))) / 2
        rate = _RATE * min(1.0, rising + 1 / self.steps, float(falling) if done > _WARMING else 1.0)
        self._count += 1
        first, second = _BETAS
        self._first += (1 - first) * (gradient - self._first)
        self._second += (1 - second) * (gradient**2 - self._second)
        moved = self._first / (1 - first**self._count)
        size = np.sqrt(self._second / (1 - second**self._count)) + _EPSILON
        self.weights -= rate * (moved / size + _DECAY * self.weights)
