"""Forwards requests for models of an upstream, logged and counted as local ones are."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import msgspec

from localspec.errors import Busy, LocalSpecError
from localspec_daemon.api.relay import Call
from localspec_daemon.http.output import FrameStream
from localspec_daemon.http.pauses import with_pauses
from localspec_daemon.supervisor.request_log import Record
from localspec_daemon.supervisor.supervisor import Supervisor

FORWARDED = "forwarded"
"""The outcome of an answer that was forwarded to its end, in the log and in the counts."""


async def whole(supervisor: Supervisor, call: Call, client: str) -> bytes:
    """The upstream's answer, a JSON object.

    `client` is the principal, for the log. Raises Busy and what `Upstreams.whole` raises.
    """
    with _recorded(supervisor, call, client):
        return await supervisor.upstreams.whole(call)


async def pump(
    supervisor: Supervisor, call: Call, client: str, silence_seconds: float, stream: FrameStream
) -> None:
    """Copy the upstream's stream into the client's, event by event, with comments in pauses.

    Raises as `whole` does, also in the middle, and ConnectionError when the client has left.
    """
    with _recorded(supervisor, call, client) as record:
        events = with_pauses(supervisor.upstreams.stream(call), silence_seconds)
        async with aclosing(events) as chunks:
            async for chunk in chunks:
                if chunk is None:
                    await stream.comment("waiting for the upstream")
                    continue
                await stream.data(msgspec.Raw(chunk))
                record.ttft_seconds = record.ttft_seconds or _now() - record.came_at


@contextmanager
def _recorded(supervisor: Supervisor, call: Call, client: str) -> Iterator[Record]:
    """The record of one forwarded request, for a `with`. Raises Busy when too many are open."""
    record = Record(f"fwd-{secrets.token_hex(12)}", call.to.model, client, _now())
    try:
        if supervisor.upstreams.open >= supervisor.config.server.max_queue:
            raise Busy(
                f"{supervisor.upstreams.open} requests are forwarded already.",
                fix="Try again in a moment, or raise server.max_queue.",
            )
        yield record
        record.outcome = FORWARDED
    except LocalSpecError as error:
        record.outcome = error.code
        raise
    finally:
        supervisor.tallies[call.to.model].requests[record.outcome] += 1
        record.write(_now())


def _now() -> float:
    return asyncio.get_running_loop().time()
