"""pytest-lsp: `localspec lsp` as editors start it, held to the specification, on a real daemon."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from clients import asking
from lsprotocol import types as lsp
from pytest_lsp import LanguageClient, client_capabilities, make_test_lsp_client

CODE = "def add(a, b):\n\n"
PLACE = lsp.Position(1, 0)


@asynccontextmanager
async def editor(served: Any, door: str, token: str) -> AsyncIterator[LanguageClient]:
    """Neovim with one file open."""
    address = f"unix://{served.socket}" if door == "socket" else served.url.removeprefix("http://")
    client = make_test_lsp_client()
    await client.start_io(
        sys.executable, "-m", "localspec.cli.main", "lsp", "--model", served.model,
        env=os.environ | {"LOCALSPEC_HOST": address, "LOCALSPEC_API_KEY_FILE": token},
    )  # fmt: skip
    known = lsp.InitializeParams(client_capabilities("neovim"))
    await client.initialize_session(known)
    item = lsp.TextDocumentItem("file:///x/a.py", lsp.LanguageKind.Python, 1, CODE)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    yield client
    await client.shutdown_session()


def wish() -> lsp.InlineCompletionParams:
    """Ghost text on the empty line."""
    context = lsp.InlineCompletionContext(lsp.InlineCompletionTriggerKind.Invoked)
    return lsp.InlineCompletionParams(context, lsp.TextDocumentIdentifier("file:///x/a.py"), PLACE)


@asking.ON_BOTH
def test_ghost_text_comes_from_the_model(served: Any, door: str, tmp_path: Any) -> None:
    """An insertion at the cursor's position."""
    token = tmp_path / "token"
    token.write_text(served.token)

    async def scene() -> None:
        async with editor(served, door, str(token)) as client:
            answer: Any = await client.text_document_inline_completion_async(wish())
            (item,) = answer
            assert "a + b" in item.insert_text
            assert item.range == lsp.Range(PLACE, PLACE)

    asyncio.run(scene())
