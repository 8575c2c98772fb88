"""Whether tokens that an engine gave follow the target's law: one draw of each of them, exactly.

A token's law is known: plain logits behind everything before it, through its request's chain. Put
the support in any order that only the past decides; a number drawn evenly from the token's share of
the order is then uniform and independent of all others (Rosenblatt, 1952), whatever the laws were.
So every token of every text is a draw of one and the same test, and an order that puts first what a
mistake favours sees it with all of them.

Two statistics are made of each order: chi-square over `BINS` equal shares of it, and how often its
first token came, against what the laws promise; each is divided by what chance passes once in a
million times. A mistake that moves a share `d` of the probability between halves of an order gives
the first a noncentrality of 4 d^2 n for n tokens, and 90 passes with probability 0.998: with 1000
tokens d = 0.15 is found, with 10,000 0.047. The second finds d = 0.12 of a token that has a half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from laws.engine_harness import Harness
from numpy.typing import NDArray

from localspec.engine.session import Session
from localspec.types import Backend, Floats, Probs, Row, Token

BINS = 8
MATCH = 8
ONCE_IN_A_MILLION = 40.52
"""The quantile 1 - 1e-6 of chi-square with 7 degrees of freedom (scipy.stats.chi2)."""
FIRST_ONCE_IN_A_MILLION = 23.93
"""With one."""

Order = Callable[[Sequence[Token], Probs, Probs], NDArray[np.intp]]
"""An order of the target law's support, by the tokens before, that law and the draft model's."""


def likeliest(_past: Sequence[Token], law: Probs, _draft: Probs) -> NDArray[np.intp]:
    """Order of tokens by the target's probability, the most likely first."""
    return np.argsort(-law.logp, kind="stable")


def drafted(_past: Sequence[Token], law: Probs, draft: Probs) -> NDArray[np.intp]:
    """Order of tokens by the draft model's probability: its mistakes favour the most likely."""
    by_id = dict(zip(draft.tokens.tolist(), draft.logp.tolist(), strict=True))
    return np.argsort([-by_id.get(token, -np.inf) for token in law.tokens.tolist()], kind="stable")


def copied(past: Sequence[Token], law: Probs, _draft: Probs) -> NDArray[np.intp]:
    """Order of tokens that puts the continuation of the longest match first, as lookup does."""
    best: dict[Token, tuple[int, int]] = {}
    for at in range(len(past) - 2, -1, -1):
        length = 0
        while length < min(MATCH, at + 1) and past[at - length] == past[-1 - length]:
            length += 1
        best[past[at + 1]] = max(best.get(past[at + 1], (0, 0)), (length, at))
    ranks = [best.get(token, (-1, 0)) for token in law.tokens.tolist()]
    return np.array(sorted(range(len(ranks)), key=lambda place: ranks[place], reverse=True))


def latest(past: Sequence[Token], law: Probs, _draft: Probs) -> NDArray[np.intp]:
    """Order of tokens that puts the latest first: penalties count against those."""
    said = {token: at for at, token in enumerate(past)}  # of several times the last
    return np.argsort([-said.get(token, -1) for token in law.tokens.tolist()], kind="stable")


ORDERS: dict[str, Order] = {
    "likeliest": likeliest, "drafted": drafted, "copied": copied, "latest": latest,
}  # fmt: skip


@dataclass
class Tally:
    """Draws of one order: by shares of it, and of its first tokens."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, dtype=np.int64))
    excess: float = 0.0
    variance: float = 0.0

    def add(self, shares: NDArray[np.float64], place: int, within: float) -> None:
        """A token that has `place` in an order of these shares; `within` its own, evenly drawn."""
        share = float(shares[:place].sum()) + within * float(shares[place])
        self.counts[min(int(share * BINS), BINS - 1)] += 1
        first = float(shares[0])
        self.excess += (place == 0) - first
        self.variance += first * (1 - first)

    @property
    def surprise(self) -> float:
        """1 is what chance passes once in a million times."""
        expected = self.counts.sum() / BINS
        spread = float(((self.counts - expected) ** 2 / expected).sum())
        first = self.excess**2 / max(self.variance, 1e-9)
        return max(spread / ONCE_IN_A_MILLION, first / FIRST_ONCE_IN_A_MILLION)


def surprises(harness: Harness, sessions: Sequence[Session]) -> dict[str, float]:
    """By order, how surprising the output of finished sessions is; from 1 on it is no chance."""
    random = np.random.default_rng(11)
    tallies = {name: Tally() for name in ORDERS}
    for session in sessions:
        rows = harness.shape.max_rows
        texts = [
            _logits(memory, rows, session) for memory in (harness.memory, harness.draft_memory)
        ]
        for index, token in enumerate(session.tokens[session.n_prompt :]):
            past = session.tokens[: session.n_prompt + index]
            law, draft = (session.sampler.law(text[index], past, [], len(past)) for text in texts)
            within, shares = random.random(), np.exp(law.logp)
            for name, order in ORDERS.items():
                ahead = order(past, law, draft)
                place = int(np.flatnonzero(law.tokens[ahead] == token)[0])
                tallies[name].add(shares[ahead], place, within)
    return {name: tally.surprise for name, tally in tallies.items()}


def _logits(memory: Backend, rows: int, session: Session) -> Floats:
    """The logits before each token of the output, of plain forwards over the finished text."""
    tokens = session.tokens[:-1]
    memory.truncate(0, 0)
    parts = []
    for start in range(0, len(tokens), rows):
        forward = [
            Row(token, start + at, 0, wants_logits=True)
            for at, token in enumerate(tokens[start : start + rows])
        ]
        parts.append(memory.decode(forward).logits.copy())
    return np.concatenate(parts)[session.n_prompt - 1 :]
