"""Cuts all texts into windows, and computes a head's loss on a batch of them.

The texts are joined and cut into windows anywhere: a mask keeps texts apart, and positions in the
middle of a long text are seen as often as those at its beginning. The teacher is the target's own
law at a position, over the head's words (the tokens that it drafts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from localspec.types import Floats
from localspec.worker.eagle3 import network
from localspec.worker.eagle3.features import Features
from localspec.worker.eagle3.network import Weights
from localspec.worker.eagle3.shape import Shape
from localspec.worker.eagle3.texts import Ids, Text

DEPTHS = 4
"""Tokens that a chain drafts in training."""
WINDOW = 512
BATCH = 8
"""Windows of one step."""
_PIECE = 2
"""Windows at once on the host: logits and laws of one take a hundred megabytes at every depth."""
_DECAY = 0.85
"""The weight of a depth's loss, relative to that of the depth before."""
_HELD_OUT = 20
"""One text in this many is held out for measuring agreement."""
_MEASURED = 64
"""The most texts that agreement is measured on."""
_SPARE = 1.5
"""The features are copied to a device that has this many times their size free."""


def device() -> torch.device:
    """The device to learn on: a GPU where torch has one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """Everything that does not change while a head is taught.

    embeddings: (tokens, width) of the tokens in the texts; `known` lists these tokens.
    output: (words, width) rows of the target's output matrix; `words` lists their tokens.
    norm: (width,) the target's last norm.
    """

    shape: Shape
    texts: Sequence[Text]
    features: Features
    embeddings: Floats
    known: Ids
    output: Floats
    words: Ids
    norm: Floats


class DeviceData:
    """The training data on the device that learns; `text` numbers each token's text."""

    def __init__(self, material: TrainingData, device: torch.device, window: int = WINDOW) -> None:
        self.shape, self.device, self._window = material.shape, device, window
        self.kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        lengths = np.array([len(text.tokens) for text in material.texts])
        self._starts = np.concatenate(([0], np.cumsum(lengths)))
        tokens = np.concatenate([text.tokens for text in material.texts])
        self._tokens = np.searchsorted(material.known, tokens)
        self._inside = np.isin(tokens, material.words)
        self.text = np.repeat(np.arange(len(lengths)), lengths)
        self._place = np.concatenate([np.arange(length) for length in lengths])
        self._words = torch.from_numpy(material.words.astype(np.int64)).to(device)
        self._ids = tokens
        self._answers = np.array([text.start for text in material.texts])
        self._lengths = lengths
        self._likeliest = material.features.likeliest
        self.embeddings = self._sent(material.embeddings)
        self.output = self._sent(material.output)
        self.norm = torch.from_numpy(material.norm.copy()).to(device)
        self._taps, self._states = self._held(material.features)

    def _sent(self, numbers: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device, self.kind)

    def _held(self, features: Features) -> tuple[Tensor, Tensor]:
        """The taps and states: on the device if it has room for them, otherwise in their files."""
        files = torch.from_numpy(features.taps), torch.from_numpy(features.states)
        if self.device.type != "cuda":
            return files
        size = sum(each.nbytes for each in files)
        room = torch.cuda.mem_get_info(self.device)[0] > _SPARE * size
        return (files[0].to(self.device), files[1].to(self.device)) if room else files

    def _some(self, file: Tensor, rows: NDArray[np.int64]) -> Tensor:
        chosen = torch.from_numpy(rows).to(file.device)
        found = file[chosen].view(torch.bfloat16)
        return found.to(self.device, self.kind)

    @property
    def taught(self) -> NDArray[np.int64]:
        """The texts that are learned from."""
        numbers = np.arange(len(self._lengths))
        taught: NDArray[np.int64] = numbers[numbers % _HELD_OUT != _HELD_OUT - 1]
        return taught

    @property
    def unseen(self) -> NDArray[np.int64]:
        """The texts that agreement is measured on."""
        return np.setdiff1d(np.arange(len(self._lengths)), self.taught)

    def begun(self, seed: int) -> dict[str, Tensor]:
        """The initial weights."""
        some = np.arange(len(self._ids))[:: max(1, len(self._ids) // 4096)]
        return network.begun(self.shape, self.norm, self._some(self._taps, some), seed)

    def windows(self, number: int, seed: int) -> NDArray[np.int64]:
        """The windows (windows, length) of one pass over the texts, in that pass's random order."""
        chosen = np.random.default_rng((seed, number))
        order = chosen.permutation(self.taught)
        stream = np.concatenate([np.arange(*self._starts[each : each + 2]) for each in order])
        length = min(self._window, len(stream))
        stream = stream[int(chosen.integers(0, len(stream) % length + 1)) :]
        cut = stream[: len(stream) // length * length].reshape(-1, length)
        return np.asarray(cut[chosen.permutation(len(cut))])

    def learn(self, weights: Weights, windows: NDArray[np.int64]) -> float:
        """Add the loss's gradients for some windows to those of the weights. Returns the loss."""
        count = len(windows) if self.device.type == "cuda" else _PIECE
        pieces = [windows[start : start + count] for start in range(0, len(windows), count)]
        total = 0.0
        for piece in pieces:
            loss = self.loss(weights, piece) * (len(piece) / len(windows))
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
        return total

    def loss(self, weights: Weights, windows: NDArray[np.int64]) -> Tensor:
        """Cross-entropy against the target's law, summed over all depths by their weights."""
        tokens = torch.from_numpy(self._tokens[windows]).to(self.device)
        text = torch.from_numpy(self.text[windows]).to(self.device)
        length = windows.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
        mask = (causal[None] & (text[:, :, None] == text[:, None, :]))[:, None]
        states = self._some(self._states, windows)
        vectors = network.fused(weights, self.shape, self._some(self._taps, windows))
        embedded = self.embeddings[tokens]
        drafts = network.drafted(weights, self.shape, vectors, embedded, mask=mask, depths=DEPTHS)
        total = torch.zeros((), device=self.device)
        for depth, drafted in enumerate(drafts):
            chosen = self._said(windows, depth)
            if not chosen.any():
                continue
            picked = torch.from_numpy(chosen).to(self.device)
            with torch.no_grad():
                teacher = torch.roll(states, -1 - depth, 1)[picked]
                law = functional.softmax((teacher @ self.output.T).float(), -1)
            said = network.logits(weights, self.shape, drafted[picked], self.output)
            missed = -(law * functional.log_softmax(said.float(), -1)).sum(-1).mean()
            total = total + _DECAY**depth * missed
        return total

    def _said(self, windows: NDArray[np.int64], depth: int) -> NDArray[np.bool_]:
        """The positions of windows whose chain has an answer's token to predict at this depth.

        From position p that is token p + depth + 2, if it is in the window, in the same text and
        among the head's words.
        """
        text = self.text[windows]
        place = self._place[windows] + depth + 2
        inside = np.zeros(windows.shape, np.bool_)
        inside[:, : -depth - 2] = self._inside[windows][:, depth + 2 :]
        found = inside & (place < self._lengths[text]) & (place >= self._answers[text])
        return np.asarray(found)

    def agreement(self, weights: Weights) -> list[float]:
        """By depth, how often the head predicts the target's likeliest token, on held-out texts.

        A chain counts at a depth only if it predicted the text's own tokens at all depths before.
        Where no texts are held out, the taught ones are used.
        """
        unseen = self.unseen
        hits = np.zeros((DEPTHS, 2))
        with torch.no_grad():
            for number in (unseen if len(unseen) else self.taught)[:_MEASURED]:
                hits += self._hits(weights, int(number))
        return [float(right / count) if count else 0.0 for count, right in hits]

    def _hits(self, weights: Weights, number: int) -> NDArray[np.int64]:
        """By depth, the chains that agree with the text so far, and those that say the target's."""
        rows = np.arange(*self._starts[number : number + 2])[-2 * WINDOW :][None]
        length = rows.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=self.device).tril()
        vectors = network.fused(weights, self.shape, self._some(self._taps, rows))
        embedded = self.embeddings[torch.from_numpy(self._tokens[rows]).to(self.device)]
        found = np.zeros((DEPTHS, 2), np.int64)
        alive = np.ones(length, np.bool_)
        drafts = network.drafted(
            weights, self.shape, vectors, embedded, mask=mask[None, None], depths=DEPTHS
        )
        for depth, drafted in enumerate(drafts):
            best = network.logits(weights, self.shape, drafted[0], self.output).argmax(-1)
            said = self._words[best].cpu().numpy()
            answer = self._place[rows[0]] + depth + 2 >= self._answers[number]
            counted = alive & answer & (np.arange(length) + depth + 2 < length)
            wanted = np.roll(self._likeliest[rows[0]], -1 - depth)
            found[depth] = counted.sum(), (counted & (said == wanted)).sum()
            alive = counted & (said == np.roll(self._ids[rows[0]], -2 - depth))
        return found
