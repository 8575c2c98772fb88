"""Endpoints of model pickers: list, progress, load and unload."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from aiohttp import web

from localspec.catalog import header
from localspec.catalog.registry import Model as Entry
from localspec.errors import Busy, ConfigError
from localspec.wire.messages import Ready
from localspec_daemon.api.dialect import Json
from localspec_daemon.api.framing import UNENDING_EVENTS
from localspec_daemon.api.ollama import stamp
from localspec_daemon.api.relay import Route
from localspec_daemon.api.settings import settings
from localspec_daemon.http.named import named
from localspec_daemon.http.output import FrameStream, json_response
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded
from localspec_daemon.supervisor import memory_use
from localspec_daemon.supervisor.adapted import current
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.supervisor import Supervisor

NOTHING_NEXT: Json = {
    "has_next_token": True,
    "has_new_line": False,
    "n_remain": -1,
    "n_decoded": 0,
    "stopping_word": "",
}
"""`next_token` of an idle slot."""

LOOK_SECONDS = 1.0
"""How often new and removed files are noticed."""


class NamedModel(msgspec.Struct):
    """The body of POST /v1/models/load and /v1/models/unload."""

    model: str | None = None


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: the models, the default first, drafts last. Loads nothing."""
    supervisor = request.app[SUPERVISOR]
    default = supervisor.config.models.default
    entries = await supervisor.entries()
    drafts = {entry.draft for entry in entries} - {default}
    cards = [_card(supervisor, entry) for entry in entries]
    for card in cards:
        if card["id"] in drafts:
            card["role"] = "draft"
    cards += [_upstream_card(to) for to in await supervisor.upstream_models()]
    cards.sort(key=lambda card: (card["role"] == "draft", card["id"] != default, card["id"]))
    names = [card["id"] for card in cards]
    ends = {"has_more": False, "first_id": names[0], "last_id": names[-1]} if names else {}
    return json_response({"object": "list", "data": cards} | ends)


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}: one of them; the id may contain slashes and colons."""
    supervisor, name = request.app[SUPERVISOR], request.match_info["id"]
    if to := await supervisor.upstream_route(name):
        return json_response(_upstream_card(to))
    return json_response(_card(supervisor, await supervisor.entry(name)))


async def props(request: web.Request) -> web.Response:
    """GET /props: llama-server's properties of a model. Loads nothing."""
    supervisor = request.app[SUPERVISOR]
    entry = await supervisor.entry(named(request) or supervisor.config.models.default)
    found = await asyncio.to_thread(header.read, entry.path) if entry.path else None
    known = supervisor.pool.models.get(entry.name)
    ready = known.worker.ready if known and known.worker else None
    context = ready.context if ready else await _context(supervisor, entry)
    template = supervisor.template(entry) or (found.chat_template if found else None) or ""
    scaled = current(known.load.adapters, known.lora) if known else []
    scales = {id_: each.scale for id_, each in enumerate(scaled)}
    slots = supervisor.config.engine.slots
    speculates = _speculates(supervisor, entry, ready)
    return json_response(
        {
            "default_generation_settings": {
                "id": 0,
                "id_task": -1,
                "n_ctx": context,
                "speculative": speculates,
                "is_processing": False,
                "params": settings(
                    supervisor.config.sampling,
                    max_tokens=supervisor.config.server.max_tokens or None,
                    speculates=speculates,
                    lora=scales,
                ),
                "prompt": "",
                "next_token": NOTHING_NEXT,
            },
            "total_slots": ready.slots or slots if ready else slots,
            "model_alias": entry.name,
            "model_path": str(entry.path),
            "modalities": {"vision": ready.sees if ready else entry.sees, "audio": False},
            "chat_template": template,
            "chat_template_caps": {"supports_tool_calls": "tools" in template},
            "build_info": f"b0-{ready.llama_build if ready else 'localspec'}",
            "is_sleeping": ready is None,
        }
    )


async def slots(request: web.Request) -> web.Response:
    """GET /slots: the slots of a model, and whether they are in use."""
    supervisor = request.app[SUPERVISOR]
    entry = await supervisor.entry(named(request) or supervisor.config.models.default)
    known = supervisor.pool.models.get(entry.name)
    ready = known.worker.ready if known and known.worker else None
    count = (ready.slots if ready else 0) or supervisor.config.engine.slots
    busy = min(known.requests - known.queued, count) if known else 0
    if request.query.get("fail_on_no_slot") and busy >= count:
        raise Busy("No slot is free.", fix="Try again in a moment, or raise engine.slots.")
    context = ready.context if ready else await _context(supervisor, entry)
    speculates = _speculates(supervisor, entry, ready)
    return json_response(
        [
            {
                "id": slot,
                "id_task": -1,
                "n_ctx": context,
                "speculative": speculates,
                "is_processing": slot < busy,
                "next_token": [NOTHING_NEXT],
            }
            for slot in range(count)
        ]
    )


