"""Teaches a draft's output rows to predict its target's tokens from the draft's states, in torch.

A draft's logits are W h: its output rows W times the state h behind its last norm. Here they become
(W M + D) h. M is a square map that begins as the identity: it changes all rows together, by a
matrix of low rank, and can also change the norm's weights. D changes the rows of frequent tokens
one by one. W M + D is stored as an ordinary output matrix, so the draft takes no longer than
before. The layers below do not change, so their states are computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from localspec.types import Floats
from localspec.worker.eagle3.features import Brief
from localspec.worker.eagle3.lesson import device

_BATCH, _LEAST_BATCH = 512, 32
_STEPS = 100
"""Steps of a pass that the batch is sized for, between `_LEAST_BATCH` and `_BATCH` places."""
_RATE = 1e-3
_ROWS_RATE = 3e-4
"""The learning rate of D: it has many rows, and the texts seldom say each of their tokens."""
_DROPPED = 0.1
"""The dropout of the states' numbers: without it the texts are memorized."""
_MOST_PASSES = 12
_PATIENCE = 2
"""Learning ends after this many passes without a better agreement on held-out texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Places of texts: the draft's states (places, width) and the target's likeliest tokens there.

    `rows` (n, width) are the output rows of the n words, the tokens whose rows may change.
    `said` (places,) is the index of the likeliest token among the words, -1 where it is no word.
    Places from `held` on are held out: only the agreement is measured on them.
    """

    states: Brief
    said: NDArray[np.int64]
    rows: Floats
    held: int


class Taught(NamedTuple):
    """The map M (width, width), the changes D (n, width), and the agreement before and after.

    Agreement is measured on held-out places, where the draft chooses among the words.
    """

    turn: Floats
    changes: Floats
    before: float
    after: float


class Report(NamedTuple):
    """The progress of learning: steps made, the most steps possible, the best agreement so far."""

    done: int
    steps: int
    agreement: float


def learn(lesson: Examples, on_progress: Callable[[Report], None], seed: int = 0) -> Taught:
    """Learn until agreement no longer rises. `on_progress` is called after each step."""
    torch.manual_seed(seed)
    where, width = device(), lesson.rows.shape[1]
    rows = torch.from_numpy(lesson.rows).to(where)
    states = torch.from_numpy(lesson.states).view(torch.bfloat16)
    said = torch.from_numpy(lesson.said)
    known = torch.nonzero(said[: lesson.held] >= 0).squeeze(1)
    turn = torch.eye(width, device=where).requires_grad_()
    changes = torch.zeros_like(rows).requires_grad_()
    rule = torch.optim.AdamW(
        [{"params": [turn], "lr": _RATE}, {"params": [changes], "lr": _ROWS_RATE}],
        weight_decay=0.0,
    )

    def given(places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return states[places].to(where, torch.float32), said[places].to(where)

    def logits(x: torch.Tensor) -> torch.Tensor:
        return (x @ turn.T) @ rows.T + x @ changes.T

    def agreement() -> float:
        same = 0
        with torch.no_grad():
            for places in torch.arange(lesson.held, len(said)).split(_BATCH):
                x, wanted = given(places)
                same += int((logits(x).argmax(1) == wanted).sum())
        return same / max(1, len(said) - lesson.held)

    before = best = agreement()
    kept = turn.detach().clone(), changes.detach().clone()
    size = min(_BATCH, max(_LEAST_BATCH, len(known) // _STEPS))
    waited, steps = 0, -(-len(known) // size)
    for passes in range(_MOST_PASSES):
        rate = 1 - passes / _MOST_PASSES
        rule.param_groups[0]["lr"], rule.param_groups[1]["lr"] = _RATE * rate, _ROWS_RATE * rate
        for done, places in enumerate(known[torch.randperm(len(known))].split(size), 1):
            x, wanted = given(places)
            loss = functional.cross_entropy(logits(functional.dropout(x, _DROPPED)), wanted)
            rule.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([turn, changes], 1.0)
            rule.step()
            on_progress(Report(passes * steps + done, _MOST_PASSES * steps, best))
        now = agreement()
        if now > best:
            best, waited = now, 0
            kept = turn.detach().clone(), changes.detach().clone()
        else:
            waited += 1
        if waited == _PATIENCE:
            break
    found, changed = (each.cpu().numpy() for each in kept)
    return Taught(found, changed, before, best)
