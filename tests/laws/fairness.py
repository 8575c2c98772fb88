"""Whether tokens that an engine gave follow the target's law: one draw of each of them, exactly.

A token's law is known: plain logits behind everything before it, through its request's chain. Put
the support in any order that only the past decides; a number drawn evenly from the token's share of
the order is then uniform and independent of all others (Rosenblatt, 1952), whatever the laws were.
So every token of every text is a draw of one and the same test, and an order that puts first what a
mistake favours sees it with all of them.

The statistic is chi-square over `BINS` equal shares of the order. A mistake that moves a share `d`
of the probability between halves of an order gives a noncentrality of 4 d^2 n for n tokens, and 90
passes the `BOUND` with probability 0.998: with 1000 tokens d = 0.15 is found, with 10,000 0.047.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from laws.house import House
from numpy.typing import NDArray

from localspec.engine.session import Session
from localspec.types import Backend, Floats, Law, Row, Token

BINS = 8
BOUND = 40.5
"""The quantile 1 - 1e-6 of chi-square with 7 degrees of freedom is 40.52 (scipy.stats.chi2)."""

Order = Callable[[Sequence[Token], Law, Law], NDArray[np.intp]]
"""An order of the target law's support, by the tokens before, that law and the draft model's."""


def likeliest(_past: Sequence[Token], law: Law, _draft: Law) -> NDArray[np.intp]:
    """What the target would rather say comes first."""
    return np.argsort(-law.logp, kind="stable")


def drafted(_past: Sequence[Token], law: Law, draft: Law) -> NDArray[np.intp]:
    """What the draft model would rather say comes first: that is what its mistakes favour."""
    told = dict(zip(draft.tokens.tolist(), draft.logp.tolist(), strict=True))
    return np.argsort([-told.get(token, -np.inf) for token in law.tokens.tolist()], kind="stable")


def repeated(past: Sequence[Token], law: Law, _draft: Law) -> NDArray[np.intp]:
    """What followed the last token's latest occurrences comes first, the latest before others."""
    places = [at for at in range(len(past) - 2, -1, -1) if past[at] == past[-1]]
    rank: dict[Token, int] = {}
    for at in places:
        rank.setdefault(past[at + 1], len(rank))
    return np.argsort([rank.get(token, len(past)) for token in law.tokens.tolist()], kind="stable")


ORDERS: dict[str, Order] = {"likeliest": likeliest, "drafted": drafted, "repeated": repeated}


def statistics(house: House, sessions: Sequence[Session]) -> tuple[dict[str, float], int]:
    """Chi-square by order over the output of finished sessions, and how many tokens that were."""
    random = np.random.default_rng(11)
    counts = {name: np.zeros(BINS, dtype=np.int64) for name in ORDERS}
    for session in sessions:
        texts = [
            _logits(memory, house.shape.max_rows, session)
            for memory in (house.memory, house.draft_memory)
        ]
        for index, token in enumerate(session.tokens[session.n_prompt :]):
            past = session.tokens[: session.n_prompt + index]
            law, draft = (session.sampler.law(rows[index], past, []) for rows in texts)
            place = int(np.flatnonzero(law.tokens == token)[0])
            shares = np.exp(law.logp)
            within = random.random() * shares[place]
            for name, order in ORDERS.items():
                ahead = order(past, law, draft)
                before = shares[ahead[: int(np.flatnonzero(ahead == place)[0])]].sum()
                counts[name][min(int((before + within) * BINS), BINS - 1)] += 1
    tokens = int(counts["likeliest"].sum())
    expected = tokens / BINS
    return {
        name: float(((found - expected) ** 2 / expected).sum()) for name, found in counts.items()
    }, tokens


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
        parts.append(memory.decode(forward).copy())
    return np.concatenate(parts)[session.n_prompt - 1 :]
