"""`localspec lsp`: ghost text for any editor that speaks the Language Server Protocol 3.18."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

import aiohttp
import click

from localspec.cli import ghost, waiting
from localspec.cli.lsp_input import Messages
from localspec.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

    from localspec.client import Client

ANSWER_SECONDS = 30.0
"""An answer that takes longer comes too late: the text has changed since."""


@click.command()
@click.option("--model", default="", metavar="NAME", help="The model; by default the default one.")
def lsp(model: str) -> None:
    """Complete code for editors, as a language server on standard input and output.

    docs/editors.md has what Neovim and VS Code need.

    Example: localspec lsp --model qwen2.5-coder-1.5b-instruct
    """
    client = waiting.running_daemon()
    made = server(client, model)
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # the editor gets each error as an answer
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    messages = Messages(stdin, stdout, made.protocol.structure_message)
    made.start_io(cast("BinaryIO", messages), stdout)
    if messages.broken:
        raise RequestError(messages.broken, fix="Let an editor start `localspec lsp`.")


def server(client: Client, model: str) -> LanguageServer:
    """A language server that asks this daemon. Raises ConfigError without pygls."""
    try:
        from lsprotocol import types  # noqa: PLC0415  only this command needs it
        from pygls.lsp.server import LanguageServer  # noqa: PLC0415  the same
    except ImportError as error:
        raise ConfigError(
            "The language server needs pygls, which is not installed.",
            fix="pip install 'localspec[lsp]'",
        ) from error
    made = LanguageServer("localspec", "1")
    asking: dict[str, asyncio.Task[str]] = {}

    async def latest(uri: str, body: dict[str, Any]) -> str:
        """The answer, or "" if a later request replaced it: not every editor cancels requests."""
        if before := asking.get(uri):
            before.cancel()
        asking[uri] = own = asyncio.create_task(infill(client, body))
        try:
            return await own
        except asyncio.CancelledError:
            if asking[uri] is own:
                raise
            return ""

    # Without options the capability would not be announced.
    @made.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def complete(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        document = made.workspace.get_text_document(params.text_document.uri)
        offset = document.offset_at_position(params.position)
        others = [_buffer(one) for one in made.workspace.text_documents.values()]
        typing = params.context.trigger_kind == types.InlineCompletionTriggerKind.Automatic
        source = str(document.source)
        body = ghost.request(_buffer(document), offset, others, typing=typing, model=model)
        try:
            content = await latest(params.text_document.uri, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = types.LogMessageParams(types.MessageType.Error, f"localspec: {error}")
            made.window_log_message(said)
            return []
        text = ghost.shown(content, source[offset:])
        here = types.Range(params.position, params.position)
        return [types.InlineCompletionItem(text, range=here)] if text else []

    return made


async def infill(client: Client, body: dict[str, Any]) -> str:
    """The text of one infill. Cancelled, it closes the connection, which ends the daemon's work.

    Raises aiohttp.ClientError, OSError, and ValueError for an answer without content.
    """
    door, base = None, "http://localspec"
    if client.socket_path is not None:
        door = aiohttp.UnixConnector(str(client.socket_path))
    elif client.tcp is not None:
        base = f"http://{client}"
    patience = aiohttp.ClientTimeout(ANSWER_SECONDS)
    async with (
        aiohttp.ClientSession(connector=door, headers=client.authorization) as session,
        session.post(f"{base}/infill", json=body, timeout=patience) as response,
    ):
        answer = await response.json(content_type=None)
    if not isinstance(answer, dict) or "content" not in answer:
        raise ValueError(f"The daemon answered {str(answer)[:300]}")
    return str(answer["content"])


def _buffer(document: Any) -> ghost.Buffer:
    """A document of pygls with the name of its file."""
    path = unquote(urlsplit(document.uri).path)
    return ghost.Buffer(PurePosixPath(path).name or "untitled", str(document.source))
