"""The scales of LoRA adapters that hold for a model now, and for requests that name none."""

from __future__ import annotations

import msgspec

from localspec.wire.messages import Generate, Replay
from localspec.wire.values import Adapter


def adapted(request: Generate | Replay, lora: dict[int, float] | None) -> Generate | Replay:
    """The request with these scales, unless it has its own; None are those of the load."""
    if isinstance(request, Replay):
        inner = adapted(request.request, lora)
        return msgspec.structs.replace(request, request=inner)
    if lora is None or request.lora is not None:
        return request
    return msgspec.structs.replace(request, lora=lora)


def current(loaded: list[Adapter], lora: dict[int, float] | None) -> list[Adapter]:
    """A model's adapters by id, with these scales; None are those of the load."""
    if lora is None:
        return loaded
    return [Adapter(each.path, lora.get(id_, 0.0)) for id_, each in enumerate(loaded)]
