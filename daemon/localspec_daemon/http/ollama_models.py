"""Ollama's endpoints about models: list, show, pull, delete."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from functools import partial
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.catalog import header
from localspec.catalog.filenames import label
from localspec.catalog.registry import Model as Entry
from localspec.errors import NotServed, UnknownModel
from localspec_daemon.api.dialect import Dialect, Json
from localspec_daemon.api.framing import LINES
from localspec_daemon.api.ollama import OllamaReply, stamp
from localspec_daemon.http.access import body, caller
from localspec_daemon.http.body_limits import off_loop
from localspec_daemon.http.named import named
from localspec_daemon.http.output import FrameStream, json_response
from localspec_daemon.http.serve import SUPERVISOR, text_handler
from localspec_daemon.http.tokens import decoded
from localspec_daemon.supervisor import memory_use
from localspec_daemon.supervisor.keep_alive import requested_seconds
from localspec_daemon.supervisor.supervisor import Supervisor

VERSION = "0.12.0"
"""The version of Ollama's API; some editors refuse one that is too old or not x.y.z."""


_FILLS = {b"<|fim_prefix|>", b"<fim_prefix>", b"<fim-prefix>", b"<PRE>", b"[PREFIX]"}
_FILLS |= {name.encode() for name in ("\u2581<PRE>", "<\uff5cfim\u2581begin\uff5c>")}
"""Tokens before the prefix, in the vocabularies of models with fill-in-the-middle."""
_THOUGHTS = ("</think>", "<|channel|>analysis")
"""Marks in the templates of models that think."""


_PARAMETERS = re.compile(r"(?:^|[-_.])(\d+(?:\.\d+)?[bm])(?=[-_.]|$)", re.IGNORECASE)
"""A model's size in its name: `1.5b`."""
_FOR_EVER_SECONDS = 10.0 * 365 * 86_400
"""The time until the expiry date that is shown for a model that is never unloaded."""


