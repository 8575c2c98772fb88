"""Answers of LocalSpec's own endpoints."""

from __future__ import annotations

import msgspec

from localspec.wire.messages import Replayed
from localspec_daemon.api.types.shape import Shape

Replay = msgspec.defstruct(
    "Replay",
    [(field.name, field.type) for field in msgspec.structs.fields(Replayed)],
    namespace={"__doc__": "The target's and drafters' probabilities for a given text."},
)


class Address(Shape):
    """The page's address, good for one visit."""

    url: str


class ModelStatusWord(Shape):
    """A model and its state."""

    model: str
    status: str
    success: bool
