"""The scales of LoRA adapters in force for a model, for requests that send no scales."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from localspec.wire.messages import Generate, Replay
from localspec.wire.values import Adapter

Request = TypeVar("Request", bound=Generate | Replay)


def adapted(request: Request, loaded: list[Adapter], lora: dict[int, float] | None) -> Request:
    """The request with a scale for each adapter: its own, or those in force if it has none."""
    if isinstance(request, Replay):
        return msgspec.structs.replace(request, request=adapted(request.request, loaded, lora))
    now = current(loaded, lora) if request.lora is None else [Adapter("") for _ in loaded]
    scales = {id_: each.scale for id_, each in enumerate(now)} | (request.lora or {})
    return msgspec.structs.replace(request, lora=scales or None)


def current(loaded: list[Adapter], lora: dict[int, float] | None) -> list[Adapter]:
    """A model's adapters with the scales in `lora`, or with those of the load if it is None."""
    if lora is None:
        return loaded
    return [Adapter(each.path, lora.get(id_, 0.0)) for id_, each in enumerate(loaded)]