async def _context(supervisor: Supervisor, entry: Entry) -> int:
    """The context of a model that is not loaded: the configured one, at most the trained one."""
    trained = await asyncio.to_thread(_trained, entry)
    wanted = supervisor.config.engine.context
    return min(wanted, trained) if wanted and trained else wanted or trained


def _trained(entry: Entry) -> int:
    return header.read(entry.path).context_length if entry.path else 0


def _speculates(supervisor: Supervisor, entry: Entry, ready: Ready | None) -> bool:
    """Whether its answers are drafted, or will be once it is loaded."""
    if supervisor.config.speculation.mode == "off":
        return False
    return bool(ready.drafters) if ready else entry.role != "encoder"


async def changes(request: web.Request) -> web.StreamResponse:
    """GET /models/sse: each model's status, now and at each change, until the client leaves."""
    supervisor = request.app[SUPERVISOR]
    stream = FrameStream(request, UNENDING_EVENTS)
    sent: dict[str, Json] = {}
    await stream.comment("models")
    while True:
        entries: list[Entry] = []
        with contextlib.suppress(ConfigError):  # the directory may be readable at the next look
            entries = await supervisor.entries()
        for entry in entries:
            status = _status(supervisor, entry)
            if sent.get(entry.name) != status:
                sent[entry.name] = status
                event = {"model": entry.name, "event": "model_status", "data": status}
                await stream.data(event)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await supervisor.pool.changed.wait()


async def load(request: web.Request) -> web.Response:
    """POST /v1/models/load: start a load and return; /v1/status shows its progress."""
    found = await _named(request)
    if not found.worker:
        found.start_loading()
    return json_response({"model": found.name, "status": found.state, "success": True})


async def unload(request: web.Request) -> web.Response:
    """POST /v1/models/unload: free the memory once the open requests are finished.

    A load in progress ends at once, and the requests that wait for it get an error.
    """
    found = await _named(request)
    request.app[SUPERVISOR].pool.retire(found)
    found.cancel_loading()
    return json_response({"model": found.name, "status": "unloading", "success": True})


async def _named(request: web.Request) -> Model:
    supervisor = request.app[SUPERVISOR]
    wanted = named(request, (await decoded(request, NamedModel)).model)
    return await supervisor.model(wanted, aliases=False)


def _card(supervisor: Supervisor, entry: Entry) -> dict[str, Any]:
    """One model as llama-server shows it; model pickers recognise the server by `owned_by`."""
    known = supervisor.pool.models.get(entry.name)
    meta: dict[str, Any] = {"size": entry.size_bytes}
    sees = entry.sees
    if known and known.worker and (ready := known.worker.ready):
        sees = ready.sees
        meta |= {
            "n_ctx": ready.context,
            "n_ctx_train": ready.context_train,
            "n_params": ready.parameters,
            "n_vocab": ready.n_vocab,
            "memory": memory_use.taken(known),
            "used_at": stamp(time.time() - memory_use.idle_seconds(known)),
        }
    return {
        "id": entry.name,
        "object": "model",
        "created": int(entry.modified),
        "owned_by": "llamacpp",
        "type": "model",
        "display_name": entry.name,
        "created_at": stamp(entry.modified),
        "role": entry.role,
        "aliases": list(entry.aliases),
        "meta": meta,
        "status": {"value": _status(supervisor, entry)["status"]},
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
    }


def _status(supervisor: Supervisor, entry: Entry) -> Json:
    """A model's state in llama-server's words, and the progress of its loading."""
    known = supervisor.pool.models.get(entry.name)
    state = known.state if known else "unloaded"
    status: Json = {"status": "loaded" if state == "ready" else state}
    if known and state == "loading":
        progress = known.progress
        stages = ["text_model", *(["spec_model"] if known.load.draft_path else [])]
        drafting = progress is not None and progress.stage == "draft"
        status["progress"] = {
            "stages": stages,
            "current": "spec_model" if drafting else "text_model",
            "value": progress.fraction if progress else 0.0,
        }
    return status


def _upstream_card(to: Route) -> dict[str, Any]:
    """A model of an upstream, in the same shape; whether it is loaded there is not known."""
    return {
        "id": to.model,
        "object": "model",
        "created": 0,
        "owned_by": f"upstream:{to.name}",
        "aliases": [],
        "meta": {},
        "status": {"value": "loaded"},
        "role": "target",
        "upstream": {"name": to.name, "url": to.upstream.url},
    }
