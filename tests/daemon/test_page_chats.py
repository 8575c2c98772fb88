"""Conversations of the page and the terminal are in one archive, with restricted access."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import browser
import pytest
from click.testing import CliRunner

from localspec import paths
from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec.cli.main import cli
from localspec_daemon.page.passes import KEY_HEADER

ALL = "onesaytwo"
"""The answer of a scripted worker to both questions; to the last one alone it is "two"."""
TURN = {"role": "user", "content": "hello"}


def of_the_terminal(name: str, *turns: str) -> Conversation:
    """Returns a conversation as `localspec chat` keeps it."""
    conversation = Conversation(name=name, system="Be brief.", params={"temperature": 0.5})
    for place, text in enumerate(turns):
        conversation.say("assistant" if place % 2 else "user", text)
    archive.keep(conversation)
    return conversation


def test_what_one_keeps_the_other_finds(harness: Any, daemon: Any) -> None:
    """A conversation is complete, private, and gone for both when one removes it."""
    of_the_terminal("plans", "one", "A")

    async def scene() -> None:
        async with daemon(harness) as it:
            listed = await it.get("/web/chats")
            assert listed["keep"] is True
            assert [(one["name"], one["title"]) for one in listed["chats"]] == [("plans", "one")]
            found = await it.get("/web/chats/plans")
            assert (found["system"], found["params"]) == ("Be brief.", {"temperature": 0.5})
            found["turns"].append({"role": "user", "content": "two"})
            status, kept = await it.post("/web/chats", found)
            assert (status, kept["name"]) == (200, "plans")
            _, begun = await it.post("/web/chats", {"turns": [TURN]})
        assert archive.load("plans").system == "Be brief."
        assert archive.load("plans").last("user") == "two"
        file = archive.directory() / f"{begun['name']}.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert begun["name"] in CliRunner().invoke(cli, ["chats", "list"]).stdout

    asyncio.run(scene())


def test_the_page_replaces_nothing_that_it_has_not_seen(harness: Any, daemon: Any) -> None:
    """If the terminal has continued it, the page's version is stored beside it."""
    there = of_the_terminal("plans", "one", "A")

    async def scene() -> None:
        async with daemon(harness) as it:
            seen = await it.get("/web/chats/plans")
            there.say("user", "meanwhile")
            archive.keep(there)
            seen["turns"].append({"role": "user", "content": "two"})
            _, kept = await it.post("/web/chats", seen)
            assert kept["name"] != "plans"
            again = await it.post("/web/chats", {**seen, **kept})
            assert again == (200, kept)
        assert archive.load("plans").last("user") == "meanwhile"
        assert archive.load(kept["name"]).last("user") == "two"

    asyncio.run(scene())


def test_nothing_is_kept_where_the_configuration_says_so(harness: Any, daemon: Any) -> None:
    """Existing conversations can still be read, as with `localspec chats`."""
    of_the_terminal("plans", "one", "A")
    harness.configure(chat={"keep": False})

    async def scene() -> None:
        async with daemon(harness) as it:
            kept = await it.post("/web/chats", {"turns": [TURN]})
            assert kept == (200, {"name": "", "stamp": ""})
            assert (await it.get("/web/chats"))["keep"] is False
        assert archive.names() == ["plans"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"turns": []}, 400),
        ({"turns": [{"role": "system", "content": "x"}]}, 400),
        ({"turns": [TURN], "name": "../../etc/passwd"}, 400),
        ({"turns": [TURN], "trimmed": -1}, 400),
        ({"turns": [TURN], "draft": "perhaps"}, 400),
        ({"turns": [{"role": "user", "content": 1}]}, 400),
    ],
)
def test_a_body_that_is_no_conversation_is_refused(
    harness: Any, daemon: Any, body: dict[str, Any], status: int
) -> None:
    """It is refused before anything is written."""

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.post("/web/chats", body))[0] == status
        assert archive.names() == []

    asyncio.run(scene())


def test_the_token_of_tcp_opens_no_conversation(harness: Any, daemon: Any) -> None:
    """Programs with the token may use the model, but not read a user's conversations."""
    of_the_terminal("plans", "one", "A")
    harness.configure(server={"tcp": "127.0.0.1:0"})

    async def scene() -> None:
        jar = aiohttp.CookieJar(unsafe=True)  # the cookie of an address without a name
        async with daemon(harness) as it, aiohttp.ClientSession(cookie_jar=jar) as http:
            _, told = await it.post("/v1/web", {})
            root = told["url"].partition("/web/")[0]
            token = (paths.state_dir() / "token").read_text().strip()
            bearer = {"Authorization": f"Bearer {token}"}
            async with http.get(root + "/v1/status", headers=bearer) as known:
                assert known.status == 200
            async with http.post(root + "/v1/web", json={}, headers=bearer) as refused:
                assert refused.status == 403  # the page's address would open them
            for method in ("GET", "DELETE"):
                path = root + "/web/chats/plans"
                async with http.request(method, path, headers=bearer) as refused:
                    assert refused.status == 403
            async with http.get(told["url"]) as entered:
                code = entered.history[0].headers["Location"].partition("#")[2]
            async with http.delete(root + "/web/chats/plans") as alone:
                assert alone.status == 401
            async with http.post(root + "/web/key", json={"code": code}) as claimed:
                key = {KEY_HEADER: (await claimed.json())["key"]}
            other = {"Origin": "http://127.0.0.1:3000"}
            async with http.delete(root + "/web/chats/plans", headers=other | key) as stranger:
                assert stranger.status == 403
            async with http.delete(root + "/web/chats/plans", headers=key) as removed:
                assert removed.status == 200
            async with http.get(root + "/web/chats/plans", headers=key) as gone:
                assert gone.status == 404
        assert archive.names() == []

    asyncio.run(scene())


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
def test_a_conversation_begun_in_the_terminal_goes_on_in_a_browser(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """The page sends the terminal's turns as well, and the archive gets the page's turns."""
    of_the_terminal("plans", "say one", "- A\n- B\n\n1. C")

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.until("document.querySelector('#chats .title') !== null")
            await page.value("document.querySelector('#chats .title').click()")
            await page.until("document.querySelectorAll('.turn').length === 2")
            assert await page.value("document.querySelectorAll('.turn li').length") == 3
            await page.type("say two")
            await page.until("document.querySelector('.turn.assistant .figures') !== null")
            await page.until("document.getElementById('send').textContent === 'Send'")
            assert page.complaints == []
            found = archive.load("plans")
            assert [turn["content"] for turn in found.turns[2:]] == ["say two", ALL]
            assert found.system == "Be brief."
            found.say("user", "say three")
            archive.keep(found)
            await page.value("window.dispatchEvent(new Event('focus'))")
            await page.until("document.getElementById('talk').innerText.includes('say three')")

    asyncio.run(scene())
