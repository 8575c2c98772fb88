"""The prior chance of a copied token, by the facts known about it."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from enum import IntEnum
from typing import NamedTuple

from localspec.drafters._joints import Joint
from localspec.types import PREDICTION, Signal

NAME = "lookup"


class CopiedText(IntEnum):
    """The text that is copied from: an answer repeats itself less faithfully than its prompt."""

    PREDICTION = 0
    PROMPT = 1
    OUTPUT = 2


class Origin(IntEnum):
    """How the drafter came to the place that it copies from."""

    FRESH = 0  # longest match, not tested yet
    COPY = 1  # has already predicted at least one token
    RESYNC = 2  # found again near a copy that an edit broke
    ENTRY = 3  # in a prediction that the text has not followed yet
    EDIT = 4  # where an edit would be made again


class Agreement(IntEnum):
    """The agreement of a copy with what followed the other occurrences of the same text."""

    ALONE = 0
    UNANIMOUS = 1
    DISPUTED = 2


_LENGTHS = (1, 2, 3, 4, 5, 7, 10, 15, 24)
"""Lower edges of the bins of match lengths; finer where each token still changes much."""
# Chosen by gains and losses of drafts with nothing learned, in replays of the built-in suite with
# the default target.
_PRIORS = (0.08, 0.25, 0.38, 0.50, 0.60, 0.70, 0.80, 0.88, 0.94, 0.97)
_ORIGIN_ODDS = (0.0, 0.1, 0.65, 2.0, -0.3)
_PLACE_ODDS = (0.6, 0.0, -0.7)
_AGREEMENT_ODDS = (0.0, 0.7, -1.1)
_JOINT_ODDS = (0.0, 1.3, -0.5, -1.2, -2.0, -2.0, -3.0)
_SAMPLED_ODDS = -0.7
"""Sampling leaves the copied text more often than the likeliest token does."""


class TokenFacts(NamedTuple):
    """The facts about a copied token, apart from the length of the match."""

    sampled: bool
    place: CopiedText
    origin: Origin
    agreement: Agreement
    joint: Joint


def _prior(why: TokenFacts, prior: float) -> float:
    odds = math.log(prior / (1 - prior)) + _SAMPLED_ODDS * why.sampled
    odds += _PLACE_ODDS[why.place] + _ORIGIN_ODDS[why.origin]
    odds += _AGREEMENT_ODDS[why.agreement] + _JOINT_ODDS[why.joint]
    return 1 / (1 + math.exp(-odds))


def _signals() -> dict[tuple[bool, CopiedText, Origin, Agreement, Joint], list[Signal]]:
    """The signals of every combination of facts, each a list by match length."""
    buckets = itertools.count()
    found: dict[tuple[bool, CopiedText, Origin, Agreement, Joint], list[Signal]] = {}
    reasons = itertools.product((False, True), CopiedText, Origin, Agreement, Joint)
    for why in itertools.starmap(TokenFacts, reasons):
        source = PREDICTION if why.place is CopiedText.PREDICTION else NAME
        found[why] = [Signal(source, next(buckets), _prior(why, prior)) for prior in _PRIORS]
    return found


_SIGNALS = _signals()


def signal(why: tuple[bool, CopiedText, Origin, Agreement, Joint], length: int) -> Signal:
    """The signal of a copied token with these facts, behind a match of `length` tokens.

    The facts are those of `TokenFacts`, in a plain tuple to save time: each node of each draft
    needs a signal.
    """
    return _SIGNALS[why][bisect_right(_LENGTHS, length)]
