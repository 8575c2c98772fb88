"""llama-server's POST /v1/chat/completions/control: ends the thoughts of an answer that runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Literal

import msgspec
from aiohttp import web

from localspec.errors import DaemonError, RequestError
from localspec.wire.messages import EndThoughts, Generate, QuestionAnswer
from localspec.wire.questions import NOT_RUNNING
from localspec_daemon.api.bodies import identity
from localspec_daemon.api.types.llama_server import Controlled
from localspec_daemon.http.access import caller
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route, both
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.resumption import Stream
from localspec_daemon.supervisor.worker import Worker


class ControlRequest(msgspec.Struct):
    """The body of a control: the `id` that the answer's chunks have, and what is to happen."""

    id: str = ""
    action: Literal["reasoning_end"] | None = None
    model: str | None = None


async def control(request: web.Request) -> web.Response:
    """POST /v1/chat/completions/control; all choices of the answer are meant."""
    supervisor = request.app[SUPERVISOR]
    asked = await decoded(request, ControlRequest)
    for name in ("id", "action"):
        if not getattr(asked, name):
            raise RequestError(f"{name} is missing.", param=name)
    found = [*_streams(supervisor.pool.serving, asked.id, caller(request).client)]
    reasons = [await _end(*each) for each in found]
    if not reasons or all(reasons):
        return json_response({"success": False, "message": next(iter(reasons), NOT_RUNNING)})
    return json_response({"success": True})


def _streams(
    models: Iterable[Model], id_: str, client: str
) -> Iterator[tuple[Stream, Generate, Worker | None]]:
    """The running choices of the client's answer, each with its request and its worker.

    The id of a choice is that of the answer, or begins with it. The worker is None while the
    request is on no worker.
    """
    choices = re.compile(re.escape(id_) + r"(-\d\d?)?")
    for model in models:
        for stream in model.streams.values():
            one = stream.request
            if isinstance(one, Generate) and one.client == client and choices.fullmatch(one.id):
                yield stream, one, model.worker if stream.on_worker else None


async def _end(stream: Stream, request: Generate, worker: Worker | None) -> str:
    """Ends an answer's thoughts on its worker and on every later one; or returns why not."""
    if not request.reasoning_control:
        return "reasoning control not enabled for this completion"
    told = ""
    if worker:
        command = EndThoughts(identity("end"), request.id)
        with contextlib.suppress(DaemonError):  # it died; the stream tells the next one
            async with aclosing(worker.generate(command)) as events:
                async for event in events:
                    told = event.text if isinstance(event, QuestionAnswer) else told
    stream.thoughts_over = stream.thoughts_over or not told
    return told


ROUTES = both(
    Route(
        "POST",
        "/chat/completions/control",
        control,
        "End the thoughts of an answer that runs, so that it goes on to its text.",
        ControlRequest,
        Controlled,
    )
)
