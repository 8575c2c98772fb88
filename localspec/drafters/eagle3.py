"""An EAGLE-3 head: one layer that drafts from the inputs of three of the target's layers.

Li et al., 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
Training-Time Test". The head comes in a file of its own, made for one target.
"""

from __future__ import annotations

from localspec.drafters._fed import FedDrafter
from localspec.types import FedBackend, Token

NAME = "eagle3"
_PRIORS = (0.16, 0.36, 0.6, 0.8, 0.9, 0.97)
"""How often the target agreed, by the head's own probability."""


def build(*, eagle3: FedBackend, n_vocab: int, ends: frozenset[Token]) -> FedDrafter:
    """A drafter on an EAGLE-3 head, which it owns, for a target with `n_vocab` tokens."""
    return FedDrafter(NAME, _PRIORS, eagle3, n_vocab, ends)
