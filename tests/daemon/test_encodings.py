"""Bodies that are compressed, marked or in another encoding are read, or refused by the reason."""

from __future__ import annotations

import asyncio
import gzip
import logging
import zlib
from typing import Any

import pytest

JSON = b'{"prompt": "say a", "max_tokens": 1}'
BODIES = [
    (JSON, "", 200, ""),
    (JSON, "identity", 200, ""),
    (b"\xef\xbb\xbf" + JSON, "", 200, ""),
    (gzip.compress(JSON), "gzip", 200, ""),
    (gzip.compress(b"\xef\xbb\xbf" + JSON), "GZIP", 200, ""),
    (zlib.compress(JSON), "deflate", 200, ""),
    (JSON, "br", 415, "Content-Encoding"),
    (JSON, "zstd", 415, "Content-Encoding"),
    (JSON, "x-gzip", 415, "Content-Encoding"),
    (JSON, "gzip, gzip", 415, "Content-Encoding"),
    (JSON, "aes128gcm", 415, "Content-Encoding"),
    (JSON, "gzip", 400, "not as its head says"),
    (gzip.compress(JSON)[:20], "gzip", 400, "not"),
    (JSON.decode().encode("utf-16"), "", 400, "not valid JSON"),
    (JSON.replace(b"say", b"s\xe4y"), "", 400, "not UTF-8"),
]


def test_a_body_is_read_or_refused_by_the_reason(
    harness: Any, daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And none of them is a bug: the log has no error."""

    async def scene() -> None:
        async with daemon(harness) as it:
            for data, encoding, status, said in BODIES:
                headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
                async with it.http.post("/v1/completions", data=data, headers=headers) as response:
                    answer = await response.text()
                    assert (response.status, said in answer) == (status, True), (encoding, answer)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert caplog.records == []
