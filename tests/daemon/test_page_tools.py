"""The page's settings, files, search and code colours, and its return after a restart."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import browser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import paths
from localspec.chats import archive
from localspec.chats.transcript import Conversation
from localspec_daemon.page import memory
from localspec_daemon.page.colours import MAX_BLOCKS, MAX_CHARS
from localspec_daemon.page.painter import painted
from localspec_daemon.page.passes import KEY_HEADER, MAX_BROWSERS, Kept, Passes

IN_A_BROWSER = pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
LANGUAGES = ["python", "js", "c++", "html", "diff", "sh", "json", "rust", "text", "yaml"]
SAID = "[...document.querySelectorAll('.turn .text')].map((one) => one.innerText)"
ENDED = "answering === null && document.querySelector('.turn.assistant .figures') !== null"


@given(st.sampled_from(LANGUAGES), st.text(max_size=200))
def test_pieces_add_up_to_the_code(language: str, text: str) -> None:
    """The pieces join to exactly the code, or there are none: colours must not change a copy."""
    pieces = painted(language, text)
    assert pieces == [] or "".join(piece for _, piece in pieces) == text


def test_words_of_a_language_get_colours() -> None:
    """Code of an unknown language stays plain."""
    assert ("keyword", "def") in painted("python", "def f(): pass\n")
    assert ("comment", "# why\n") in painted("sh", "ls # why\n")
    assert painted("no-such-language", "def f(): pass") == []
    assert painted("", "x") == []


@pytest.mark.parametrize(
    ("blocks", "status"),
    [
        ([], 200),
        ([{"language": "python", "text": "x = 1"}], 200),
        ([{"language": "x" * 65, "text": ""}], 400),
        ([{"language": "c", "text": "x" * (MAX_CHARS + 1)}], 400),
        ([{"language": "c", "text": ""}] * (MAX_BLOCKS + 1), 400),
        ([{"language": "c"}], 400),
    ],
)
def test_code_is_coloured_within_bounds(
    harness: Any, daemon: Any, blocks: list[Any], status: int
) -> None:
    """There is one list of pieces for each block."""

    async def scene() -> None:
        async with daemon(harness) as it:
            got, found = await it.post("/web/highlight", {"blocks": blocks})
            assert got == status
            if status == 200:
                assert len(found["blocks"]) == len(blocks)
                assert all(piece for block in found["blocks"] for _, piece in block)

    asyncio.run(scene())


def test_who_was_let_in_is_known_to_the_next_daemon() -> None:
    """Only hashes are stored, so neither a cookie nor a key can be read from them."""
    first = Passes()
    secrets = []
    for _ in range(MAX_BROWSERS + 3):
        visit = first.redeem(first.issue(0.0), 0.0)
        assert visit is not None
        secrets.append((visit.cookie, first.claim(visit.code, 0.0)))
    kept = first.kept()
    assert len(kept.cookies) == len(kept.keys) == MAX_BROWSERS
    second, headers = Passes(kept), {"Host": "127.0.0.1:1"}
    for cookie, key in secrets[-MAX_BROWSERS:]:
        assert second.admits([cookie], headers | {"X-LocalSpec-Key": str(key)})
        assert cookie not in json.dumps(kept)
        assert str(key) not in json.dumps(kept)
    cookie, key = secrets[0]
    assert not second.admits([cookie], headers | {"X-LocalSpec-Key": str(key)})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kept": [["zz"], []], "at": 1e12}', '{"kept": [[], []], "at": "x"}']
)
def test_a_damaged_memory_lets_nobody_in(tmp_path: Path, text: str) -> None:
    """A damaged or week-old file of sessions grants no access."""
    file = tmp_path / "page.json"
    assert memory.load(file) == Kept()
    memory.keep(file, Kept(("ab",), ("cd",)))
    assert memory.load(file) == Kept(("ab",), ("cd",))
    assert file.stat().st_mode & 0o777 == 0o600
    old = json.loads(file.read_text()) | {"at": time.time() - memory.KEPT_SECONDS}
    file.write_text(json.dumps(old))
    assert memory.load(file) == Kept()
    file.write_text(text)
    assert memory.load(file) == Kept()


def test_after_a_restart_the_page_is_open_again(harness: Any, daemon: Any) -> None:
    """The old cookie and key together suffice, without `localspec web`."""

    async def scene() -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with daemon(harness) as it:
                _, told = await it.post("/v1/web", {})
                root = told["url"].partition("/web/")[0]
                async with http.get(told["url"]) as entered:
                    code = {"code": entered.history[0].headers["Location"].partition("#")[2]}
                async with http.post(f"{root}/web/key", json=code, headers={"Origin": root}) as got:
                    key = {KEY_HEADER: (await got.json())["key"]}
            before = {one.key: one.value for one in http.cookie_jar}
            async with daemon(harness) as it:
                root = f"http://{(await it.get('/v1/status'))['tcp']}"
                port = root.rpartition(":")[2]  # another one where somebody took it meanwhile
                cookies = {f"localspec-{port}": next(iter(before.values()))}
                for sent, status in ((key, 200), ({}, 401)):
                    async with aiohttp.ClientSession() as again:
                        headers = {"Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())}
                        async with again.get(root + "/v1/status", headers=sent | headers) as seen:
                            assert seen.status == status

    asyncio.run(scene())


def test_search_finds_conversations_by_their_words(harness: Any, daemon: Any) -> None:
    """All words must occur, in any turn."""
    for name, text in (("one", "What is a monad?"), ("two", "A recipe for soup")):
        archive.keep(Conversation(name=name, turns=[{"role": "user", "content": text}]))

    async def scene() -> None:
        async with daemon(harness) as it:
            for words, names in (("MONAD", ["one"]), ("soup recipe", ["two"]), ("zzz", [])):
                found = await it.get(f"/web/chats?words={words.replace(' ', '+')}")
                assert [one["name"] for one in found["chats"]] == names
            assert len((await it.get("/web/chats"))["chats"]) == 2

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_question_can_be_changed_and_an_answer_written_anew(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Also with settings, files and colours, in one conversation."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.value("$('system').value = 'Be brief.'")
            await page.value("$('temperature').value = '0.5'")
            await page.value("attach([new File(['x = 1'], 'a.py')])")
            await page.until("document.querySelector('#files .file') !== null")
            await page.type("say hello")
            await page.until(ENDED)
            assert "a.py:\n```\nx = 1\n```" in (await page.value(SAID))[0]
            assert await page.value("document.querySelector('#files .file')") is None
            await page.value("edit(current.turns[0])")
            await page.value("document.querySelector('textarea.edit').value = 'say two'")
            await page.value(
                "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Ask')"
                ".click()"
            )
            await page.until(f"{ENDED} && current.turns.at(-1).content === 'two'")
            assert await page.value(SAID) == ["say two", "two"]
            await page.value("retry(current.turns[1])")
            await page.until(f"{ENDED} && current.turns.length === 2")
            assert await page.value(SAID) == ["say two", "two"]
            assert page.complaints == []
            await page.value("void from(0, 'fail')")
            await page.until("$('notice').textContent !== '' && answering === null")
            await page.until("document.querySelector('.turn .text').innerText === 'say two'")
        kept = archive.load(archive.latest())
        assert (kept.system, kept.params) == ("Be brief.", {"temperature": 0.5})
        assert [turn["content"] for turn in kept.turns] == ["say two", "two"]

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_kept_answer_can_be_copied_and_written_anew(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Of the terminal's or of yesterday's, like one that has just come."""
    turns = [{"role": "user", "content": "say new"}, {"role": "assistant", "content": "old"}]
    archive.keep(Conversation("alpha", turns=turns, name="kept"))

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#chats .title') !== null")
            await page.value("document.querySelector('#chats .title').click()")
            await page.until(f"{SAID}.join() === 'say new,old'")
            buttons = "[...document.querySelectorAll('.turn.assistant .figures button')]"
            assert await page.value(f"{buttons}.map((one) => one.textContent)") == ["Copy", "Retry"]
            await page.value(f"{buttons}[1].click()")
            await page.until(f"{ENDED} && {SAID}.join() === 'say new,new'")

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_file_that_no_question_can_take_leaves(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """The page names it, and the next question is sent without it."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.value("attach([new File([new Uint8Array([255, 254])], 'b.bin')])")
            await page.until("$('notice').textContent.includes('b.bin is not UTF-8 text')")
            await page.value("attach([new File(['x'], 'long.txt')])")
            await page.until("files.length === 1")
            await page.type("fail")
            await page.until("$('notice').textContent.includes('Not attached any more: long.txt')")
            assert await page.value("files.length") == 0

    asyncio.run(scene())


@IN_A_BROWSER
@pytest.mark.parametrize(
    "leave",
    ["document.querySelector('#talk').click()", "press('Escape')", "$('ask').requestSubmit()"],
)
def test_settings_cover_nothing_longer_than_they_are_wanted(
    harness: Any, daemon: Any, tmp_path: Path, leave: str
) -> None:
    """A click elsewhere, a key or a question puts them away; a click inside does not."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.value(
                "press = (key) => $('system').dispatchEvent("
                "new KeyboardEvent('keydown', { key, bubbles: true }))"
            )
            await page.value("$('settings').open = true")
            await page.value("$('system').click(), press('a')")
            assert await page.value("$('settings').open")
            await page.value("$('words').value = 'say hello'")
            await page.value(leave)
            assert not await page.value("$('settings').open")
            assert page.complaints == []

    asyncio.run(scene())