class NamedRequest(msgspec.Struct):
    """A body that names a model, in the old field or the new one."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None

    @property
    def meant(self) -> str:
        """The name; "" where there is none."""
        return self.model or self.name or ""


async def root(_request: web.Request) -> web.Response:
    """GET /: the greeting by which clients recognise Ollama."""
    return web.Response(text="Ollama is running")


async def version(_request: web.Request) -> web.Response:
    """GET /api/version."""
    return json_response({"version": VERSION})


async def tags(request: web.Request) -> web.Response:
    """GET /api/tags: the models that are here."""
    entries = await request.app[SUPERVISOR].entries()
    return json_response({"models": [_card(entry) for entry in entries if entry.role == "target"]})


async def ps(request: web.Request) -> web.Response:
    """GET /api/ps: the models that are loaded."""
    supervisor = request.app[SUPERVISOR]
    loaded = {
        name: model for name, model in supervisor.pool.models.items() if model.state == "ready"
    }
    cards = [_card(entry) for entry in await supervisor.entries() if entry.name in loaded]
    return json_response({"models": [card | _expiry(supervisor, card["name"]) for card in cards]})


async def show(request: web.Request) -> web.Response:
    """POST /api/show: what one model is and can do."""
    supervisor = request.app[SUPERVISOR]
    entry = await _entry(supervisor, await _named(request))
    found = await asyncio.to_thread(header.read, entry.path) if entry.path else None
    architecture = found.architecture if found else ""
    template = supervisor.template(entry) or (found.chat_template if found else "") or ""
    inserts = bool(found and _FILLS & set(found.tokens()))
    capabilities = ["completion", *(["tools"] if "tools" in template else [])]
    if found and found.embeds:
        capabilities = ["embedding"]
    if entry.sees:
        capabilities.append("vision")
    if any(mark in template for mark in _THOUGHTS):
        capabilities.append("thinking")
    if inserts:
        capabilities.append("insert")
        template += "{{- /* .Suffix */ -}}"  # editors search for this word
    return json_response(
        {
            "modelfile": f"FROM {entry.name}",
            "parameters": "",
            "template": template,
            "details": _details(entry),
            "model_info": {
                "general.architecture": architecture,
                "general.parameter_count": found.parameters if found else 0,
                f"{architecture}.context_length": found.context_length if found else 0,
            },
            "capabilities": capabilities,
            "modified_at": stamp(entry.modified),
        }
    )


async def pull(request: web.Request) -> web.StreamResponse:
    """POST /api/pull: success for a model that is here. Raises NotServed: nothing is downloaded."""
    asked = await _named(request)
    try:
        await _entry(request.app[SUPERVISOR], asked)
    except UnknownModel as error:
        raise NotServed(
            "The daemon itself makes no connection to the outside.",
            fix=f"Run: localspec models pull {asked.meant[:80]}",
            param="model",
        ) from error
    if asked.stream is False:
        return json_response({"status": "success"})
    stream = FrameStream(request, LINES)
    for word in ("pulling manifest", "success"):
        await stream.data({"status": word})
    return await stream.done()


async def delete(request: web.Request) -> web.StreamResponse:
    """DELETE /api/delete. Raises NotServed: `localspec models remove` deletes files."""
    entry = await _entry(request.app[SUPERVISOR], await _named(request))
    raise NotServed(
        "The daemon deletes no files.",
        fix=f"Run: localspec models remove {entry.name}",
        param="model",
    )


def ollama_handler(dialect: Dialect) -> Handler:
    """The handler of a dialect in which a request without a prompt loads or unloads the model."""
    answer = text_handler(dialect)

    async def handler(request: web.Request) -> web.StreamResponse:
        supervisor = request.app[SUPERVISOR]
        data = await body(request, supervisor.config.server.max_body_bytes)
        asked = await off_loop(
            partial(dialect.read, data, supervisor.config, caller(request)), data
        )
        wished = requested_seconds(asked.body.keep_alive)
        if asked.generates and wished is None:
            return await answer(request)
        found = await supervisor.model(named(request, asked.model))
        with supervisor.pool.keep_alive(found, wished):
            if asked.generates:
                return await answer(request)
            reply = dialect.reply(asked, found.name)
            assert isinstance(reply, OllamaReply)  # noqa: S101 - only Ollama's
            if wished == 0:
                return json_response(reply.loaded("unload"))
            async with supervisor.request():
                async for _ in found.loading():
                    pass
            return json_response(reply.loaded("load"))

    return handler


async def _named(request: web.Request) -> NamedRequest:
    asked = await decoded(request, NamedRequest)
    asked.model = named(request, asked.meant)
    return asked


async def _entry(supervisor: Supervisor, asked: NamedRequest) -> Entry:
    """The model of that name, without the tag that clients add. Raises UnknownModel."""
    return await supervisor.entry(asked.meant.removesuffix(":latest"))


def _card(entry: Entry) -> Json:
    return {
        "name": entry.name,
        "model": entry.name,
        "modified_at": stamp(entry.modified),
        "size": entry.size_bytes,
        "digest": hashlib.sha256(f"{entry.name}:{entry.modified}".encode()).hexdigest(),
        "details": _details(entry),
    }


def _details(entry: Entry) -> Json:
    family = entry.name.split("-")[0]
    size = _PARAMETERS.search(entry.name)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": size[1].upper() if size else "",
        "quantization_level": label(entry.name),
    }


def _expiry(supervisor: Supervisor, name: str) -> dict[str, Any]:
    model = supervisor.pool.models.get(name)
    left = _FOR_EVER_SECONDS
    if model:
        left = min(left, supervisor.pool.keep_alive_seconds(model))
    now = asyncio.get_running_loop().time()
    used = model.used_at if model and not model.requests else now
    held = memory_use.taken(model) if model else {}
    vram = sum(size for device, size in held.items() if device != "CPU")
    return {
        "expires_at": stamp(time.time() + used - now + left),
        "size": sum(held.values()),
        "size_vram": vram,
    }
