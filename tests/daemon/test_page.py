"""The page of `localspec web`: its access, its display, and text that never becomes markup."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import aiohttp
import browser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from localspec_daemon.page.passes import CODE_SECONDS, KEY_HEADER, MAX_CODES, Passes

HOST = "127.0.0.1:14447"


@given(st.floats(0, 3 * CODE_SECONDS), st.integers(0, MAX_CODES))
def test_a_code_is_good_once_and_for_a_minute(later: float, others: int) -> None:
    """This holds for any number of later codes; the oldest are dropped."""
    passes = Passes()
    code = passes.issue(0.0)
    for _ in range(others):
        passes.issue(0.0)
    visit = passes.redeem(code, later)
    assert (visit is not None) == (later <= CODE_SECONDS and others < MAX_CODES)
    assert passes.redeem(code, 0.0) is None
    if visit is not None:
        assert passes.visits([visit.cookie], {"Host": HOST})
        assert passes.redeem(visit.code, 0.0) is None


@given(st.floats(0, 3 * CODE_SECONDS))
def test_the_second_code_is_good_once_and_for_a_minute(later: float) -> None:
    """The script exchanges it at once, so one from a browser's history is void."""
    passes = Passes()
    first = passes.issue(0.0)
    assert passes.claim(first, 0.0) is None
    visit = passes.redeem(first, 0.0)
    assert visit
    key = passes.claim(visit.code, later)
    assert (key is not None) == (later <= CODE_SECONDS)
    assert passes.claim(visit.code, 0.0) is None


