"""The scales of LoRA adapters that hold for a model now, and for requests that name none."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from localspec.wire.messages import Generate, Replay
from localspec.wire.values import Adapter

Request = TypeVar("Request", bound=Generate | Replay)


def adapted(request: Request, loaded: list[Adapter], lora: dict[int, float] | None) -> Request:
    """The request with a scale for each adapter: its own, else those that hold now."""
    if isinstance(request, Replay):
        return msgspec.structs.replace(request, request=adapted(request.request, loaded, lora))
    now = current(loaded, lora) if request.lora is None else [Adapter("") for _ in loaded]
    scales = {id_: each.scale for id_, each in enumerate(now)} | (request.lora or {})
    return msgspec.structs.replace(request, lora=scales or None)


def current(loaded: list[Adapter], lora: dict[int, float] | None) -> list[Adapter]:
    """A model's adapters by id, with these scales; None are those of the load."""
    if lora is None:
        return loaded
    return [Adapter(each.path, lora.get(id_, 0.0)) for id_, each in enumerate(loaded)]
