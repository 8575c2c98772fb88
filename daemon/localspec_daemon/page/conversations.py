"""The page's conversations: the files that `localspec chats` lists, read and written here.

They are for the page and for the private socket. The token of TCP, which editors and other programs
are given, does not open them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.errors import Forbidden, of_system
from localspec_daemon.api.types.openai import Error
from localspec_daemon.api.types.shape import Shape
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded
from localspec_daemon.page.routes import PRIVATE

PATH = "/web/chats"

Found = TypeVar("Found")


class Turn(msgspec.Struct):
    """One message."""

    role: Literal["user", "assistant"]
    content: str


class Chat(msgspec.Struct):
    """A conversation. A new one has no `name`; `stamp` is what was read or written last."""

    turns: Annotated[list[Turn], Meta(min_length=1)]
    name: str = ""
    stamp: str = ""
    model: str | None = None
    system: str = ""
    draft: Literal["on", "off", "auto"] = "auto"
    params: dict[str, Any] = {}
    trimmed: Annotated[int, Meta(ge=0)] = 0


class Entry(Shape):
    """One line of the list. `changed_at` is in seconds since 1970; `turns` counts questions."""

    name: str
    title: str
    turns: int
    model: str
    changed_at: float


class Entries(Shape):
    """Conversations, the latest first, and whether new ones are kept."""

    keep: bool
    chats: list[Entry]


class SavedName(Shape):
    """Under which name it is kept now; both are empty where nothing is kept."""

    name: str
    stamp: str


async def entries(request: web.Request) -> web.Response:
    """GET /web/chats: every conversation that is kept, or those with all `words` in them."""
    words = request.query.get("words", "")

    def look() -> list[archive.Kept]:
        return [kept for kept, _ in archive.search(words)] if words else list(archive.listed())

    found = await _beside(request, look)
    return json_response({"keep": request.app[SUPERVISOR].config.chat.keep, "chats": found})


async def one(request: web.Request) -> web.Response:
    """GET /web/chats/{name}: all of it. Raises RequestError, LocalSpecError when it is damaged."""
    found = await _beside(request, partial(archive.load, request.match_info["name"]))
    fields = {name: getattr(found, name) for name in Chat.__struct_fields__}
    return json_response(fields)


async def keep(request: web.Request) -> web.Response:
    """POST /web/chats: write one, unless `chat.keep` is false.

    One that was changed elsewhere since its `stamp` is kept under a new name.
    """
    _check(request)
    asked = await decoded(request, Chat)
    if not request.app[SUPERVISOR].config.chat.keep:
        return json_response({"name": "", "stamp": ""})
    conversation = Conversation(**msgspec.to_builtins(asked))
    await _beside(request, partial(archive.keep, conversation))
    return json_response({"name": conversation.name, "stamp": conversation.stamp})


async def remove(request: web.Request) -> web.Response:
    """DELETE /web/chats/{name}. Raises RequestError if there is none."""
    name = request.match_info["name"]
    await _beside(request, partial(archive.remove, name))
    return json_response({"name": name, "stamp": ""})


def _check(request: web.Request) -> None:
    if not request[PRIVATE]:
        raise Forbidden("Conversations are for the page and the socket.", fix="localspec chats")


async def _beside(request: web.Request, work: Callable[[], Found]) -> Found:
    """The result of work with files, done on a thread. Raises Forbidden, and OSErrors as ours."""
    _check(request)
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise of_system(error) from error


ROUTES = (
    Route("GET", PATH, entries, "Conversations that are kept.", gives=Entries, queries=("words",)),
    Route("POST", PATH, keep, "Keeps a conversation.", Chat, SavedName, also=((507, Error),)),
    Route("GET", PATH + "/{name}", one, "One conversation.", gives=Chat),
    Route("DELETE", PATH + "/{name}", remove, "Removes a conversation.", gives=SavedName),
)
