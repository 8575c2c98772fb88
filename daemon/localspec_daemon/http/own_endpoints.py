"""LocalSpec's own endpoints: replay, status, health, metrics."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from aiohttp import web

from localspec.prefixes import overview as prefixes
from localspec.wire.messages import Replayed
from localspec_daemon.api import own
from localspec_daemon.http import metrics
from localspec_daemon.http.access import KNOWN, body, caller
from localspec_daemon.http.body_limits import off_loop
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR


async def replay(request: web.Request) -> web.Response:
    """POST /v1/replay: the target's and drafters' probabilities for a text."""
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    read = partial(own.replay, data, supervisor.config, caller(request))
    asked, wanted = await off_loop(read, data)
    found = await supervisor.model(named(request, asked.model), aliases=asked.aliases)
    async with supervisor.request(), aclosing(supervisor.generate(found, wanted)) as events:
        async for event in events:
            if isinstance(event, Replayed):
                return json_response(own.replayed(event))
    raise RuntimeError("a replay ended without its last event")


async def status(request: web.Request) -> web.Response:
    """GET /v1/status: everything that `localspec status` shows."""
    return json_response(await request.app[SUPERVISOR].status())


async def cache(request: web.Request) -> web.Response:
    """GET /v1/cache: what is kept of prompts that were read."""
    wanted = request.app[SUPERVISOR].config.cache.disk_bytes
    return json_response(await asyncio.to_thread(prefixes.overview, wanted))


async def clear_cache(request: web.Request) -> web.Response:
    """DELETE /v1/cache: delete the files, and all that workers hold in memory or are writing."""
    cleared = await asyncio.to_thread(prefixes.clear)
    request.app[SUPERVISOR].pool.forget()
    return json_response(cleared)


async def health(request: web.Request) -> web.Response:
    """GET /health: whether requests make progress, not whether a port answers."""
    unhealthy_reason = request.app[SUPERVISOR].unhealthy_reason(known=request[KNOWN])
    if not unhealthy_reason:
        return json_response({"status": "ok"})
    fields = {"code": 503, "message": unhealthy_reason, "type": "unavailable_error"}
    return json_response({"error": fields}, 503)


async def prometheus(request: web.Request) -> web.Response:
    """GET /metrics: the figures of all models, or of the one that the request names."""
    supervisor = request.app[SUPERVISOR]
    tallies, models = dict(supervisor.tallies), dict(supervisor.pool.models)
    if wanted := named(request):
        name = (await supervisor.entry(wanted)).name
        tallies = {name: tallies[name]} if name in tallies else {}
        models = {name: models[name]} if name in models else {}
    text = metrics.exposition(tallies, models.values())
    headers = {
        "Content-Type": "text/plain; version=0.0.4",
        "Process-Start-Time-Unix": str(int(supervisor.began_at)),
    }
    return web.Response(body=text, headers=headers)
