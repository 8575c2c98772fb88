"""Answers that no other server gives."""

from __future__ import annotations

import msgspec

from localspec.wire.messages import Replayed
from localspec_daemon.api.types.shape import Shape

Replay = msgspec.defstruct(
    "Replay",
    [(field.name, field.type) for field in msgspec.structs.fields(Replayed)],
    namespace={"__doc__": "What target and drafters think of a text that is there already."},
)


class Address(Shape):
    """Where the page is, for one visit."""

    url: str


class ModelStatusWord(Shape):
    """A model, and what it is doing."""

    model: str
    status: str
    success: bool
