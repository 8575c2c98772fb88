"""Drafts under a mask that allows no second choice, or is about more tokens than a draft has."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.drafters._siblings import second
from localspec.engine.sampling import Sampler
from localspec.types import Floats, Probs, SamplingParams, Token

TARGET, DRAFT = 40, 32
"""Vocabularies: the target's is padded further."""


class Allowing:
    """A constraint that allows the same tokens everywhere."""

    def __init__(self, allowed: Collection[Token]) -> None:
        self.allowed = allowed

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """Which tokens of the target's vocabulary are allowed."""
        del path
        return np.isin(np.arange(TARGET), list(self.allowed))

    def commit(self, tokens: Sequence[Token]) -> None:
        """Allow the same afterwards."""


def sampler(temperature: float, allowed: Collection[Token], **params: object) -> Sampler:
    """A sampler under such a constraint."""
    made = SamplingParams(temperature=temperature, seed=1, **params)  # type: ignore[arg-type]
    return Sampler(made, constraint=Allowing(allowed))  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_where_one_token_is_allowed_there_is_no_second_choice(temperature: float) -> None:
    """It is no error either: the draft goes on without."""
    logits: Floats = np.linspace(0, 1, DRAFT, dtype=np.float32)
    chooses = sampler(temperature, {7})

    def propose(values: Floats) -> tuple[Token, Probs | None]:
        return chooses.propose(values, [], [], 3)

    token, _ = propose(logits)
    assert token == 7
    assert second(logits, token, propose) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_with_fewer_tokens_proposes_what_both_have(temperature: float) -> None:
    """Masks, biases and penalties of tokens that it lacks are left out."""
    logits: Floats = np.linspace(0, 1, DRAFT, dtype=np.float32)
    chooses = sampler(
        temperature,
        {3, 5, 36},
        logit_bias={36: 50.0, 5: 2.0},
        repetition_penalty=1.1,
    )
    token, _ = chooses.propose(logits, [36, 35, 3], [36], 3)
    assert token in {3, 5}
