"""A real browser without a screen, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

BINARY = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
_SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
    *("--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"),
)


class Page:
    """One tab."""

    def __init__(
        self, http: aiohttp.ClientSession, address: str, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._http = http
        self._address = address
        self._socket = socket
        self._asked = 0
        self.complaints: list[str] = []
        """Exceptions of scripts, and what the page's policy forbade."""

    async def tell(self, method: str, **params: Any) -> Any:
        """The answer to one command of the protocol."""
        self._asked += 1
        number = self._asked
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async for message in self._socket:
            said = json.loads(message.data)
            if said.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.complaints.append(json.dumps(said["params"]))
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
        raise ConnectionError("the browser has gone")

    async def open(self, address: str) -> None:
        """Go there, as somebody who typed it."""
        await self.tell("Page.navigate", url=address)
        await self._loaded()

    async def _loaded(self) -> None:
        async with asyncio.timeout(60):
            async for message in self._socket:
                if json.loads(message.data).get("method") == "Page.loadEventFired":
                    return

    async def reload(self) -> None:
        """Load the page again, as its button does."""
        await self.tell("Page.reload")
        await self._loaded()

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[Page]:
        """Another tab of this browser, empty."""
        async with self._http.put(f"http://{self._address}/json/new") as made:
            tab = await made.json(content_type=None)
        async with _tab(self._http, self._address, tab) as page:
            yield page

    async def value(self, expression: str) -> Any:
        """The expression's value in the page, as JSON has it."""
        found = await self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait, in the page, for it to become true."""
        look = f"() => ({expression}) ? done(true) : setTimeout(look, 30)"
        late = "setTimeout(() => done(document.body.innerText), 40000)"
        waiting = f"new Promise((done) => {{ const look = {look}; look(); {late}; }})"
        async with asyncio.timeout(60):
            found = await self.tell(
                "Runtime.evaluate", expression=waiting, awaitPromise=True, returnByValue=True
            )
        assert found["result"].get("value") is True, f"{expression} is not true: {found}"

    async def paste(self, text: str) -> None:
        """Into the line, by the clipboard."""
        line = "document.getElementById('words')"
        await self.value(f"{line}.focus(), {line}.value = {json.dumps(text)}")
        for command in ("selectAll", "copy", "delete", "paste"):
            await self.tell("Input.dispatchKeyEvent", type="keyDown", key="x", commands=[command])

    async def type(self, text: str) -> None:
        """Into what has the focus, and Enter."""
        await self.tell("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            await self.tell(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r"
            )


@contextlib.asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Page]:
    """A browser with an empty profile in `directory`, and its one tab."""
    assert BINARY is not None
    process = await asyncio.create_subprocess_exec(
        BINARY,
        *_SWITCHES,
        f"--user-data-dir={directory}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await _address(process)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{address}/json/list") as listed,
        ):
            (tab,) = [one for one in await listed.json() if one["type"] == "page"]
            async with _tab(session, address, tab) as page:
                yield page
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def _tab(
    http: aiohttp.ClientSession, address: str, tab: dict[str, Any]
) -> AsyncIterator[Page]:
    """A tab of the browser at this address, as its list describes it."""
    async with http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
        page = Page(http, address, socket)
        for domain in ("Page", "Runtime", "Log"):
            await page.tell(f"{domain}.enable")
        yield page


@contextlib.asynccontextmanager
async def opened(it: Any, directory: Path) -> AsyncIterator[Page]:
    """A browser that a running daemon has let in, by the address that it told."""
    async with browser(directory) as page:
        _, told = await it.post("/v1/web", {})
        await page.open(told["url"])
        yield page


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where it listens, from what it says on stderr."""
    assert process.stderr is not None
    async with asyncio.timeout(60):
        async for line in process.stderr:
            if b"DevTools listening on ws://" in line:
                return line.decode().partition("ws://")[2].partition("/")[0]
    raise ConnectionError("the browser did not start")
