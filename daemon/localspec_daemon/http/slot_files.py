"""llama-server's POST /slots/{id}: what a slot holds is saved, restored or erased."""

from __future__ import annotations

from functools import partial
from typing import Literal, cast

import msgspec
from aiohttp import web

from localspec.errors import RequestError
from localspec.wire.messages import SlotAction
from localspec_daemon.api.bodies import decode, identity
from localspec_daemon.api.dialect import Json
from localspec_daemon.api.openai import slot_name
from localspec_daemon.http.access import body, caller
from localspec_daemon.http.body_limits import off_loop
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR

ACTIONS = ("save", "restore", "erase")


class SlotRequest(msgspec.Struct):
    """The body of POST /slots/{id}; to erase needs no filename."""

    filename: str | None = None
    model: str | None = None


async def slot(request: web.Request) -> web.Response:
    """POST /slots/{id}?action=save, restore or erase."""
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    read = partial(decode, data if data.strip() else b"{}", SlotRequest)
    asked = await off_loop(read, data)
    action, given = request.query.get("action", ""), request.match_info["id"]
    if action not in ACTIONS:
        fix = f"Send one of {', '.join(ACTIONS)}."
        raise RequestError(f'"{action[:40]}" is no action.', fix=fix, param="action")
    slots = supervisor.config.engine.slots
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else -1  # noqa: PLR2004
    if not 0 <= number < slots:
        fix = f"Slots are numbered from 0 to {slots - 1}."
        raise RequestError(f'There is no slot "{given[:40]}".', fix=fix, param="id_slot")
    if action != "erase" and not asked.filename:
        raise RequestError("filename is missing.", fix="Name a file.", param="filename")
    question = SlotAction(
        identity("slot"),
        caller(request).client,
        number,
        slot_name(number, supervisor.config),
        cast("Literal['save', 'restore', 'erase']", action),
        asked.filename or "",
    )
    found = await supervisor.model(named(request, asked.model), aliases=False)
    async with supervisor.request():
        answer = await found.answer(question, supervisor.config.server.max_queue)
    told: Json = {"id_slot": number}
    count, milliseconds = answer.tokens[0], round(answer.seconds * 1000, 3)
    if action == "erase":
        return json_response(told | {"n_erased": count})
    told["filename"] = asked.filename
    if action == "save":
        told |= {"n_saved": count, "n_written": answer.size}
        return json_response(told | {"timings": {"save_ms": milliseconds}})
    told |= {"n_restored": count, "n_read": answer.size}
    return json_response(told | {"timings": {"restore_ms": milliseconds}})
