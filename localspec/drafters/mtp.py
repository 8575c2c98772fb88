"""Prediction layers (MTP, NextN) that a model was trained with: they draft from its hidden state.

Gloeckle et al., 2024, "Better & Faster Large Language Models via Multi-token Prediction", and
DeepSeek-AI, 2024, "DeepSeek-V3 Technical Report". They are part of the target's file.
"""

from __future__ import annotations

from localspec.drafters._fed import FedDrafter
from localspec.types import FedBackend, Token

NAME = "mtp"
_PRIORS = (0.25, 0.44, 0.68, 0.88, 0.95, 0.99)
"""Acceptance by the layers' own probability: that of a small model of the same family."""


def build(*, mtp: FedBackend, n_vocab: int, ends: frozenset[Token]) -> FedDrafter:
    """A drafter on a target's prediction layers, for its vocabulary; owns their context."""
    return FedDrafter(NAME, _PRIORS, mtp, n_vocab, ends)
