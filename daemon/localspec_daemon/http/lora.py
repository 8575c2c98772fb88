"""llama-server's endpoints of LoRA adapters: which a model has, and their scales."""

from __future__ import annotations

from aiohttp import web

from localspec.errors import RequestError
from localspec.ranges import ADAPTER_SCALE
from localspec_daemon.api.openai_types import LoraScale
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded
from localspec_daemon.supervisor.adapted import current


async def adapters(request: web.Request) -> web.Response:
    """GET /lora-adapters: the adapters of a model, and their scales. Loads nothing."""
    found = await request.app[SUPERVISOR].model(named(request), aliases=False)
    return json_response(
        [
            {
                "id": id_,
                "path": each.path,
                "scale": each.scale,
                "task_name": "",
                "prompt_prefix": "",
            }
            for id_, each in enumerate(current(found.load.adapters, found.lora))
        ]
    )


async def set_scales(request: web.Request) -> web.Response:
    """POST /lora-adapters: set the scales for requests that send none; 0 for those left out."""
    asked = await decoded(request, list[LoraScale])
    found = await request.app[SUPERVISOR].model(named(request), aliases=False)
    has = len(found.load.adapters)
    for each in asked:
        if not 0 <= each.id < has:
            raise RequestError(
                f"{found.name} has no adapter {each.id}: it has {has}.",
                fix="GET /lora-adapters lists them.",
                param="id",
            )
        if each.scale not in ADAPTER_SCALE:
            raise RequestError(
                f"The scale of adapter {each.id} is {each.scale}.",
                fix=f"Choose a value from {ADAPTER_SCALE}.",
                param="scale",
            )
    found.lora = {each.id: each.scale for each in asked}
    return json_response({"success": True})