@given(
    st.lists(st.sampled_from(["right", "old", "guessed", ""]), max_size=2),
    st.sampled_from(["right", "guessed", "cookie", "", None]),
    st.sampled_from([None, "own", "other port", "https", "null", "localhost"]),
    st.sampled_from([None, "none", "same-origin", "same-site", "cross-site"]),
)
def test_a_request_of_the_page_has_both_secrets_and_its_own_origin(
    cookies: list[str], key: str | None, origin: str | None, site: str | None
) -> None:
    """A cookie alone, a key alone, or another origin is refused."""
    passes = Passes()
    visits = [passes.redeem(passes.issue(0.0), 0.0) for _ in range(2)]
    assert visits[0]
    assert visits[1]
    right = passes.claim(visits[1].code, 0.0)
    values = {"right": visits[1].cookie, "old": visits[0].cookie, "guessed": "x", "": ""}
    keys = {"right": right, "guessed": "x", "cookie": visits[1].cookie, "": ""}
    origins = {
        "own": f"http://{HOST}", "other port": "http://127.0.0.1:3000", "null": "null",
        "https": f"https://{HOST}", "localhost": "http://localhost:14447",
    }  # fmt: skip
    sent = {"Host": HOST}
    sent |= {} if key is None else {KEY_HEADER: str(keys[key])}
    sent |= {} if origin is None else {"Origin": origins[origin]}
    sent |= {} if site is None else {"Sec-Fetch-Site": site}
    known = bool({"right", "old"} & set(cookies))
    here = origin in {None, "own"} and site in {None, "none", "same-origin"}
    given_cookies = [values[one] for one in cookies]
    assert passes.visits(given_cookies, sent) == (known and here)
    assert passes.admits(given_cookies, sent) == (known and here and key == "right")


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({"Origin": f"http://{HOST}"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://127.0.0.1:3000"}, False),
        ({"Origin": f"https://{HOST}"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_a_cookie_alone_opens_nothing_to_another_page(
    headers: dict[str, str], *, admitted: bool
) -> None:
    """A browser sends a cookie to every port of a host, also from another local page."""
    passes = Passes()
    visit = passes.redeem(passes.issue(0.0), 0.0)
    assert visit
    sent = {"Host": HOST, KEY_HEADER: passes.claim(visit.code, 0.0) or "", **headers}
    assert passes.admits([visit.cookie], sent) == admitted
    assert not passes.admits(["guessed"], sent)
    assert not passes.admits([], sent)


async def the_key(http: aiohttp.ClientSession, root: str, code: str) -> dict[str, str]:
    """Returns the header with the key, as the page's script gets it."""
    async with http.post(root + "/web/key", json={"code": code}, headers={"Origin": root}) as asked:
        assert asked.status == 200
        return {KEY_HEADER: (await asked.json())["key"]}


def test_the_page_has_a_door_of_its_own_and_a_way_in(harness: Any, daemon: Any) -> None:
    """It needs no server.tcp; the code becomes a cookie, and without either nothing is shown."""

    async def scene() -> None:
        jar = aiohttp.CookieJar(unsafe=True)  # the cookie of an address without a name
        async with daemon(harness) as it, aiohttp.ClientSession(cookie_jar=jar) as http:
            _, told = await it.post("/v1/web", {})
            root = told["url"].partition("/web/")[0]
            for path in ("/web/", "/web/page.js", "/v1/status"):
                async with http.get(root + path) as stranger:
                    assert stranger.status == 401, path
            async with http.head(told["url"], allow_redirects=False) as looked:  # a virus scanner
                assert (looked.status, looked.cookies) == (303, {})
            async with http.get(told["url"]) as entered:
                assert (entered.status, entered.url.path) == (200, "/web/")
                assert "script-src 'self'" in entered.headers["Content-Security-Policy"]
                code = entered.history[0].headers["Location"].partition("#")[2]
            for path in ("/v1/status", "/web/chats", "/v1/models", "/metrics"):
                async with http.get(root + path) as alone:  # the cookie goes to other ports, too
                    assert alone.status in {401, 403}, path
            async with http.post(root + "/v1/web", json={}) as alone:
                assert alone.status == 401
            stolen = {"Cookie": "; ".join(f"{one.key}={one.value}" for one in jar)}
            async with aiohttp.ClientSession() as thief:
                async with thief.get(root + "/v1/status", headers=stolen) as alone:
                    assert alone.status == 401
                for wrong in ("", "guessed"):
                    body = {"code": wrong}
                    async with thief.post(root + "/web/key", json=body, headers=stolen) as refused:
                        assert refused.status == 403
                async with thief.post(root + "/web/key", json={"code": code}) as refused:
                    assert refused.status == 401
            key = await the_key(http, root, code)
            async with http.get(root + "/v1/status", headers=key) as known:
                assert known.status == 200
            async with http.post(root + "/web/key", json={"code": code}) as spent:
                assert spent.status == 403
            for headers in ({"Origin": "http://127.0.0.1:3000"}, {"Host": "evil.example"}):
                async with http.get(root + "/v1/status", headers=headers | key) as other:
                    assert other.status == 403, headers
            two = CIMultiDict([("Origin", root), ("Origin", "http://evil.example"), *key.items()])
            async with http.get(root + "/v1/status", headers=two) as other:
                assert other.status == 403
            jar.clear()
            async with http.get(told["url"]) as again:
                assert again.status == 403
            _, another = await it.post("/v1/web", {})
            assert another["url"].startswith(root)

    asyncio.run(scene())


def test_a_browser_that_was_not_let_in_is_told_how(harness: Any, daemon: Any) -> None:
    """A client that accepts HTML gets a sentence without the request's text; others get JSON."""

    async def scene() -> None:
        async with daemon(harness) as it, aiohttp.ClientSession() as http:
            _, told = await it.post("/v1/web", {})
            root, spent = told["url"].partition("/web/")[0], "/web/enter/used"
            seen = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "X-Api-Key": "<b>"}
            for path, status in (("/", 401), ("/web/", 401), (spent, 403), ("/<b>", 401)):
                async with http.get(root + path, headers=seen) as browsed:
                    assert (browsed.status, browsed.content_type) == (status, "text/html"), path
                    text = await browsed.text()
                    assert "localspec web" in text
                    assert "<b>" not in text
                async with http.get(root + path) as asked:
                    assert (asked.status, asked.content_type) == (status, "application/json"), path

    asyncio.run(scene())


LISTS = "- a\n  - b\n    - c\n\n1. x\n   ```python\n   def f():\n       return 1\n   ```\n2. y\n"
WIDE = "| Feature | Supported |\n|---|---|\n| tables | " + "many words " * 20 + "|\n"


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
def test_what_is_in_lists_tables_and_charts_is_shown_as_it_is(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Code in a list runs when copied; on a phone words and labels are not cut."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            phone = {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": True}
            await page.tell("Emulation.setDeviceMetricsOverride", **phone)
            turn = "{ role: 'assistant', content: %s }"
            for text in (LISTS, WIDE):
                drawn = f"$('talk').append(shown({turn % json.dumps(text)}))"
                await page.value(drawn)
            assert await page.value("document.querySelector('.turn pre code').textContent") == (
                "def f():\n    return 1"
            )
            assert await page.value("document.querySelectorAll('ul ul ul li').length") == 1
            rows = "document.querySelector('.turn th').getClientRects()[0].height"
            assert await page.value(rows) < 40
            costs = {rows: 400.0 + 100 * rows for rows in (*range(1, 33), 64)}
            await page.value("$('talk').replaceChildren(card('', ''))")
            await page.value(f"$('talk').firstChild.append(stairs({json.dumps(costs)}))")
            boxes = await page.value(
                "[...document.querySelectorAll('svg text')]"
                ".map((one) => one.getBoundingClientRect())"
                ".map(({left, right, top, bottom}) => [left, right, top, bottom])"
            )
            assert len(boxes) >= 8
            for one, other in itertools.combinations(boxes, 2):
                assert one[1] <= other[0] or other[1] <= one[0] or abs(one[2] - other[2]) > 5

    asyncio.run(scene())


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
def test_a_question_without_an_answer_goes_back_into_the_line(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """The next question replaces it: two user turns in a row break many templates."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.type("fail")
            await page.until("document.querySelector('.turn .error') !== null")
            await page.until("document.getElementById('words').value === 'fail'")
            await page.value("document.getElementById('words').value = ''")
            await page.type("say hello")
            await page.until("answering === null && current.turns.at(-1).content === 'hello'")
            await page.until("document.querySelector('.turn.assistant .figures') !== null")
            said = "[...document.querySelectorAll('.turn .text')].map((one) => one.innerText)"
            assert await page.value(said) == ["say hello", "hello"]

    asyncio.run(scene())


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
def test_a_browser_asks_reads_and_watches(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """Text stays text, also where it looks like markup; the dashboard shows the model."""
    hostile = "say vector<int> <img/src=x/onerror=alert(1)> **bold** `code` </script>"

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            await page.until("document.querySelector('#model option')?.value === 'alpha'")
            await page.type(hostile)
            await page.until("document.querySelector('.turn.assistant .figures') !== null")
            said = await page.value("document.querySelector('.turn.assistant .text').innerText")
            assert said == "vector<int><img/src=x/onerror=alert(1)>boldcode</script>"
            assert (
                await page.value("document.querySelectorAll('.turn img, .turn script').length") == 0
            )
            await page.open(await page.value("location.href"))
            await page.until("document.querySelector('#chats .title') !== null")
            assert "vector<int>" in await page.value("document.querySelector('#chats').innerText")
            await page.value("document.getElementById('board').click()")
            await page.until(
                "document.getElementById('dashboard').innerText.includes('alpha: ready')"
            )
            assert page.complaints == []

    asyncio.run(scene())


HOSTILE = [
    "> ", ">", "`", "``` ", "a`b``", "*", "**", "* ", "*a ", "**a* ", "_", "[", "[a](", "]", "[a]",
    "[a](https://x", "[a](https://x) ", "(", "- ", "1. ", "- a\n ", "| ", "|", "| a |\n", "#", "# ",
    "~", "~~~\n", "<a>", "<", "&amp;", "\\", "\n", "\t", " ", "-", "- - ", "> - ", "> a\n", "\n>\n",
    "***a*** ", "`*[", "![a](", "a\n", "| - |\n",
]  # fmt: skip


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
def test_any_text_is_drawn_in_time_that_its_length_takes_and_in_bounded_depth(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Rendering 60,000 repetitive characters takes linear time; a quadratic search takes hours.

    No letter is lost.
    """
    deep = (
        "(text) => { const held = make('div', {}, markdown(text)); let deepest = 0;"
        " const walk = document.createTreeWalker(held);"
        " while (walk.nextNode()) { let depth = 0;"
        " for (let at = walk.currentNode; at !== held && depth < 999; at = at.parentNode) depth++;"
        "   deepest = Math.max(deepest, depth); }"
        " return [deepest, (held.innerHTML.match(/z/g) ?? []).length]; }"
    )

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            async with asyncio.timeout(300):
                for piece in HOSTILE:
                    text = f"({json.dumps(piece)}).repeat({60_000 // len(piece)}) + 'z'"
                    for given in (text, f"'z ' + {text}", f"'- z\\n  ' + {text}"):
                        deepest, letters = await page.value(f"({deep})({given})")
                        assert deepest <= 60, piece
                        assert letters == given.count("z"), piece
                item = "' '.repeat(2 * at) + '- a'"
                nested = f"Array.from({{length: 500}}, (_, at) => {item}).join('\\n')"
                deepest, _ = await page.value(f"({deep})({nested})")
                assert 16 <= deepest <= 60
            assert page.complaints == []

    asyncio.run(scene())


@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium is installed here")
@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("a **b *c* d** e", "<p>a <strong>b <em>c</em> d</strong> e</p>"),
        ("`a*b*` ``c`d`` `e", "<p><code>a*b*</code> <code>c`d</code> `e</p>"),
        ("2*3*4 *a*, *b *", "<p>2*3*4 <em>a</em>, *b *</p>"),
        ("[a](https://b.c/d) [e](f)", '<p><a href="https://b.c/d">a</a> [e](f)</p>'),
        ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
        ("**a", "<p>**a</p>"),
        ("***a***", "<p><strong>*a</strong>*</p>"),
        ("# a `b`", "<h3>a <code>b</code></h3>"),
        ("|a|*b*|\n|-|-|\n|c|d|",
         "<table><tr><th>a</th><th><em>b</em></th></tr><tr><td>c</td><td>d</td></tr></table>"),
    ],
)  # fmt: skip
def test_what_markdown_means_is_drawn(
    harness: Any, daemon: Any, tmp_path: Path, text: str, drawn: str
) -> None:
    """Paired marks are rendered; unpaired ones are shown."""

    async def scene() -> None:
        async with daemon(harness) as it, browser.opened(it, tmp_path / "profile") as page:
            shown = await page.value(f"make('div', {{}}, markdown({json.dumps(text)})).innerHTML")
            plain = ' target="_blank" rel="noopener noreferrer"'
            assert shown.replace(plain, "") == drawn

    asyncio.run(scene())