@IN_A_BROWSER
@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("temperature", "-1", False),
        ("temperature", "100", True),
        ("max_tokens", "-5", False),
        ("max_tokens", "1.5", False),
        ("max_tokens", "7", True),
        ("seed", "0.5", False),
        ("seed", "-1", True),
    ],
)
def test_a_setting_out_of_its_range_sends_no_question(
    harness: Any, daemon: Any, tmp_path: Path, name: str, value: str, *, sent: bool
) -> None:
    """It is shown instead, and the question stays in the line."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.value(f"$('{name}').value = '{value}'")
            await page.type("say hello")
            if sent:
                await page.until(ENDED)
                assert await page.value(SAID) == ["say hello", "hello"]
            else:
                assert await page.value("$('words').value") == "say hello"
                assert await page.value("$('settings').open")
                assert await page.value("current") is None

    asyncio.run(scene())


@IN_A_BROWSER
def test_what_was_said_of_files_is_of_the_last_choice(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Each refused file is named, and no longer once others were chosen."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.value(
                "attach(['a', 'b'].map((name) => new File([new Uint8Array([255])], name)))"
            )
            await page.until("/a is not.*\\nb is not/.test($('notice').textContent)")
            await page.value("attach([new File(['x'], 'c.txt')])")
            await page.until("files.length === 1 && $('notice').textContent === ''")

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_search_shows_what_it_found_alone(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """Not the conversation that is open, and a sentence where there is none."""
    archive.keep(Conversation(name="two", turns=[{"role": "user", "content": "A soup"}]))
    listed = "[...document.querySelectorAll('#chats .title')].map((one) => one.innerText).join()"

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.type("say hello")
            await page.until(f"{ENDED} && {listed} === 'say hello,A soup'")
            for words, found in (("soup", "A soup"), ("zzz", ""), ("", "say hello,A soup")):
                await page.value(f"$('search').value = '{words}', search()")
                await page.until(f"{listed} === '{found}'")
                await page.until(
                    f"($('kept').textContent === '') === {'true' if found else 'false'}"
                )

    asyncio.run(scene())


@IN_A_BROWSER
def test_the_line_is_as_high_as_its_words_from_the_start(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Also its first ones, which say what it is for, in a narrow window."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            for width in (320, 1200):
                await page.tell(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=700,
                    deviceScaleFactor=1,
                    mobile=False,
                )
                await page.until("$('words').scrollHeight <= $('words').clientHeight")

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_load_shows_its_stage_and_percent(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """They stand where the answer will be."""
    harness.add("gated")
    gate = harness.models / "gated.gguf.fifo"
    os.mkfifo(gate)

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelectorAll('#model option').length === 2")
            await page.value("$('model').value = 'gated'")
            await page.type("say hello")
            await page.until(
                "document.querySelector('.waiting')?.innerText.includes('reading the model 42 %')"
            )
            assert await page.value("document.querySelector('.waiting progress').value") == 42
            await asyncio.to_thread(gate.write_text, "")
            await page.until(ENDED)
            assert await page.value(SAID) == ["say hello", "hello"]

    asyncio.run(scene())


@IN_A_BROWSER
def test_a_tab_finds_the_next_daemon(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """It shows that no daemon runs; then the conversation continues."""

    async def scene() -> None:
        async with browser.browser(tmp_path / "profile") as page:
            async with daemon(harness) as it:
                _, told = await it.post("/v1/web", {})
                address = told["url"].partition("/web/")[0]
                await page.open(told["url"])
                await page.until("document.querySelector('#model option')?.value === 'alpha'")
                await page.type("say one")
                await page.until(ENDED)
            await page.value("void listChats()")
            await page.until("$('notice').textContent.includes('does not answer')")
            async with daemon(harness) as it:
                if f"http://{(await it.get('/v1/status'))['tcp']}" != address:
                    pytest.skip("another process has taken the page's port meanwhile")
                await page.until("$('notice').textContent.includes('is back')")
                await page.value("$('words').focus()")
                await page.type("say two")
                await page.until("current.turns.length === 4 && answering === null")
                assert (await page.value(SAID))[-2:] == ["say two", "onesaytwo"]

    asyncio.run(scene())


def test_the_memory_is_in_the_state_directory(harness: Any, daemon: Any) -> None:
    """The file contains nothing that grants access."""

    async def scene() -> None:
        async with daemon(harness) as it, aiohttp.ClientSession() as http:
            _, told = await it.post("/v1/web", {})
            async with http.get(told["url"]) as entered:
                cookies = [one.value for one in entered.history[0].cookies.values()]
            text = (paths.state_dir() / "page.json").read_text()
            assert cookies
            assert all(cookie not in text for cookie in cookies)

    asyncio.run(scene())
