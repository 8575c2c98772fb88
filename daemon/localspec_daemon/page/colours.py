"""POST /web/highlight: blocks of code as pieces with a kind each, for the page's colours.

Lexers are regular expressions over text that a model wrote, and some take for ever. They run in a
child process, one at a time, for at most `MAX_SECONDS`. After that, code is shown without colours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta

from localspec_daemon.api.types.shape import Shape
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route
from localspec_daemon.http.tokens import decoded

PATH = "/web/highlight"
MAX_BLOCKS = 64
MAX_CHARS = 64 * 1024
"""Most characters of one coloured block."""
MAX_SECONDS = 3.0
_COMMAND = (sys.executable, "-P", "-m", "localspec_daemon.page.painter")
ONE_AT_A_TIME: web.AppKey[asyncio.Semaphore] = web.AppKey("colours", asyncio.Semaphore)


class Block(msgspec.Struct):
    """Code, and the word behind its fence."""

    language: Annotated[str, Meta(max_length=64)]
    text: Annotated[str, Meta(max_length=MAX_CHARS)]


class Code(msgspec.Struct):
    """The text to be coloured."""

    blocks: Annotated[list[Block], Meta(max_length=MAX_BLOCKS)]


class ColouredBlocks(Shape):
    """For each block its pieces, [kind, text]; none where it stays without colours."""

    blocks: list[list[tuple[str, str]]]


async def highlight(request: web.Request) -> web.Response:
    """POST /web/highlight."""
    asked = await decoded(request, Code)
    plain: list[list[tuple[str, str]]] = [[] for _ in asked.blocks]
    async with request.app[ONE_AT_A_TIME]:
        pieces = await _painted([(block.language, block.text) for block in asked.blocks])
    return json_response({"blocks": pieces or plain})


async def _painted(blocks: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The spans that the child writes; [] where it fails or takes too long."""
    pipe = asyncio.subprocess.PIPE
    try:
        child = await asyncio.create_subprocess_exec(*_COMMAND, stdin=pipe, stdout=pipe)
    except OSError:
        return []
    try:
        async with asyncio.timeout(MAX_SECONDS):
            output, _ = await child.communicate(json.dumps(blocks).encode())
        found: list[list[tuple[str, str]]] = json.loads(output)
    except (TimeoutError, ValueError):
        return []
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    return found


ROUTES = (Route("POST", PATH, highlight, "Code in pieces, for colours.", Code, ColouredBlocks),)
