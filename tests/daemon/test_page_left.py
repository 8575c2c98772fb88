"""A tab that is reloaded, closed, or open twice, and a daemon that is killed, lose nothing said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import browser
import pytest

from localspec.chats import archive
from localspec.chats.transcript import Conversation

IN_A_BROWSER = pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
SAID = "[...document.querySelectorAll('.turn .text')].map((one) => one.innerText)"
ENDED = "answering === null && document.querySelector('.turn.assistant .figures') !== null"
READY = "document.querySelector('#model option')?.value === 'alpha'"
HERE = "document.querySelector('#chats .here .title')?.innerText"
ALONE = "current.trimmed = current.turns.length"
"""The next question is sent without those before it: a scripted worker goes by its first word."""
PASTED = "words and more, 'of a log' <b>\n" * 3200


def kept() -> list[list[str]]:
    """The turns of each conversation that is on disk, the latest first."""
    return [[turn["content"] for turn in archive.load(name).turns] for name in archive.names()]


@IN_A_BROWSER
def test_a_reload_comes_back_to_what_was_said(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """Also in the middle of an answer, which says that it stopped, and may be asked for again."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            await page.type("say one")
            await page.until(ENDED)
            await page.reload()
            await page.until(f"{SAID}.join() === 'say one,one' && {HERE} === 'say one'")
            await page.value(ALONE)
            await page.type("wait")
            await page.until("current.turns.at(-1).content === 'waiting'")
            await page.value("$('words').value = 'typed meanwhile'")
            await page.value("files.push({ name: 'a.txt', text: 'x' })")
            await page.reload()
            await page.until(f"{SAID}.length === 4 && $('words').value === 'typed meanwhile'")
            assert (await page.value(SAID))[-2:] == ["wait", "waiting"]
            assert "before the answer was whole" in await page.value("$('talk').innerText")
            assert await page.value("files.map((file) => file.name).join()") == "a.txt"
            await page.until("current.unsaved === false")
            assert kept() == [["say one", "one", "wait", "waiting"]]
            await page.value("void from(2, 'say two')")
            await page.until(f"{ENDED} && {SAID}.join() === 'say one,one,say two,two'")
            assert page.complaints == []
        assert kept() == [["say one", "one", "say two", "two"]]

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_question_that_was_left_unanswered_is_in_the_line_again(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Before an answer begins, behind what was typed meanwhile; of a retry as well."""
    harness.add("gated")
    os.mkfifo(harness.models / "gated.gguf.fifo")

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelectorAll('#model option').length === 2")
            await page.type("say one")
            await page.until(ENDED)
            for question in ("say two", "from(0, 'say two')"):
                await page.value("$('words').value = '', $('model').value = 'gated'")
                if question.startswith("from"):
                    await page.value(f"void {question}")
                else:
                    await page.value("$('words').focus()")
                    await page.type(question)
                await page.until("document.querySelector('.waiting') !== null")
                await page.value("$('words').value = 'and then'")
                await page.reload()
                await page.until("$('words').value.includes('and then')")
                assert await page.value("$('words').value") == "say two\n\nand then"
                assert await page.value(SAID) == ["say one", "one"]
                assert "in the line again" in await page.value("$('notice').textContent")

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_closed_tab_leaves_what_was_written(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """The answer is in the archive as far as it came."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            await page.type("wait")
            await page.until("current.turns.at(-1).content === 'waiting' && current.name !== ''")
            await page.open("about:blank")
            async with asyncio.timeout(20):
                while kept() != [["wait", "waiting"]]:
                    await it.get("/web/chats")

    asyncio.run(scene())


@IN_A_BROWSER
def test_what_is_not_to_be_kept_is_not_kept_by_the_tab_either(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Neither a conversation nor a line; a removed one does not come back."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            await page.type("say one")
            await page.until(ENDED)
            await page.reload()
            await page.until(f"{SAID}.length === 2")
            archive.remove(archive.latest())
            await page.reload()
            await page.until(READY)
            await page.until("document.querySelectorAll('#chats li').length === 0")
            assert await page.value("current") is None
        harness.configure(chat={"keep": False})
        async with daemon(harness) as it, browser.opened(it, tmp_path / "other") as page:
            await page.until(f"{READY} && $('kept').textContent !== ''")
            await page.type("say secret")
            await page.until(ENDED)
            await page.value("$('words').value = 'secret'")
            await page.value("leave()")
            assert "secret" not in await page.value("JSON.stringify(sessionStorage)")
        assert kept() == []

    asyncio.run(scene())


@IN_A_BROWSER
def test_two_tabs_on_one_conversation_lose_nothing(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """One follows the other; where both go on, both texts are kept, and the second is told."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            await page.type("say one")
            await page.until(ENDED)
            address = await page.value("location.href")
            async with page.beside() as other:
                await other.open(address)
                await other.until("document.querySelector('#chats .title') !== null")
                await other.value("document.querySelector('#chats .title').click()")
                await other.until(f"{SAID}.length === 2")
                await other.value(f"{ALONE}, $('words').focus()")
                await other.type("wait")
                await other.until("current.turns.at(-1).content === 'waiting'")
                await page.value("window.dispatchEvent(new Event('focus'))")
                await page.until(f"{SAID}.join().includes('wait')")
                await page.value("current.trimmed = 2, void ask('say two')")
                await page.until("answering === null && current.turns.at(-1).content !== ''")
                await other.value("stop()")
                await other.until("$('notice').textContent.includes('went on elsewhere')")
                await other.reload()
                await other.until(f"{SAID}.join() === 'say one,one,wait,waiting'")
        assert sorted(kept()) == [
            ["say one", "one", "say two", "two"],
            ["say one", "one", "wait", "waiting"],
        ]

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_model_that_is_chosen_in_the_middle_answers_from_then_on(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """A reload keeps the choice; a conversation whose model has gone says which one answers."""
    harness.add("beta")
    archive.keep(Conversation("gone", turns=[{"role": "user", "content": "say A"}], name="old"))

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelectorAll('#model option').length === 2")
            await page.type("wait")
            await page.until("current.turns.at(-1).content === 'waiting'")
            await page.value("$('model').value = 'beta'")
            await page.value("stop()")
            await page.until("answering === null")
            await page.value(f"{ALONE}, void ask('say two')")
            await page.until(f"{ENDED} && current.turns.length === 4")
            assert archive.load(archive.latest()).model == "beta"
            await page.reload()
            await page.until(f"{SAID}.length === 4")
            assert await page.value("$('model').value") == "beta"
            await page.value("open('old')")
            await page.until("$('notice').textContent.includes('gone is not here any more')")
            assert "beta answers" in await page.value("$('notice').textContent")
            assert it.model("beta").worker is not None

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_long_paste_is_a_question_like_others(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """A hundred kilobytes are sent whole, shown as text, and there after a reload."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            await page.paste("cancelled " + PASTED)
            assert await page.value("$('send').getBoundingClientRect().bottom <= innerHeight")
            await page.value("$('words').value += 'end'")
            await page.value("$('ask').requestSubmit()")
            await page.until(ENDED)
            asked = "cancelled " + PASTED + "end"
            assert await page.value("current.turns[0].content") == asked
            assert await page.value("document.querySelector('.turn.user b')") is None
            await page.value("void from(0, 'wait')")
            await page.until("current.turns.at(-1).content === 'waiting'")
            await page.value(f"$('words').value = {json.dumps(PASTED)}")
            await page.reload()
            await page.until(f"$('words').value.length === {len(PASTED)}")
            assert await page.value(SAID) == ["wait", "waiting"]

    asyncio.run(scene())


@IN_A_BROWSER
def test_two_tabs_outlive_a_killed_worker(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """Both answers go on behind what they had said."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until(READY)
            address = await page.value("location.href")
            async with page.beside() as other:
                await other.open(address)
                await other.until(READY)
                for tab in (page, other):
                    await tab.value("void ask('wait')")
                    await tab.until("current.turns.at(-1).content === 'waiting'")
                first = it.model().worker
                assert first is not None
                os.kill(first.pid, signal.SIGKILL)
                await it.until(lambda: it.model().worker not in {None, first})
                for tab in (page, other):
                    await tab.value("stop()")
                    await tab.until("answering === null")
                    assert await tab.value("current.turns.at(-1).error") is None
        assert kept() == [["wait", "waiting"]] * 2

    asyncio.run(scene())


@IN_A_BROWSER
def test_what_was_written_is_kept_once_the_daemon_is_back(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Of an answer that a dead daemon cut short."""

    async def scene() -> None:
        async with browser.browser(tmp_path / "profile") as page:
            async with daemon(harness) as it:
                _, told = await it.post("/v1/web", {})
                address = told["url"].partition("/web/")[0]
                await page.open(told["url"])
                await page.until(READY)
                await page.type("wait")
                await page.until("current.turns.at(-1).content === 'waiting'")
                await page.until("current.name !== ''")
            await page.until("$('notice').textContent.includes('does not answer')")
            assert kept() == [["wait"]]
            async with daemon(harness) as it:
                if f"http://{(await it.get('/v1/status'))['tcp']}" != address:
                    pytest.skip("another process has taken the page's port meanwhile")
                await page.until("current.unsaved === false && current.stamp !== ''")
                assert kept() == [["wait", "waiting"]]

    asyncio.run(scene())
